"""Judges over tool calls: order, choice, form, repetition.

A *state change* is a successful call of a tool in ``args.changing`` (or one whose result message carries
``extra["state_changed"] == True``): after it, the same call may give something new and is not redundant.
"""

import json
from typing import Any

from axiomrm.data.trajectory import Message, ToolCall, Trajectory, canonical_json
from axiomrm.data.verdict import CannotAssess, Verdict
from axiomrm.rubrics.judge_types import Arguments, metrics_of, scored
from axiomrm.rubrics.probes import succeeded


class ToolOrder(Arguments):
    """``first`` must have succeeded before any call of ``then``."""

    first: str
    then: tuple[str, ...]


class RightTool(Arguments):
    """Tools expected where the recording names none."""

    expected: tuple[str, ...] = ()


class Changing(Arguments):
    """Tools whose success changes the state."""

    changing: tuple[str, ...] = ()


def _result_of(trajectory: Trajectory, at: int, index: int, call: ToolCall) -> Message | None:
    """The tool message that answers call ``index`` of message ``at``: by id, else by position."""
    answers = []
    for message in trajectory.messages[at + 1 :]:
        if message.role == "assistant":
            break
        if message.role == "tool":
            answers.append(message)
    if call.id is not None:
        for message in answers:
            if message.tool_call_id == call.id:
                return message
    unnamed = [m for m in answers if m.tool_call_id is None or call.id is None]
    return unnamed[index] if index < len(unnamed) else None


def tool_order(trajectory: Trajectory, turn: int | None, args: ToolOrder) -> Verdict:
    """1 if every ``then`` call comes after a successful ``first``; 1 if there is none."""
    done = False
    for at, message in enumerate(trajectory.messages):
        finished = False
        for index, call in enumerate(message.tool_calls if message.is_action else ()):
            if call.name in args.then and not done:
                return scored(0.0, "violated", f"{call.name} before a successful {args.first}")
            if call.name == args.first:
                result = _result_of(trajectory, at, index, call)
                finished = finished or (result is not None and succeeded(result))
        # Calls of one message run side by side: its own ``first`` comes too late for its own ``then``.
        done = done or finished
    return scored(1.0, "kept")


def right_tool(trajectory: Trajectory, turn: int | None, args: RightTool) -> Verdict:
    """1 if a called tool is among those expected at this state; no call = 0.

    Expected: ``extra["expected_tools"]`` of the judged message, ``metrics["expected_tools"][turn]``, or
    ``args``. An empty expectation means that no call is right.
    """
    where = trajectory.turns[turn or 0]
    expected = where.action.extra.get("expected_tools")
    table = metrics_of(trajectory).get("expected_tools")
    if expected is None and isinstance(table, list | tuple) and where.index < len(table):
        expected = table[where.index]
    expected = list(args.expected) or None if expected is None else expected
    if expected is None:
        return CannotAssess(reason="no expected tools are recorded for this turn")
    called = [c.name for c in where.action.tool_calls]
    if not called:
        return scored(float(not expected), "no_call")
    return scored(float(all(name in expected for name in called)), ", ".join(called)[:100])


def args_well_formed(trajectory: Trajectory, turn: int | None, args: Arguments) -> Verdict:
    """1 if the arguments of all calls are JSON and fit the tool's schema; no call = 0."""
    calls = trajectory.turns[turn or 0].action.tool_calls
    if not calls:
        return scored(0.0, "no_call")
    schemas = {s["name"]: s.get("parameters", {}) for s in map(_function, trajectory.tools) if "name" in s}
    problems = []
    for call in calls:
        if call.raw_arguments is not None and not _is_object(call.raw_arguments):
            problems.append(f"{call.name}: not a JSON object")
        elif schemas and call.name not in schemas:
            problems.append(f"{call.name}: no such tool")
        else:
            problems += [f"{call.name}: {p}" for p in misfits(call.arguments, schemas.get(call.name, {}))]
    return scored(float(not problems), "malformed" if problems else "well_formed", "; ".join(problems)[:300])


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    inner = tool.get("function", tool)
    return inner if isinstance(inner, dict) else {}


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list, tuple),
    "null": (type(None),),
}


