"""Tool calls: reading them from a log, and finding the call that a result answers.

Providers differ: ids may be absent, empty, or numbered anew in every turn; results of parallel calls come in
any order, late, or never. So a result is never matched by position where its id says otherwise, an id means
its most recent call, and a result whose call is not in the log answers nothing (no neighbour gets it).
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from axiomrm.data.jsonl import check_value, finite_float, shorten, unique_keys
from axiomrm.data.trajectory import Message, ToolCall
from axiomrm.errors import DataError


class CallRef(NamedTuple):
    """Where a call stands: ``messages[message].tool_calls[call]``."""

    message: int
    call: int


def parse_calls(item: dict[str, Any], place: str) -> tuple[ToolCall, ...]:
    """The calls of one logged message: ``tool_calls`` (nested or flat) or ``function_call`` (before 2023-11).

    ``arguments`` may be an object, JSON text, ``""`` or ``null``; text that is no JSON object stays in
    ``raw_arguments``.

    Raises:
        DataError: a call without a name, or a list or object is something else.
    """
    listed = item.get("tool_calls")
    if listed is not None and not isinstance(listed, list):
        raise DataError(f"{place}.tool_calls: expected a list, found {shorten(listed)}")
    if not listed and item.get("function_call") is not None:
        return (_call(item["function_call"], f"{place}.function_call"),)
    return tuple(_call(call, f"{place}.tool_calls[{i}]") for i, call in enumerate(listed or []))


def call_id(value: Any, place: str) -> str | None:
    """An id as text; ``None`` where it is absent or empty.

    Raises:
        DataError: neither text nor an integer.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise DataError(f"{place}: expected text, found {shorten(value)}")


def link_results(messages: Sequence[Message]) -> dict[int, CallRef]:
    """Which call each tool message answers; a tool message that answers none in ``messages`` is absent.

    With an id: the latest call of that id that has no result yet, else the latest of that id at all. Without
    one (in the result or in the calls): the first call without result in the last group of calls, of that
    tool where the result names it.
    """
    links: dict[int, CallRef] = {}
    groups: list[list[CallRef]] = []
    for i, message in enumerate(messages):
        if message.role == "assistant":
            refs = [CallRef(i, slot) for slot in range(len(message.tool_calls))]
            if i and groups and messages[i - 1].role == "assistant":
                groups[-1].extend(refs)  # one call a message, results after all of them
            else:
                groups.append(refs)
        elif message.role == "tool":
            asked = _asked(message, groups, messages, set(links.values()))
            if asked is not None:
                links[i] = asked
    return links


def _asked(
    result: Message, groups: list[list[CallRef]], messages: Sequence[Message], answered: set[CallRef]
) -> CallRef | None:
    def call(ref: CallRef) -> ToolCall:
        return messages[ref.message].tool_calls[ref.call]

    wanted = result.tool_call_id
    if wanted is not None:
        matching = [[ref for ref in group if call(ref).id == wanted] for group in reversed(groups)]
        found = [ref for group in matching for ref in group]
        open_refs = [ref for ref in found if ref not in answered]
        if found:
            return (open_refs or found)[0]
    last = groups[-1] if groups else []
    for ref in last:
        id_free = wanted is None or call(ref).id is None
        if ref not in answered and id_free and result.name in (None, call(ref).name):
            return ref
    return None


def _call(call: Any, place: str) -> ToolCall:
    if not isinstance(call, dict):
        raise DataError(f"{place}: expected an object, found {shorten(call)}")
    body = next((call[key] for key in ("function", "custom") if isinstance(call.get(key), dict)), call)
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise DataError(f"{place}.name: expected the name of a tool, found {shorten(name)}")
    given = next((body[key] for key in ("arguments", "args", "input") if key in body), None)
    arguments, raw = _arguments(given)
    check_value({f"{place}.arguments": arguments})
    identifier = call_id(call.get("id"), f"{place}.id")
    return ToolCall(name=name, arguments=arguments, id=identifier, raw_arguments=raw)


def _arguments(given: Any) -> tuple[dict[str, Any], str | None]:
    """The arguments as an object; or, where they are none, the text as logged."""
    if isinstance(given, dict):
        return given, None
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}, None
    if not isinstance(given, str):
        return {}, json.dumps(given, ensure_ascii=False)
    value: Any = given
    for _ in range(2):  # some providers encode twice
        try:
            value = json.loads(
                value, parse_constant=_no_constant, parse_float=finite_float, object_pairs_hook=unique_keys
            )
        except (ValueError, RecursionError):
            return {}, given
        if isinstance(value, dict):
            return value, None
        if value is None:
            return {}, None
        if not isinstance(value, str):
            break
    return {}, given


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")
