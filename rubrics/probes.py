"""Measures behind facets (of a reply or a trajectory) and turn features (of the prefix).

``PROBES[name].measure(trajectory, turn, args)`` gives a value, or ``None``: nothing recorded to measure. A
probe is pure: no clock, no I/O, nothing executed.

A facet's text is the judged assistant message, or all assistant messages joined by an empty line at
trajectory level. Words are runs of letters, digits, apostrophes and hyphens; each CJK character counts as
one word.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from axiomrm.data.trajectory import Message, Trajectory

Measured = bool | int | float | str | None
Measure = Callable[[Trajectory, int | None, Mapping[str, Any]], Measured]

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\u3040-\u30ff"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+(?:['’\-][^\W_{_CJK}]+)*")
_SENTENCE = re.compile(r"[.!?。！？]+(?:[\"')\]]*)(?=\s|$)|[。！？]+|\n{2,}")
_LIST_ITEM = re.compile(r"^\s{0,8}(?:[-*+•]|\d{1,3}[.)])\s+\S", re.MULTILINE)
_NUMBERED = re.compile(r"^\s{0,8}\d{1,3}[.)]\s+\S", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}\s+\S", re.MULTILINE)
_CITATION = re.compile(r"\[(\d{1,4}|[A-Za-z][\w.:-]{0,63})\](?!\()")
_EMOJI = re.compile("[\U0001f300-\U0001faff\u2600-\u27bf]")
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)


class Probe(NamedTuple):
    """A measure and where it may be used."""

    measure: Measure
    scope: Literal["reply", "prefix"]
    type: Literal["bool", "int", "number", "enum"]
    args: tuple[str, ...] = ()
    """Names of the arguments it takes."""
    summary: str = ""


def judged_text(trajectory: Trajectory, turn: int | None) -> str:
    """The text that an item at this level is about, in NFC as the rubric's own texts are."""
    if turn is not None:
        return unicodedata.normalize("NFC", trajectory.turns[turn].action.content)
    return unicodedata.normalize("NFC", "\n\n".join(m.content for m in trajectory.messages if m.is_action))


def judged_messages(trajectory: Trajectory, turn: int | None) -> tuple[Message, ...]:
    """The assistant messages that an item at this level is about."""
    if turn is not None:
        return (trajectory.turns[turn].action,)
    return tuple(m for m in trajectory.messages if m.is_action)


