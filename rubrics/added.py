"""What each criterion adds to the reward of a turn."""

import math
from collections.abc import Mapping

from axiomrm.data.verdict import Scored
from axiomrm.rubrics.active import ActiveRubric
from axiomrm.rubrics.aggregate import aggregate
from axiomrm.rubrics.readings import AnyVerdict

NOTHING = Scored(value=0.0)


def added(active: ActiveRubric, verdicts: Mapping[str, AnyVerdict]) -> dict[str, float]:
    """The reward, less what it would be had the criterion given nothing (a value of 0), by item id.

    Gates, bounds and missing verdicts stay as they are, so behind a closed gate every item adds 0. Where no
    gate and no bound tells, the numbers add up to the reward (of a rubric of penalties alone, to the reward
    less 1).

    Args:
        active: the rubric at one turn.
        verdicts: by item and axiom id, as ``aggregate`` takes them.

    Returns:
        In reward units; NaN of an item without a score, and of all where there is no reward.
    """
    reward = aggregate(active, verdicts).reward
    return {
        item.id: _gap(reward, aggregate(active, {**verdicts, item.id: NOTHING}).reward)
        if isinstance(verdicts.get(item.id), Scored)
        else math.nan
        for item in active.items
    }


def _gap(reward: float | None, without: float | None) -> float:
    return math.nan if reward is None or without is None else reward - without
