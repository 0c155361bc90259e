"""Tools that lie: the same call in the same state, answered differently.

The state before a call is ``state_key`` where the environment told it, then all rollouts of a group count.
Without one, only a call that is repeated at once, with no other call in between, can be held against a tool.
Calls that ended in an error are left out: a time-out is no answer.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from axiomrm.data.tool_calls import CallRef, link_results
from axiomrm.data.trajectory import ToolCall, Trajectory, canonical_json

SHOWN = 120
"""Characters of an answer that are kept."""


class LyingTool(BaseModel):
    """Two answers to one call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tool: str
    arguments: str
    """Canonical JSON."""
    answers: tuple[str, str]
    where: tuple[str, str]
    """``trajectory id, t<turn>`` of each."""


class _Answer(NamedTuple):
    call: str
    """Canonical tool and arguments."""
    tool: str
    arguments: str
    text: str
    where: str


def lying_tools(trajectories: Sequence[Trajectory]) -> list[LyingTool]:
    """One finding a call that was answered differently, in the order they are met."""
    known: dict[tuple[str, ...], _Answer] = {}
    found: dict[str, LyingTool] = {}
    for trajectory in trajectories:
        repeat = 0
        last = ""
        for state, answer in _answers(trajectory):
            # A run of equal calls shares one key; another call, which may write, begins a new one.
            repeat += answer.call != last
            last = answer.call
            task = trajectory.group
            scope = ("state", task, state) if state else ("run", trajectory.id, str(repeat))
            first = known.setdefault((*scope, answer.call), answer)
            if first.text != answer.text:
                found.setdefault(answer.call, _finding(first, answer))
    return list(found.values())


def _finding(first: _Answer, second: _Answer) -> LyingTool:
    return LyingTool(
        tool=first.tool,
        arguments=first.arguments,
        answers=(first.text[:SHOWN], second.text[:SHOWN]),
        where=(first.where, second.where),
    )


def _answers(trajectory: Trajectory) -> Iterator[tuple[str, _Answer]]:
    """State before (empty: unknown or not alone in its turn) and answer of each call without an error."""
    infos = list(trajectory.metadata.get("turns", ()))
    states = [trajectory.metadata.get("reset", {}).get("state_key"), *(i.get("state_key") for i in infos)]
    results = {ref: i for i, ref in link_results(trajectory.messages).items()}
    for turn in trajectory.turns:
        error = infos[turn.index].get("error_kind") if turn.index < len(infos) else None
        calls = turn.action.tool_calls
        for slot, call in enumerate(calls):
            place = results.get(CallRef(turn.start, slot))
            if place is None or error is not None:
                continue
            text = trajectory.messages[place].content
            if text.startswith("error"):
                continue
            state = states[turn.index] if turn.index < len(states) and len(calls) == 1 else None
            yield str(state or ""), _answer(call, text, f"{trajectory.id} t{turn.index + 1}")


def _answer(call: ToolCall, text: str, where: str) -> _Answer:
    arguments = canonical_json(call.arguments)
    return _Answer(f"{call.name} {arguments}", call.name, arguments, text, where)
