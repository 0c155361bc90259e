"""Replies of OpenAI-compatible servers: what is missing or senseless is a fault, never a guess."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import Generation, LabelReading, TokenLogprobs
from axiomrm.rm.engines.http_faults import Fault, fault
from axiomrm.rm.labels import LabelTable
from axiomrm.rm.positions import top_reading

_VERSION = re.compile(r"(-\d{4}-\d{2}-\d{2}|-\d{8}|-\d{3,4})?", re.ASCII)
"""What a server may add to a name: a day, a month and day, or a number; ``-mini`` and ``-7b`` are others."""
_ROUNDING = 1e-3
"""How far above 0 a server may round a log-probability."""


@dataclass(frozen=True)
class Choice:
    """The first choice of a reply."""

    text: str
    stop: Literal["stop", "length"]
    raw: Mapping[str, Any]


def same_model(asked: str, answered: str) -> bool:
    """Whether a server's name for its model fits: equal, or dated or numbered (``m-2026-01-01``, ``m-0613``,
    ``m-002``); the owner before the slash may stand in one of the names only, not be another.
    """
    if asked == answered:  # a folder's name may end in a slash
        return bool(asked)
    (owner, _, name), (other, _, found) = asked.rpartition("/"), answered.rpartition("/")
    if owner and other and owner != other:
        return False
    return bool(name) and found.startswith(name) and _VERSION.fullmatch(found[len(name) :]) is not None


def choice_of(reply: Any, model: str) -> Choice | Fault | Failed:
    """The only choice of a chat or completion reply.

    Args:
        reply: the JSON.
        model: the name that was asked for; an answer by another model counts for nothing.
    """
    try:
        answered, choice = reply.get("model"), reply["choices"][0]
        message = choice.get("message")
        content = message.get("content") if message is not None else choice["text"]
        refusal = message.get("refusal") if message is not None else None
        reason = choice.get("finish_reason")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        return _odd(f"reply without a choice: {type(error).__name__}")
    if answered is not None and not same_model(model, str(answered)):
        return _odd(f"answered by model {str(answered)[:80]!r} instead of {model!r}")
    if reason == "content_filter" or (refusal and not content):
        return Failed(kind="refused", detail="the server's content filter or model refused to answer")
    if reason in ("error", "abort"):
        return fault("engine_error", f"the server gave up: finish reason {reason!r}", again=True)
    if content is not None and not isinstance(content, str):
        return _odd(f"reply whose content is a {type(content).__name__}, not a text")
    return Choice(content or "", "length" if reason == "length" else "stop", choice)


def chat_generation(reply: Any, model: str) -> Generation | Fault | Failed:
    """What a chat model wrote, with the top log-probabilities of each of its tokens."""
    choice = choice_of(reply, model)
    if not isinstance(choice, Choice):
        return choice
    tokens = chat_tokens(choice)
    if isinstance(tokens, Fault):
        return tokens
    return Generation(choice.text, (), choice.stop, aligned(tokens, choice.text))


def chat_tokens(choice: Choice) -> tuple[TokenLogprobs, ...] | Fault:
    """``logprobs.content`` of a chat choice; empty where the server gave none."""
    try:
        entries = (choice.raw.get("logprobs") or {}).get("content") or ()
        return tuple(_token(entry) for entry in entries)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return _odd(f"unreadable log-probabilities: {type(error).__name__}")


def chat_label(reply: Any, model: str, table: LabelTable) -> LabelReading | Fault | Failed:
    """The labels at the first token after a lead-in that was given as the beginning of the answer."""
    choice = choice_of(reply, model)
    if not isinstance(choice, Choice):
        return choice
    tokens = chat_tokens(choice)
    if isinstance(tokens, Fault):
        return tokens
    if not tokens:
        return Failed(kind="no_logprobs", detail="the server gave no log-probabilities for the label")
    return top_reading(tokens[0], tuple(table.label_ids))


def completion_label(reply: Any, model: str, table: LabelTable) -> LabelReading | Fault | Failed:
    """The labels at the first generated token of a completion, looked up by id."""
    choice = choice_of(reply, model)
    if not isinstance(choice, Choice):
        return choice
    try:
        first = (choice.raw.get("logprobs") or {}).get("top_logprobs") or ()
        first = first if first and first[0] else ()
        top = _numbers(first[0].items()) if first else {}
        chosen = str(choice.raw["logprobs"]["tokens"][0]) if first else ""
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        return _odd(f"unreadable log-probabilities: {type(error).__name__}")
    names = {f"token_id:{i}": label for label, i in table.label_ids.items()}
    shown = TokenLogprobs(names.get(chosen, chosen), {names.get(name, name): x for name, x in top.items()})
    return top_reading(shown, tuple(table.label_ids))


def completion_generation(
    reply: Any, model: str, decode: Callable[[Sequence[int]], str], end_ids: frozenset[int]
) -> Generation | Fault | Failed:
    """What a model wrote to a prompt of ids, as ids, without the token that ended it."""
    choice = choice_of(reply, model)
    if not isinstance(choice, Choice):
        return choice
    ids = choice.raw.get("token_ids")
    if not isinstance(ids, list) or not all(type(i) is int for i in ids):
        return _odd("completion without token ids")
    if ids and ids[-1] in end_ids:
        ids = ids[:-1]
    return Generation(decode(ids), tuple(ids), choice.stop)


def aligned(tokens: Sequence[TokenLogprobs], text: str) -> tuple[TokenLogprobs, ...]:
    """Tokens whose texts join to ``text`` exactly, out of all generated ones.

    Servers list thinking before the text and an end token after it, and may show characters that are split
    over tokens broken: then the last lines that match, which carry the verdicts, keep their tokens. Empty
    where the two cannot be brought together: a position found elsewhere would be another token's.
    """
    joined = "".join(token.text for token in tokens)
    start = joined.rfind(text) if text else -1
    if start >= 0:
        return _cut(tokens, start, start + len(text))
    last = text.rstrip().rpartition("\n")[2]
    start = joined.rfind(last) if last else -1
    if start < 0 or joined[start + len(last) :].strip("\n\r ").count("\n"):
        return ()
    kept = _same_end(joined[:start], text[: text.rindex(last)])
    before = TokenLogprobs(text[: text.rindex(last) - kept], {})
    return (before, *_cut(tokens, start - kept, start + len(last)))


def _same_end(a: str, b: str) -> int:
    """Characters of the whole lines at the end of both texts that are equal; both end in a line break."""
    kept = 0
    for one, other in zip(reversed(a.splitlines(True)), reversed(b.splitlines(True)), strict=False):
        if one != other or not one.endswith("\n"):
            break
        kept += len(one)
    return kept


def _cut(tokens: Sequence[TokenLogprobs], start: int, end: int) -> tuple[TokenLogprobs, ...]:
    kept, at = [], 0
    for token in tokens:
        text = token.text[max(0, start - at) : max(0, end - at)]
        at += len(token.text)
        if text:
            kept.append(token._replace(text=text))
    return tuple(kept)


def _token(entry: Mapping[str, Any]) -> TokenLogprobs:
    top = _numbers((t["token"], t["logprob"]) for t in entry.get("top_logprobs") or ())
    return TokenLogprobs(str(entry["token"]), top)


def _numbers(pairs: Any) -> dict[str, float]:
    """Token to log-probability; of two tokens that look the same the more probable one counts."""
    found: dict[str, float] = {}
    for name, value in pairs:
        if value is None:
            continue
        number = float(value)
        if math.isnan(number) or number > _ROUNDING:
            raise ValueError("no log-probability")
        found[str(name)] = max(min(number, 0.0), found.get(str(name), -math.inf))
    return found


def _odd(detail: str) -> Fault:
    return fault("engine_error", detail, again=True, odd=True)
