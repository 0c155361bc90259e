"""What a scored file may hold: chat logs, ``traj`` records, and pairs of answers to one context."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from axiomrm.data.openai_chat import to_messages, to_trajectory
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.errors import DataError

Side = Literal["a", "b"] | None
Candidates = list[tuple[Side, Trajectory]]
SHARED = frozenset({"id", "task_id", "group_id", "task", "tools", "functions", "metadata"})
"""Keys of a pair that both of its conversations have."""


def candidates(record: Mapping[str, Any]) -> Candidates:
    """The conversations in one record: one of a chat log or ``traj`` record, two of a pair record.

    Raises:
        DataError: neither form, or a key of it holds something else.
    """
    if "messages" in record:
        return [(None, to_trajectory(record))]
    if record.get("kind") == "traj":
        shown = {key: value for key, value in record.items() if key in SHARED | {"outcome"}}
        return [(None, to_trajectory({**shown, "messages": record.get("context")}))]
    if not all(isinstance(record.get(side), str) for side in ("a", "b")) or "context" not in record:
        raise DataError(
            "expected a chat log ('messages'), a trajectory (kind 'traj' with 'context') or a pair "
            f"('context', 'a', 'b'), found keys {sorted(record)[:12]}"
        )
    context = to_messages(record["context"], "context")
    return [("a", _answered(record, context, "a")), ("b", _answered(record, context, "b"))]


def _answered(record: Mapping[str, Any], context: Sequence[Message], side: Literal["a", "b"]) -> Trajectory:
    shared = {key: value for key, value in record.items() if key in SHARED}
    answer = to_trajectory({**shared, "messages": [{"role": "assistant", "content": record[side]}]})
    return answer.model_copy(update={"messages": (*context, *answer.messages)})
