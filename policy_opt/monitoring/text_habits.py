"""Habits of a text that earns reward without work: repetition, canned and duplicate turns, refusals."""

import re
from collections import Counter
from collections.abc import Sequence

from axiomrm.data.trajectory import Trajectory, Turn, canonical_json

GRAM = 4
"""Words of a repeated phrase."""
_REFUSAL = re.compile(
    r"\b(?:(?:i|we) (?:cannot|can't|can not|won't|am unable|are unable)|i'm (?:unable|not able)"
    r"|unable to (?:help|assist)|as an ai)\b",
    re.IGNORECASE,
)


def said(turn: Turn) -> str:
    """Text and canonical calls of an action: what makes two turns the same."""
    calls = [[call.name, call.arguments, call.raw_arguments] for call in turn.action.tool_calls]
    return canonical_json([turn.action.content, calls])


def canned_share(trajectories: Sequence[Trajectory]) -> float:
    """Share of all turns that the most frequent action takes; NaN without turns."""
    counts = Counter(said(turn) for trajectory in trajectories for turn in trajectory.turns)
    return max(counts.values()) / counts.total() if counts else float("nan")


def repeated_grams(trajectory: Trajectory) -> float:
    """Share of an agent's word 4-grams that it has said before in the dialogue; NaN without any."""
    grams = []
    for turn in trajectory.turns:
        words = turn.action.content.lower().split()
        grams += [tuple(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else float("nan")


def duplicate_turns(trajectory: Trajectory) -> float:
    """Share of turns that say and call exactly what an earlier one did; NaN without turns."""
    turns = [said(turn) for turn in trajectory.turns]
    return 1.0 - len(set(turns)) / len(turns) if turns else float("nan")


def refuses(turn: Turn) -> bool:
    """Whether the turn declines in words and calls nothing."""
    return not turn.action.tool_calls and bool(_REFUSAL.search(turn.action.content))


def calls_without_effect(trajectory: Trajectory) -> float:
    """Share of calling turns after which the environment's state is the same; NaN where states are unknown.

    Reads ``metadata["reset"]["state_key"]`` and ``metadata["turns"][t]["state_key"]``.
    """
    infos = trajectory.metadata.get("turns", ())
    if not isinstance(infos, list | tuple):
        return float("nan")
    keys = [trajectory.metadata.get("reset", {}).get("state_key"), *(info.get("state_key") for info in infos)]
    same = [
        before == after
        for turn, before, after in zip(trajectory.turns, keys, keys[1:], strict=False)
        if turn.action.tool_calls and before is not None and after is not None
    ]
    return sum(same) / len(same) if same else float("nan")
