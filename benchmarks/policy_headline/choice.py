"""The learning rate of an arm: best on the tuning seeds, and not at the edge of what was tried."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from policy_headline.curves import auc, crossing, restricted
from policy_headline.scale import Scale

Row = dict[str, Any]


class Choice(NamedTuple):
    grid: list[float]
    """Rates to try, as far as the finished runs tell."""
    rate: float | None
    """The best; ``None``: runs are missing."""
    interior: bool
    """Whether there is a worse rate on either side."""
    score: tuple[float, float] | None
    """Of the best rate: smaller is better."""
    scores: dict[float, tuple[float, float]]
    """Of every rate with all its runs: restricted mean of rollouts to the target, and minus the mean AUC."""


def score(scale: Scale, rows: Sequence[Row]) -> tuple[float, float]:
    """What rates are compared by, smaller first: rollouts to the target, then the area."""
    times = [crossing(row, scale.target, scale.in_succession).rollouts for row in rows]
    areas = [a for a in map(auc, rows) if not math.isnan(a)]
    return restricted(times), -float(np.mean(areas)) if areas else math.inf


def choose(scale: Scale, grid: Sequence[float], found: Callable[[float], Sequence[Row] | None]) -> Choice:
    """Best rate of the grid, which grows beyond an end as long as that end is best.

    Args:
        grid: ascending.
        found: the finished runs of a rate on all tuning seeds, or ``None``.
    """
    rates = list(grid)
    for widened in range(scale.max_widenings + 1):
        rows = {rate: found(rate) for rate in rates}
        scores = {rate: score(scale, done) for rate, done in rows.items() if done is not None}
        if len(scores) < len(rates):
            return Choice(rates, None, False, None, scores)
        best = min(rates, key=lambda rate: scores[rate])
        interior = rates[0] < best < rates[-1]
        if interior or widened == scale.max_widenings:
            break
        beyond = best * scale.widen_factor if best == rates[-1] else best / scale.widen_factor
        rates = sorted([*rates, float(f"{beyond:.3g}")])
    return Choice(rates, best, interior, scores[best], scores)
