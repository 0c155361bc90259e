"""One record of an OpenAI-format chat log, as found in the wild, becomes a `Trajectory`.

What differs between providers is brought to one form, and nothing is dropped on the way:

1. ``content``: ``null`` or absent is ``""`` for an assistant or tool message. Text parts are joined as they
   are; pictures, sound and files leave ``[image_url]`` in the text, and the original parts stay in
   ``extra["content_parts"]``. Reasoning parts stay there only: they were not said. A tool result that is
   not text is kept as JSON text. An assistant message with a ``refusal`` and no content says the refusal.
2. ``tool_calls``: see `axiomrm.data.tool_calls`; role ``function`` (before 2023-11) is ``tool``.
3. Other keys of a message go to ``extra`` (``from_environment: true`` on an assistant message says that the
   agent did not say it: no turn); of an outcome to ``outcome.metrics``; of the record, and a
   ``task`` that is only text, to ``metadata`` (as ``log.<key>`` where it has the name already).
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

from pydantic import ValidationError

from axiomrm.data.jsonl import shorten
from axiomrm.data.tool_calls import call_id, parse_calls
from axiomrm.data.trajectory import Message, Outcome, Role, Task, Trajectory
from axiomrm.errors import DataError

ROLES: tuple[str, ...] = get_args(Role)
TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Part type to the key that holds what was said."""
MEDIA_PARTS = frozenset(
    form.format(medium)
    for medium in ("image", "audio", "video", "file")
    for form in ("{}", "{}_url", "input_{}")
)
SILENT_PARTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
ELSEWHERE: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"conversations"}), "convert ShareGPT's from/value to role/content"),
    (
        frozenset({"input", "output", "score"}),
        "of verl's, write input and output as messages of roles user and assistant, score as outcome",
    ),
    (
        frozenset({"prompt", "chosen", "rejected"}),
        "a preference pair holds no rollout; axiomrm score reads it as 'context', 'a', 'b'",
    ),
    (
        frozenset({"prompt", "completion"}),
        "of TRL's, write prompt and completion as messages of roles user and assistant, reward as outcome",
    ),
)
"""Keys of logs that hold no ``messages``, and how to write them."""
_MESSAGE_KEYS = Message.model_fields.keys() - {"extra"} | {"function_call"}
_RECORD_KEYS = Trajectory.model_fields.keys() | {"functions"}


def to_trajectory(record: Mapping[str, Any]) -> Trajectory:
    """The trajectory in one log record.

    Raises:
        DataError: the reason, with the place in the record (``messages[3].role``), for a ``Rejected``.
    """
    if "messages" not in record:
        raise DataError(
            f"expected an object with 'messages', found keys {sorted(record)[:12]}{_hint(record)}"
        )
    messages = to_messages(record["messages"])
    rewards = _turn_rewards(record.get("turn_rewards"), sum(m.is_action for m in messages))
    return Trajectory(
        messages=messages,
        id=_identifier(record, "id"),
        task_id=_identifier(record, "task_id"),
        group_id=_identifier(record, "group_id"),
        task=_task(record.get("task")),
        outcome=_outcome(record.get("outcome")),
        turn_rewards=rewards,
        tools=_tools(record),
        metadata=_metadata(record),
    )


def _hint(record: Mapping[str, Any]) -> str:
    return next((f"; {hint}" for keys, hint in ELSEWHERE if keys <= record.keys()), "")


def to_messages(value: Any, place: str = "messages") -> tuple[Message, ...]:
    """A list of chat messages in our form.

    Raises:
        DataError: not a list, empty, or a message that cannot be read.
    """
    if not isinstance(value, list) or not value:
        raise DataError(f"{place}: expected a list with at least one message, found {shorten(value)}")
    return tuple(_message(item, f"{place}[{i}]") for i, item in enumerate(value))


def _message(item: Any, place: str) -> Message:
    if not isinstance(item, dict):
        raise DataError(f"{place}: expected an object with 'role' and 'content', found {shorten(item)}")
    role = _role(item.get("role"), f"{place}.role")
    content, extra = _content(item, role, place)
    calls = parse_calls(item, place)
    if item.get("tool_calls") and item.get("function_call") is not None:
        extra["function_call"] = item["function_call"]  # both given: the newer key counts
    name = item.get("name")
    if name is not None and not isinstance(name, str):
        raise DataError(f"{place}.name: expected text, found {shorten(name)}")
    return Message(
        role=role,
        content=content,
        tool_calls=calls,
        tool_call_id=call_id(item.get("tool_call_id"), f"{place}.tool_call_id"),
        name=name,
        extra=extra,
    )


def _role(value: Any, place: str) -> Role:
    if value == "function":
        return "tool"
    if value not in ROLES:
        raise DataError(f"{place}: {shorten(value)} is not one of {', '.join(ROLES)}, function")
    return cast(Role, value)


