"""Behavioural metrics of one rollout, from the environment's records alone: they also judge the judge.

``None`` = no opportunity (no call, no error), never 0; means over rollouts leave it out. Read from
``trajectory.metadata["turns"]`` as the rollout writes it: ``error_kind``, ``state_key`` and
``metrics["expected_tools"]``, the tools an oracle would call in the state *after* the turn.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from axiomrm.data.trajectory import Trajectory, canonical_json

SLACK = 1e-9
"""How far an outcome may lie below a threshold that it reaches, for sums that round."""
SOLVED = 1.0 - SLACK
RECOVERY_TURNS = 2
ARGUMENT_ERRORS = frozenset({"bad_call", "bad_json", "schema", "format", "no"})
"""Kinds of error observations about the call itself: unreadable, ill-formed, or naming something unknown."""


def behaviour(trajectory: Trajectory, *, threshold: float = SOLVED) -> dict[str, float | None]:
    """Success, length and rates of one rollout."""
    infos = list(trajectory.metadata.get("turns", ()))
    outcome = trajectory.outcome.score if trajectory.outcome else None
    turns = len(trajectory.turns)
    tokens = trajectory.metadata.get("action_tokens")
    success = None if outcome is None else float(outcome >= threshold)
    return {
        "success": success,
        "turns": float(turns),
        "action_tokens": None if tokens is None else float(tokens),
        "turns_if_solved": float(turns) if success == 1.0 else None,
        "redundant_step_rate": redundant_step_rate(trajectory, infos),
        "wrong_tool_rate": wrong_tool_rate(trajectory, infos),
        "argument_error_rate": argument_error_rate(trajectory, infos),
        "recovery_rate": recovery_rate(trajectory, infos),
    }


def redundant_step_rate(trajectory: Trajectory, infos: Sequence[Mapping[str, Any]]) -> float | None:
    """Tool turns that repeat an earlier call (tool, canonical arguments) in an unchanged state / tool turns.

    Without ``state_key`` the state counts as unchanged.
    """
    states = _states_before(trajectory, infos)
    seen: dict[str, Any] = {}
    repeated = tool_turns = 0
    for turn, before, after in zip(trajectory.turns, states, states[1:], strict=False):
        if not turn.action.tool_calls:
            continue
        tool_turns += 1
        keys = [canonical_json([c.name, c.arguments, c.raw_arguments]) for c in turn.action.tool_calls]
        repeated += all(key in seen and seen[key] == before for key in keys)
        # What the call left behind: the same call in that very state can tell nothing new.
        seen |= dict.fromkeys(keys, after)
    return repeated / tool_turns if tool_turns else None


def _states_before(trajectory: Trajectory, infos: Sequence[Mapping[str, Any]]) -> list[Any]:
    reset = trajectory.metadata.get("reset", {})
    return [reset.get("state_key"), *(info.get("state_key") for info in infos)]


def wrong_tool_rate(trajectory: Trajectory, infos: Sequence[Mapping[str, Any]]) -> float | None:
    """Calls of a tool outside the oracle's set for that state / calls whose oracle set is known."""
    before = [trajectory.metadata.get("reset", {}), *infos]
    wrong: list[bool] = []
    for turn, info in zip(trajectory.turns, before, strict=False):
        expected = info.get("metrics", {}).get("expected_tools")
        if expected is not None:
            wrong += [call.name not in expected for call in turn.action.tool_calls]
    return _share(wrong)


def argument_error_rate(trajectory: Trajectory, infos: Sequence[Mapping[str, Any]]) -> float | None:
    """Calling turns answered with an error about the call's own form / calling turns."""
    bad = []
    for turn, info in zip(trajectory.turns, infos, strict=False):
        unreadable = info.get("error_kind") == "bad_call"
        if turn.action.tool_calls or unreadable:
            bad.append(info.get("error_kind") in ARGUMENT_ERRORS or info.get("assessment") == "bad_call")
    return _share(bad)


def recovery_rate(trajectory: Trajectory, infos: Sequence[Mapping[str, Any]]) -> float | None:
    """Errors followed within two turns by a successful call of the same tool / errors.

    A call that could not even be read counts as recovered by any successful call.
    """
    turns = trajectory.turns
    recovered = []
    for i, info in enumerate(infos[: len(turns)]):
        if info.get("error_kind") is None or info["error_kind"] in ("token_limit", "env_error"):
            continue
        names = {call.name for call in turns[i].action.tool_calls}
        later = range(i + 1, min(i + 1 + RECOVERY_TURNS, len(turns), len(infos)))
        recovered.append(
            any(
                infos[j].get("error_kind") is None
                and any(not names or call.name in names for call in turns[j].action.tool_calls)
                for j in later
            )
        )
    return _share(recovered)


def behaviour_means(rollouts: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """Mean over rollouts of each metric; ``None`` where no rollout had an opportunity."""
    names = dict.fromkeys(name for rollout in rollouts for name in rollout)
    known = {n: [v for r in rollouts if (v := r.get(n)) is not None] for n in names}
    return {name: float(np.mean(values)) if values else None for name, values in known.items()}


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