def misfits(value: Any, schema: Any, place: str = "arguments") -> list[str]:
    """Where ``value`` does not fit a JSON schema (types, enums, objects, arrays)."""
    if not isinstance(schema, dict):
        return []
    kinds = schema.get("type")
    kinds = [kinds] if isinstance(kinds, str) else kinds or []
    if kinds and not any(_is(value, k) for k in kinds):
        return [f"{place} is {value!r}, {' or '.join(kinds)} is needed"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{place} is {value!r}, not one of {schema['enum']}"]
    if isinstance(value, dict):
        return _object_misfits(value, schema, place)
    if isinstance(value, list | tuple):
        return [p for i, v in enumerate(value) for p in misfits(v, schema.get("items"), f"{place}[{i}]")]
    return []


def _object_misfits(value: dict[str, Any], schema: dict[str, Any], place: str) -> list[str]:
    properties = schema.get("properties", {})
    out = [f"{place}.{k} is missing" for k in schema.get("required", ()) if k not in value]
    if schema.get("additionalProperties") is False:
        out += [f"{place}.{k} is unknown" for k in value if k not in properties]
    return out + [p for k, v in value.items() for p in misfits(v, properties.get(k), f"{place}.{k}")]


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, (object,)))


def _keys(trajectory: Trajectory, turn: int, changing: tuple[str, ...]) -> list[list[tuple[int, str]]]:
    """For each turn up to ``turn``: (state number, canonical call) of its calls."""
    state, out = 0, []
    for index, where in enumerate(trajectory.turns[: turn + 1]):
        calls = where.action.tool_calls
        out.append([(state, canonical_json([c.name, c.arguments, c.raw_arguments])) for c in calls])
        changed = any(m.extra.get("state_changed") is True for m in where.messages if m.role == "tool")
        for i, call in enumerate(calls):
            if call.name in changing and index < turn:
                result = _result_of(trajectory, where.start, i, call)
                changed = changed or (result is not None and succeeded(result))
        state += changed
    return out


def _closes_cycle(keys: list[list[tuple[int, str]]]) -> bool:
    """Whether the last turn closes the third repetition of a cycle of 1 to 3 calls, inside one state."""
    flat = [k for calls in keys for k in calls]
    first_of_last = len(flat) - len(keys[-1])
    for end in range(first_of_last + 1, len(flat) + 1):
        for length in (1, 2, 3):
            tail = flat[end - 3 * length : end] if end >= 3 * length else []
            if (
                tail
                and tail[:length] == tail[length : 2 * length] == tail[2 * length :]
                and _primitive(tail[:length])
            ):
                return True
    return False


def _primitive(cycle: list[tuple[int, str]]) -> bool:
    return len(cycle) == 1 or len(set(cycle)) > 1


def loop(trajectory: Trajectory, turn: int | None, args: Changing) -> Verdict:
    """1 where the third repetition of a cycle of 1 to 3 calls closes."""
    keys = _keys(trajectory, turn or 0, args.changing)
    closes = bool(keys[-1]) and _closes_cycle(keys)
    return scored(float(closes), "loop" if closes else "")


def redundant_step(trajectory: Trajectory, turn: int | None, args: Changing) -> Verdict:
    """1 if a call repeats an earlier one without a state change in between; a loop is not also redundant."""
    keys = _keys(trajectory, turn or 0, args.changing)
    if not keys[-1] or _closes_cycle(keys):
        return scored(0.0, "loop" if keys[-1] else "no_call")
    earlier = {k for calls in keys[:-1] for k in calls}
    repeated = any(k in earlier for k in keys[-1])
    return scored(float(repeated), "redundant" if repeated else "new")
