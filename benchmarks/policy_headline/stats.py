"""Numbers over runs with intervals: stratified bootstrap (arXiv:2108.13264), the strata are the arms.

In every draw each arm's runs are drawn with replacement from that arm alone, then the statistic is computed
from all of them, so a ratio whose numerator is "the better of two arms" chooses again in every draw.
Censored runs count with their budget (restricted mean) or, where only the order matters, as later than every
run that crossed and equal to each other.
"""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from axiomrm.eval.bootstrap import from_draws
from axiomrm.eval.estimate import NOT_MEASURED, Estimate
from policy_headline.curves import Reached

Array = NDArray[np.float64]
Statistic = Callable[[Mapping[str, Array]], Array]
"""Of ``(..., runs)`` an arm to ``(...)``."""
DRAWS = 10_000


def stratified(
    values: Mapping[str, Sequence[float]], statistic: Statistic, *, draws: int = DRAWS, seed: int = 0
) -> Estimate:
    """``statistic`` of the arms' values, each arm's runs drawn with replacement.

    Args:
        values: one number a run, by arm; NaN is left out.
        statistic: of a non-empty array an arm.
        draws: bootstrap samples.
        seed: of the draws.

    Returns:
        Not measured if an arm has no run; without an interval below two runs an arm.
    """
    arrays = {
        arm: np.array([v for v in runs if not math.isnan(v)], dtype=float) for arm, runs in values.items()
    }
    sizes = [a.size for a in arrays.values()]
    if not sizes or min(sizes) == 0:
        return NOT_MEASURED
    rng = np.random.default_rng(seed)
    sampled = statistic({arm: a[rng.integers(a.size, size=(draws, a.size))] for arm, a in arrays.items()})
    return from_draws(
        float(statistic(arrays)),
        np.asarray(sampled, dtype=float),
        n=sum(sizes),
        missing=sum(map(len, values.values())) - sum(sizes),
        confidence=0.95,
        units=min(sizes),
        unit="runs of each arm",
    )


def iqm(values: Array) -> Array:
    """Interquartile mean over the last axis: a quarter is cut at both ends, rounded down."""
    n = values.shape[-1]
    cut = n // 4
    return np.asarray(np.sort(values, axis=-1)[..., cut : n - cut].mean(axis=-1))


def mean_of(arm: str) -> Statistic:
    """Mean (of times with censored ones at the budget: the restricted mean)."""
    return lambda found: np.asarray(found[arm].mean(axis=-1))


def iqm_of(arm: str) -> Statistic:
    """Interquartile mean."""
    return lambda found: iqm(found[arm])


def ratio(rivals: Sequence[str], arm: str) -> Statistic:
    """Restricted mean of the best rival over that of ``arm``: above 1 where ``arm`` needs fewer rollouts."""

    def statistic(found: Mapping[str, Array]) -> Array:
        best = np.min([found[rival].mean(axis=-1) for rival in rivals], axis=0)
        return np.asarray(best / found[arm].mean(axis=-1))

    return statistic


def difference(arm: str, other: str) -> Statistic:
    """Interquartile mean of ``arm`` minus that of ``other``."""
    return lambda found: iqm(found[arm]) - iqm(found[other])


def better(arm: str, other: str) -> Statistic:
    """Probability that a run of ``arm`` takes less than one of ``other`` (2108.13264); ties count a half."""

    def statistic(found: Mapping[str, Array]) -> Array:
        own, theirs = found[arm][..., :, None], found[other][..., None, :]
        return np.asarray((own < theirs).mean(axis=(-2, -1)) + 0.5 * (own == theirs).mean(axis=(-2, -1)))

    return statistic


def order(times: Sequence[Reached]) -> list[float]:
    """Times for comparing ranks: censored runs are later than all others."""
    return [math.inf if t.censored else t.rollouts for t in times]


def median_text(times: Sequence[Reached]) -> str:
    """Median with what censoring allows to say: ``> 768`` where the median run never crossed."""
    if not times:
        return "not measured"
    ordered = sorted(order(times))
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    if math.isinf(high):
        return f"> {max(t.rollouts for t in times) if math.isinf(low) else low:g}"
    return f"{(low + high) / 2:g}"