def _content(item: dict[str, Any], role: Role, place: str) -> tuple[str, dict[str, Any]]:
    """The text, and the ``extra`` of the message."""
    extra = {key: value for key, value in item.items() if key not in _MESSAGE_KEYS}
    content = item.get("content")
    place = f"{place}.content"
    if isinstance(content, str):
        return content, extra
    if content is None:
        if role not in ("assistant", "tool"):
            raise DataError(f"{place}: a {role} message needs content, found {shorten(content)}")
        refusal = item.get("refusal")
        return (refusal if isinstance(refusal, str) else ""), extra
    if isinstance(content, list) and not (role == "tool" and not _are_parts(content)):
        text = "".join(_part(part, f"{place}[{i}]") for i, part in enumerate(content))
        if not all(_is_text(part) for part in content):
            extra["content_parts"] = content
        return text, extra
    if role == "tool":
        return json.dumps(content, ensure_ascii=False), extra
    raise DataError(f"{place}: expected text, null or a list of parts, found {shorten(content)}")


def _are_parts(content: Sequence[Any]) -> bool:
    known = TEXT_PARTS.keys() | MEDIA_PARTS | SILENT_PARTS
    return all(
        isinstance(part, str) or (isinstance(part, dict) and part.get("type") in known) for part in content
    )


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or part["type"] in TEXT_PARTS


def _part(part: Any, place: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str):
        raise DataError(f"{place}: expected a part with a 'type', found {shorten(part)}")
    if kind in MEDIA_PARTS:
        return f"[{kind}]"
    if kind in SILENT_PARTS:
        return ""
    if kind not in TEXT_PARTS:
        accepted = ", ".join(sorted(TEXT_PARTS.keys() | MEDIA_PARTS | SILENT_PARTS))
        raise DataError(f"{place}.type: {kind!r} is not a part of OpenAI's chat format; accepted: {accepted}")
    text = part.get(TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise DataError(f"{place}.{TEXT_PARTS[kind]}: expected text, found {shorten(text)}")
    return text


def _identifier(record: Mapping[str, Any], key: str) -> str:
    return call_id(record.get(key), key) or ""


def _task(value: Any) -> Task:
    if value is None or isinstance(value, str):
        return Task()
    if isinstance(value, dict):  # null: an absent key, filled in by a data library
        value = {key: child for key, child in value.items() if child is not None}
    try:
        return Task.model_validate(value)
    except ValidationError as error:
        raise DataError(f"task: {_first(error)}") from error


def _outcome(value: Any) -> Outcome | None:
    """A bare number is the score; a missing score stays missing."""
    if value is None:
        return None
    if isinstance(value, int | float):
        value = {"score": value}
    if not isinstance(value, dict):
        raise DataError(f"outcome: expected null, a number or an object with 'score', found {shorten(value)}")
    metrics = value.get("metrics")
    if not isinstance(metrics, dict | None):
        raise DataError(f"outcome.metrics: expected an object, found {shorten(metrics)}")
    others = {key: child for key, child in value.items() if key not in ("score", "metrics")}
    number = _number(value.get("score"), "outcome.score", allow_bool=True)
    return Outcome(score=None if math.isnan(number) else number, metrics={**others, **(metrics or {})})


def _turn_rewards(value: Any, turns: int) -> tuple[float, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        raise DataError(f"turn_rewards: expected a list, found {shorten(value)}")
    if len(value) != turns:
        raise DataError(f"turn_rewards: {len(value)} for {turns} assistant messages (null = a missing one)")
    return tuple(_number(reward, f"turn_rewards[{i}]") for i, reward in enumerate(value))


def _number(value: Any, place: str, allow_bool: bool = False) -> float:
    """A finite float; ``null`` and NaN are NaN: missing."""
    if value is None:
        return math.nan
    if not isinstance(value, int | float) or (isinstance(value, bool) and not allow_bool):
        raise DataError(f"{place}: expected a number or null, found {shorten(value)}")
    try:
        return float(value)
    except OverflowError as error:
        raise DataError(f"{place}: {shorten(value)} is beyond the range of a float") from error


def _tools(record: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    tools = record.get("tools")
    if tools is None:
        tools = record.get("functions")  # before 2023-11
        if isinstance(tools, list):
            tools = [{"type": "function", "function": function} for function in tools]
    if tools is None:
        return ()
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise DataError(f"tools: expected a list of objects, found {shorten(tools)}")
    return tuple(tools)


def _metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    metadata = record.get("metadata")
    if not isinstance(metadata, dict | None):
        raise DataError(f"metadata: expected an object, found {shorten(metadata)}")
    known = dict(metadata or {})
    for key, value in record.items():
        if key not in _RECORD_KEYS or (key == "task" and isinstance(value, str)):
            known[f"log.{key}" if key in known else key] = value
    return known


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place or 'value'}: {first['msg']}, found {shorten(first['input'])}"
