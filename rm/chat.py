"""A tokenizer's own chat template, rendered once around sentinels and cut there; nothing is hard-coded.

Pieces of the template are encoded with special tokens on; everything else (rules, data, criteria) with
them off, so that a literal ``<|im_end|>`` in an answer never becomes the control token.
"""

import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from axiomrm.errors import ConfigError

_SYSTEM, _USER, _ANSWER = "SENTINELqSYSTEM", "SENTINELqUSER", "SENTINELqANSWER"
_DAY = datetime.date(2024, 7, 26)
DEFAULT_ARGUMENTS: Mapping[str, Any] = {
    "enable_thinking": False,
    "date_string": f"{_DAY:%d %b %Y}",
    "strftime_now": _DAY.strftime,
}
"""Thinking off, and always the same day: some templates print today's date, and a prompt that changes at
midnight is another judge every day."""


@dataclass(frozen=True)
class ChatFrame:
    """What the chat template writes around our texts."""

    head: str
    """Before the system text (before the user text where there is no system role)."""
    middle: str
    """Between system and user text; our own blank line where the rules are folded into the user message."""
    tail: str
    """After the user text, up to where the answer starts."""
    end: str
    """After the answer."""
    folded: bool
    """True: no system role, the rules open the user message."""

    @property
    def hash(self) -> str:
        """SHA-256 over the pieces, so that template arguments and dates are part of it."""
        return hashlib.sha256("\0".join((self.head, self.middle, self.tail, self.end)).encode()).hexdigest()


def data_ids(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Ids of a text that control tokens never come out of."""
    return tuple(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


def text_of(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of ids, control tokens shown."""
    return str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))


class FrameIds(NamedTuple):
    """The frame as ids; ``end`` stops at the token that ends an answer."""

    head: tuple[int, ...] = ()
    middle: tuple[int, ...] = ()
    tail: tuple[int, ...] = ()
    end: tuple[int, ...] = ()


def frame_ids(frame: ChatFrame, tokenizer: Any) -> FrameIds:
    """The frame encoded with special tokens on.

    Raises:
        ConfigError: nothing would end an answer.
    """
    head, middle, tail, end = (
        tuple(tokenizer.encode(text, add_special_tokens=False)) if text else ()
        for text in (frame.head, frame.middle, frame.tail, frame.end)
    )
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    special.add(tokenizer.eos_token_id)
    stop = next((i + 1 for i, token in enumerate(end) if token in special), 0)
    if not stop and tokenizer.eos_token_id is None:
        raise ConfigError("the chat template ends an answer with no special token, and there is no eos token")
    return FrameIds(head, middle, tail, end[:stop] if stop else (tokenizer.eos_token_id,))


def added_tokens(tokenizer: Any) -> list[str]:
    """The strings that the tokenizer treats apart from its vocabulary."""
    return [str(token) for token in tokenizer.added_tokens_decoder.values()]


def tokenizer_hash(tokenizer: Any) -> str:
    """SHA-256 over vocabulary, merges and added tokens; not over padding and truncation settings."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    state = json.loads(backend.to_str()) if backend is not None else dict(tokenizer.get_vocab())
    for setting in ("truncation", "padding"):
        state.pop(setting, None)
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def chat_frame(tokenizer: Any, arguments: Mapping[str, Any]) -> ChatFrame:
    """The frame of ``tokenizer``'s chat template.

    Args:
        tokenizer: a transformers tokenizer.
        arguments: template arguments, over :data:`DEFAULT_ARGUMENTS`.

    Raises:
        ConfigError: there is no chat template, or it does not keep the texts it is given.
    """
    if not getattr(tokenizer, "chat_template", None):
        name = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        raise ConfigError(
            f"tokenizer {name!r} has no chat template; set tokenizer.chat_template (or save the model with a "
            "chat_template.jinja) so that prompts are laid out as the model knows them"
        )
    arguments = {**DEFAULT_ARGUMENTS, **arguments}
    user = {"role": "user", "content": _USER}
    system = {"role": "system", "content": _SYSTEM}
    opened = _rendered(tokenizer, [system, user], arguments, answer=False)
    folded = opened is None or not _in_order(opened, (_SYSTEM, _USER))
    messages = [user] if folded else [system, user]
    opened = opened if not folded else _rendered(tokenizer, messages, arguments, answer=False)
    closed = _rendered(tokenizer, messages, arguments, answer=True)
    marks = (_USER,) if folded else (_SYSTEM, _USER)
    if opened is None or closed is None or not _in_order(opened, marks) or _ANSWER not in closed:
        raise ConfigError("the chat template does not print each message's content exactly once, in order")
    head, middle, tail = ("", "\n\n", "")
    if folded:
        head, tail = opened.split(_USER)
    else:
        head, rest = opened.split(_SYSTEM)
        middle, tail = rest.split(_USER)
    return ChatFrame(head, middle, tail, closed.rsplit(_ANSWER, 1)[1], folded)


def _rendered(
    tokenizer: Any, messages: list[dict[str, str]], arguments: Mapping[str, Any], *, answer: bool
) -> str | None:
    """``None`` where the template refuses these roles (it raises errors of its own kinds)."""
    extra = [{"role": "assistant", "content": _ANSWER}] if answer else []
    try:
        return str(
            tokenizer.apply_chat_template(
                messages + extra, tokenize=False, add_generation_prompt=not answer, **arguments
            )
        )
    except Exception as error:
        if type(error).__module__.partition(".")[0] != "jinja2":
            raise
        return None


def _in_order(text: str, marks: tuple[str, ...]) -> bool:
    places = [text.find(mark) for mark in marks]
    return all(text.count(mark) == 1 for mark in marks) and places == sorted(places)
