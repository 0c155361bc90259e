"""The metadata of a recorded rollout that the audit reads, apart from what other programs mean by the names.

``turns`` and ``reset`` are common words: of another shape they are somebody else's and left out.
``turn_missing`` and ``turn_parts`` are ours: of another shape they are an error of the record, and so is a
``state_key`` that cannot be compared. ``None`` is always an absent key, a state of NaN an unknown one.
"""

import math
from collections.abc import Mapping
from typing import Any

from axiomrm.data.jsonl import shorten
from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import DataError
from axiomrm.policy_opt.rollouts.state_keys import plain_key

TOLD = frozenset({"state_key", "error_kind"})
"""What the audit reads of a turn; a list in which it stands is meant for us."""


def recorded(trajectory: Trajectory) -> Trajectory:
    """The rollout with ``turns``, ``reset``, ``turn_missing`` and ``turn_parts`` as the audit reads them.

    Raises:
        DataError: a value of ours has another shape; names its place.
    """
    found, turns = trajectory.metadata, len(trajectory.turns)
    ours = {
        "turns": _infos(found.get("turns")),
        "reset": _plain("reset", found["reset"]) if isinstance(found.get("reset"), Mapping) else None,
        "turn_missing": _reasons(found.get("turn_missing"), turns),
        "turn_parts": _parts(found.get("turn_parts"), turns),
    }
    others = {key: value for key, value in found.items() if key not in ours}
    known = {key: value for key, value in ours.items() if value is not None}
    return trajectory.model_copy(update={"metadata": others | known})


def _infos(value: Any) -> list[Mapping[str, Any]] | None:
    if not isinstance(value, list | tuple):
        return None
    wrong = [i for i, row in enumerate(value) if row is not None and not isinstance(row, Mapping)]
    if not wrong:
        return [_plain(f"turns[{i}]", row or {}) for i, row in enumerate(value)]
    if not any(isinstance(row, Mapping) and TOLD & row.keys() for row in value):
        return None
    raise _wrong(f"turns[{wrong[0]}]", "an object or null", value[wrong[0]])


def _plain(place: str, info: Mapping[str, Any]) -> Mapping[str, Any]:
    """With its state, if it tells one, as states are compared."""
    if "state_key" not in info:
        return info
    state = info["state_key"]
    unknown = isinstance(state, float) and math.isnan(state)
    try:
        return {**info, "state_key": None if unknown else plain_key(state)}
    except ValueError as error:
        raise DataError(f"metadata.{place}.state_key: {error}") from error


def _reasons(value: Any, turns: int) -> list[str | None] | None:
    rows = _rows("turn_missing", value, turns)
    for i, reason in enumerate(rows or ()):
        if not isinstance(reason, str | None):
            raise _wrong(f"turn_missing[{i}]", "text or null", reason)
    return rows


def _parts(value: Any, turns: int) -> list[Mapping[str, float | None]] | None:
    rows = _rows("turn_parts", value, turns)
    for i, row in enumerate(rows or ()):
        if not isinstance(row, Mapping | None):
            raise _wrong(f"turn_parts[{i}]", "an object or null", row)
        for name, part in (row or {}).items():
            number = isinstance(part, int | float) and not isinstance(part, bool) and not math.isinf(part)
            if part is not None and not number:
                raise _wrong(f"turn_parts[{i}].{name}", "a number or null", part)
    return None if rows is None else [row or {} for row in rows]


def _rows(key: str, value: Any, turns: int) -> list[Any] | None:
    """One value a turn; an empty list says nothing."""
    if value is None:
        return None
    if not isinstance(value, list | tuple):
        raise _wrong(key, "a list, one value an assistant message", value)
    if value and len(value) != turns:
        raise DataError(f"metadata.{key}: {len(value)} for {turns} assistant messages (null = a missing one)")
    return list(value) or None


def _wrong(place: str, expected: str, found: Any) -> DataError:
    return DataError(f"metadata.{place}: expected {expected}, found {shorten(found)}")
