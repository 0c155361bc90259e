"""``disc``: how well scores rank outcomes within the rollouts of one task, with an interval over tasks."""

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from axiomrm.policy_opt.advantages import group_discrimination, spearman
from axiomrm.policy_opt.audit.verdict import Interval

DRAWS = 1000


def discrimination(
    groups: Sequence[str], scores: Sequence[float], outcomes: Sequence[float], *, pooled: bool, seed: int
) -> Interval:
    """How well scores rank outcomes within groups, or over all rollouts where ``pooled``.

    Args:
        groups: of each rollout.
        scores: NaN = missing.
        outcomes: NaN = missing.
        pooled: no group has two rollouts.
        seed: of the bootstrap.

    Returns:
        Without ends below two groups: one group drawn again and again is no interval.
    """
    rng = np.random.default_rng(seed)
    if pooled:
        return _pooled(scores, outcomes, rng)
    members: dict[str, list[int]] = defaultdict(list)
    for i, group in enumerate(groups):
        members[group].append(i)
    each = [
        group_discrimination([scores[i] for i in rows], [outcomes[i] for i in rows])
        for rows in members.values()
    ]
    values = np.array([value for value in each if not math.isnan(value)])
    if len(values) < 2:
        return Interval(value=float(values[0]) if len(values) else None, n=len(values))
    draws = values[rng.integers(len(values), size=(DRAWS, len(values)))].mean(axis=1)
    return _interval(float(values.mean()), draws, len(values))


def _pooled(scores: Sequence[float], outcomes: Sequence[float], rng: np.random.Generator) -> Interval:
    table = np.array([(s, o) for s, o in zip(scores, outcomes, strict=True) if not math.isnan(s + o)])
    if len(table) < 3 or np.ptp(table[:, 1]) == 0:
        return Interval(value=None, n=len(table))
    rows = rng.integers(len(table), size=(DRAWS, len(table)))
    draws = np.array([spearman(table[i, 0].tolist(), table[i, 1].tolist()) for i in rows])
    return _interval(spearman(table[:, 0].tolist(), table[:, 1].tolist()), draws, len(table))


def _interval(value: float, draws: NDArray[np.float64], n: int) -> Interval:
    low, high = np.quantile(draws, [0.025, 0.975])
    return Interval(value=value, low=float(low), high=float(high), n=n)