def words(text: str) -> list[str]:
    """Words of a text, see the module docstring."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """Non-empty sentences; code blocks do not count."""
    return [s for s in _SENTENCE.split(_CODE.sub(" ", text)) if s and words(s)]


def _text(measure: Callable[[str], Measured]) -> Measure:
    return lambda trajectory, turn, args: measure(judged_text(trajectory, turn))


def _count(pattern: re.Pattern[str]) -> Measure:
    return _text(lambda text: len(pattern.findall(text)))


def _questions(text: str) -> int:
    return len(re.findall(r"[?？]+", _CODE.sub(" ", text)))


def _mean_sentence(text: str) -> float | None:
    found = sentences(text)
    return sum(len(words(s)) for s in found) / len(found) if found else None


def _mentions(trajectory: Trajectory, turn: int | None, args: Mapping[str, Any]) -> int:
    text = judged_text(trajectory, turn).casefold()
    return sum(len(re.findall(rf"(?<!\w){re.escape(str(w).casefold())}(?!\w)", text)) for w in args["words"])


def _tool_calls(trajectory: Trajectory, turn: int | None, args: Mapping[str, Any]) -> int:
    names = set(args.get("names", ()))
    calls = [c for m in judged_messages(trajectory, turn) for c in m.tool_calls]
    return sum(not names or c.name in names for c in calls)


def _slots_missing(prefix: Trajectory, turn: int | None, args: Mapping[str, Any]) -> Measured:
    """Recorded by the environment on the last message, or counted over ``task.payload["slots"]``.

    What was recorded and is no number is handed on, for whoever asks to refuse it by name.
    """
    for message in reversed(prefix.messages):
        if "slots_missing" in message.extra:
            recorded: Measured = message.extra["slots_missing"]
            try:
                return int(recorded) if recorded is not None else None
            except (TypeError, ValueError, OverflowError):
                return recorded
    slots = prefix.task.payload.get("slots", prefix.metadata.get("slots"))
    if not isinstance(slots, Mapping):
        return None
    said = "\n".join(m.content for m in prefix.messages if m.role in ("user", "tool")).casefold()
    return sum(str(value).casefold() not in said for value in slots.values())


def _last_tool_failed(prefix: Trajectory, turn: int | None, args: Mapping[str, Any]) -> bool:
    for message in reversed(prefix.messages):
        if message.role == "tool":
            return succeeded(message) is False
        if message.role == "assistant":
            return False
    return False


def succeeded(message: Message) -> bool:
    """Whether a tool result reports success; a result that starts like an error, or says so, does not."""
    if message.extra.get("is_error") is True or message.extra.get("status") == "error":
        return False
    head = message.content.lstrip()[:200].casefold()
    return not re.match(
        r'(error|exception|traceback|failed)\b|\{\s*"(error|errors)"\s*:\s*(?!null|false|"")', head
    )


def _last_user_words(prefix: Trajectory, turn: int | None, args: Mapping[str, Any]) -> int | None:
    for message in reversed(prefix.messages):
        if message.role == "user":
            return len(words(message.content))
    return None


PROBES: dict[str, Probe] = {
    "word_count": Probe(_text(lambda t: len(words(t))), "reply", "int", (), "words"),
    "char_count": Probe(_text(len), "reply", "int", (), "characters"),
    "sentence_count": Probe(_text(lambda t: len(sentences(t))), "reply", "int", (), "sentences"),
    "sentence_words": Probe(_text(_mean_sentence), "reply", "number", (), "mean words a sentence"),
    "paragraph_count": Probe(
        _text(lambda t: len([p for p in re.split(r"\n\s*\n", t) if p.strip()])),
        "reply",
        "int",
        (),
        "paragraphs",
    ),
    "question_count": Probe(_text(_questions), "reply", "int", (), "question marks outside code"),
    "exclamation_count": Probe(
        _text(lambda t: len(re.findall(r"[!！]+", t))), "reply", "int", (), "exclamations"
    ),
    "list_items": Probe(_count(_LIST_ITEM), "reply", "int", (), "bulleted or numbered items"),
    "numbered_items": Probe(_count(_NUMBERED), "reply", "int", (), "numbered items"),
    "heading_count": Probe(_count(_HEADING), "reply", "int", (), "markdown headings"),
    "code_blocks": Probe(_count(_CODE), "reply", "int", (), "fenced code blocks"),
    "table_rows": Probe(
        _count(re.compile(r"^\s*\|.*\|\s*$", re.MULTILINE)), "reply", "int", (), "table rows"
    ),
    "link_count": Probe(_count(re.compile(r"https?://\S+")), "reply", "int", (), "links"),
    "citation_count": Probe(_count(_CITATION), "reply", "int", (), "bracketed source ids"),
    "emoji_count": Probe(_count(_EMOJI), "reply", "int", (), "emoji"),
    "mentions": Probe(_mentions, "reply", "int", ("words",), "occurrences of given words"),
    "tool_calls": Probe(_tool_calls, "reply", "int", ("names",), "tool calls, all or of given names"),
    "has_tool_call": Probe(
        lambda x, t, a: _tool_calls(x, t, a) > 0, "reply", "bool", ("names",), "whether a tool is called"
    ),
    "slots_missing": Probe(_slots_missing, "prefix", "int", (), "facts that the user has not given yet"),
    "turn_index": Probe(
        lambda x, t, a: sum(m.is_action for m in x.messages), "prefix", "int", (), "earlier replies"
    ),
    "user_turns": Probe(
        lambda x, t, a: sum(m.role == "user" for m in x.messages), "prefix", "int", (), "user messages so far"
    ),
    "last_user_words": Probe(_last_user_words, "prefix", "int", (), "words of the last user message"),
    "last_tool_failed": Probe(_last_tool_failed, "prefix", "bool", (), "the last tool result is an error"),
    "after_tool_result": Probe(
        lambda x, t, a: bool(x.messages) and x.messages[-1].role == "tool",
        "prefix",
        "bool",
        (),
        "answers a tool",
    ),
}
