"""Tools that lie: the same call in the same state, answered differently.

The state before a call is ``state_key`` where the environment told it, then all rollouts of a group count.
Without one, only a call that is repeated at once, with no other call in between, can be held against a tool.
Calls that ended in an error or have no answer are left out, because a time-out is no answer; they may have
changed something all the same, so what follows is not repeated at once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from axiomrm.data.tool_calls import CallRef, link_results
from axiomrm.data.trajectory import ToolCall, Trajectory, canonical_json
from axiomrm.policy_opt.rollouts.state_keys import anchor

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
    known: dict[tuple[str, str | int, int, str], _Answer] = {}
    found: dict[str, LyingTool] = {}
    for place, trajectory in enumerate(trajectories):
        run, last = 0, ""
        for state, answer in _answers(trajectory):
            if answer is None:
                run, last = run + 1, ""
                continue
            # A run of equal calls shares one key; another call, which may write, begins a new one.
            run += answer.call != last
            last = answer.call
            scope = ("run", place, run) if state is None else ("state", trajectory.group, state)
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


def _answers(trajectory: Trajectory) -> Iterator[tuple[int | None, _Answer | None]]:
    """State before each call (``None``: unknown, or it is not alone in its turn) and its answer (``None``: it
    failed or has none)."""
    infos = list(trajectory.metadata.get("turns", ()))
    states = [trajectory.metadata.get("reset", {}).get("state_key"), *(i.get("state_key") for i in infos)]
    results = {ref: i for i, ref in link_results(trajectory.messages).items()}
    for turn in trajectory.turns:
        error = infos[turn.index].get("error_kind") if turn.index < len(infos) else None
        calls = turn.action.tool_calls
        state = anchor(states[turn.index]) if turn.index < len(states) and len(calls) == 1 else None
        for slot, call in enumerate(calls):
            place = results.get(CallRef(turn.start, slot))
            text = "error" if place is None else trajectory.messages[place].content
            if error is not None or text.startswith("error"):
                yield state, None
            else:
                yield state, _answer(call, text, f"{trajectory.id} t{turn.index + 1}")


def _answer(call: ToolCall, text: str, where: str) -> _Answer:
    arguments = canonical_json(call.arguments)
    return _Answer(f"{call.name} {arguments}", call.name, arguments, text, where)
