"""Messages to ids and back for any chat model whose template frames each message by itself.

The frame of a role (what stands before and after the content) is read off the tokenizer's own chat
template with a sentinel; nothing is hard-coded. Ids of earlier messages never change, so an episode's
ids only grow at the end. Template pieces are encoded with special tokens, contents without: a literal
``<|end|>`` in a user's message stays text.

Tool calls are written ``<|call|>name {json}`` where the tokenizer has that token (the nano base), and
``<tool_call>{"name": …, "arguments": …}</tool_call>`` elsewhere.
"""

import json
from collections.abc import Sequence
from typing import Any

from axiomrm.data.environment import Action
from axiomrm.data.jsonl import check_value
from axiomrm.data.trajectory import Message, ToolCall
from axiomrm.errors import ConfigError, DataError

_SENTINEL = "\u2402sentinel\u2402"
CALL_TOKEN = "<|call|>"
HERMES_OPEN, HERMES_CLOSE = "<tool_call>", "</tool_call>"


class TemplateChat:
    """A ``ChatFormat`` over a Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any, extra_end_ids: Sequence[int] = ()) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError(f"{tokenizer.name_or_path!r} has no chat template; set tokenizer.chat_template")
        self.tokenizer = tokenizer
        self.frames = {role: self._frame(role) for role in ("system", "user", "assistant", "tool")}
        self.plain_calls = CALL_TOKEN in tokenizer.get_vocab()
        end = self._template_ids(self.frames["assistant"][1])
        if not end:
            raise ConfigError(
                f"the chat template of {tokenizer.name_or_path!r} does not end an assistant message"
            )
        self.end_ids = frozenset({end[0], *extra_end_ids})
        self._after_end = end[1:]

    def prompt_ids(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], first: bool
    ) -> list[int]:
        """Ids of the new messages plus the assistant header."""
        ids: list[int] = [] if first else list(self._after_end)
        for message in messages:
            ids += self.message_ids(message)
        return ids + self._template_ids(self.frames["assistant"][0])

    def message_ids(self, message: Message) -> list[int]:
        """One whole framed message."""
        before, after = self.frames["system" if message.role == "developer" else message.role]
        return self._template_ids(before) + self.content_ids(message) + self._template_ids(after)

    def action_ids(self, message: Message) -> list[int]:
        """The ids an agent emits for ``message``: its content and the end token."""
        return [*self.content_ids(message), self._template_ids(self.frames["assistant"][1])[0]]

    def content_ids(self, message: Message) -> list[int]:
        """Text and tool calls without the frame."""
        ids = self._data_ids(message.content)
        for call in message.tool_calls:
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            if self.plain_calls:
                ids += [
                    self.tokenizer.convert_tokens_to_ids(CALL_TOKEN),
                    *self._data_ids(f"{call.name} {arguments}"),
                ]
            else:
                ids += self._data_ids(
                    f'{HERMES_OPEN}{{"name": {json.dumps(call.name)}, '
                    f'"arguments": {arguments}}}{HERMES_CLOSE}'
                )
        return ids

    def parse(self, token_ids: Sequence[int]) -> Action:
        """The sampled turn as an action; a call that cannot be read sets ``error``."""
        ids = [i for i in token_ids if i not in self.end_ids]
        text = self.tokenizer.decode(ids, skip_special_tokens=False)
        opener = CALL_TOKEN if self.plain_calls else HERMES_OPEN
        said, *raw_calls = text.split(opener)
        calls, error = [], None
        for raw in raw_calls:
            call, problem = parse_plain(raw) if self.plain_calls else parse_hermes(raw)
            error = error or problem
            calls += [call] if call else []
        return Action(said.strip(), tuple(calls), tuple(token_ids), error)

    def _frame(self, role: str) -> tuple[str, str]:
        lead = [] if role in ("system", "user") else [{"role": "user", "content": "x"}]
        base = self.tokenizer.apply_chat_template(lead, tokenize=False) if lead else ""
        whole = self.tokenizer.apply_chat_template(
            [*lead, {"role": role, "content": _SENTINEL}], tokenize=False
        )
        if whole.count(_SENTINEL) != 1 or not whole.startswith(base):
            raise ConfigError(
                f"the chat template of {self.tokenizer.name_or_path!r} rewrites {role!r} messages"
            )
        before, after = whole[len(base) :].split(_SENTINEL)
        if role == "user" and "system" in before:  # a default system message of the template's own
            before = self._frame("assistant")[0].replace("assistant", "user")
        return before, after

    def _template_ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def _data_ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


def parse_plain(raw: str) -> tuple[ToolCall | None, str | None]:
    """``name {json}`` → a call, or why not."""
    name, _, rest = raw.strip().partition(" ")
    arguments, problem = _value(rest or "{}", f"the arguments of {name or 'the call'}", "are")
    return (None, problem) if problem else _call(name, arguments)


def parse_hermes(raw: str) -> tuple[ToolCall | None, str | None]:
    """``{"name": …, "arguments": …}</tool_call>`` → a call, or why not."""
    body, closed, _ = raw.partition(HERMES_CLOSE)
    value, problem = _value(body, "the tool call", "is")
    if problem:
        return None, problem
    if not closed or not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None, "the tool call wants a name and a closing tag"
    return _call(value["name"], value.get("arguments", {}))


def _value(text: str, what: str, verb: str) -> tuple[Any, str | None]:
    """What the agent wrote as JSON, or why it is none, as an error text for the agent."""
    try:
        return json.loads(text), None
    except RecursionError:
        return None, f"{what} {verb} nested too deeply"
    except ValueError:
        return None, f"{what} {verb} not JSON"


def _call(name: str, arguments: Any) -> tuple[ToolCall | None, str | None]:
    if not name or not isinstance(arguments, dict):
        return None, "the tool call wants a name and an object of arguments"
    try:
        check_value({"name": name, "arguments": arguments})  # as the reader of logs asks
    except DataError as error:
        return None, f"the tool call cannot be used: {error}"
    return ToolCall(name=name, arguments=arguments), None
