"""Percentile bootstrap over items, over clusters of items, and over seeds and items; missing is only counted.

Every function takes a seed and gives the same interval for the same seed. An interval needs two units; where
all draws agree (a perfect score) the caller falls back on a Wilson interval, because [1, 1] claims too much.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from axiomrm.eval.estimate import Estimate, finite

Array = NDArray[np.float64]
Statistic = Callable[[Array], float]
DRAWS = 2000


def iqm(values: ArrayLike) -> float:
    """Interquartile mean (arXiv:2108.13264): mean after cutting a quarter at both ends, rounded down.

    NaN values are left out; NaN if nothing is left.
    """
    present = np.sort(_known(np.asarray(values, dtype=float).ravel()))
    cut = int(0.25 * present.size)
    return float(present[cut : present.size - cut].mean()) if present.size else float("nan")


def mean(values: Array) -> float:
    """Arithmetic mean; NaN of nothing."""
    return float(values.mean()) if values.size else float("nan")


def bootstrap(
    values: ArrayLike,
    statistic: Statistic = mean,
    *,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
    unit: str = "items",
) -> Estimate:
    """``statistic`` of the values, with items drawn with replacement.

    Args:
        values: ``(n,)``; NaN = missing.
        statistic: of a non-empty array without NaN.
        draws: bootstrap samples.
        confidence: of the two-sided interval.
        seed: of the draws.
        unit: what an item is, for ``method``.
    """
    everything = np.asarray(values, dtype=float)
    present = _known(everything)
    missing = everything.size - present.size
    if not present.size:
        return Estimate(value=None, missing=missing, confidence=confidence)
    sampled = item_draws(present, statistic, draws, np.random.default_rng(seed))
    return from_draws(
        statistic(present),
        sampled,
        n=present.size,
        missing=missing,
        confidence=confidence,
        units=present.size,
        unit=unit,
    )


def paired_difference(
    a: ArrayLike,
    b: ArrayLike,
    *,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
    unit: str = "items",
) -> Estimate:
    """Mean of ``a − b`` item by item; an item missing on either side is missing.

    Raises:
        ValueError: the two do not have the same length.
    """
    left, right = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if left.shape != right.shape:
        raise ValueError(
            f"paired values of shapes {left.shape} and {right.shape}; they must be the same items"
        )
    return bootstrap(left - right, draws=draws, confidence=confidence, seed=seed, unit=f"paired {unit}")


def hierarchical(
    values_by_seed: Sequence[ArrayLike],
    statistic: Statistic = mean,
    *,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
    unit: str = "items",
) -> Estimate:
    """Mean over seeds of ``statistic``; each draw picks seeds, then items within each picked seed.

    With one seed this is `bootstrap`. Seeds without any value are left out of the mean.
    """
    arrays = [np.asarray(values, dtype=float) for values in values_by_seed]
    present = [_known(array) for array in arrays]
    n, missing = (
        sum(p.size for p in present),
        sum(a.size - p.size for a, p in zip(arrays, present, strict=True)),
    )
    kept = [p for p in present if p.size]
    if not kept:
        return Estimate(value=None, missing=missing, confidence=confidence)
    rng = np.random.default_rng(seed)
    per_seed = [item_draws(p, statistic, draws, rng) for p in kept]
    return from_draws(
        float(np.mean([statistic(p) for p in kept])),
        over_seeds(per_seed, rng),
        n=n,
        missing=missing,
        confidence=confidence,
        units=max(len(kept), *(p.size for p in kept)),
        unit=unit if len(kept) == 1 else f"seeds and {unit}",
    )


def item_draws(present: Array, statistic: Statistic, draws: int, rng: np.random.Generator) -> Array:
    """``(draws,)`` values of ``statistic`` on items drawn with replacement."""
    picked = rng.integers(present.size, size=(draws, present.size))
    if statistic is mean:
        return np.asarray(present[picked].mean(axis=1), dtype=float)
    return np.array([statistic(present[row]) for row in picked])


def over_seeds(draws_by_seed: Sequence[Array], rng: np.random.Generator) -> Array:
    """Draws of the mean over seeds: seeds are picked with replacement, for each pick one of its own draws.

    Args:
        draws_by_seed: one ``(draws,)`` or ``(draws, k)`` array a seed; NaN = undefined in that draw.
        rng: source of the picks.
    """
    stacked = np.stack(list(draws_by_seed))
    seeds, draws = stacked.shape[:2]
    if seeds == 1:
        return np.asarray(stacked[0], dtype=float)
    which = rng.integers(seeds, size=(draws, seeds))
    row = rng.integers(draws, size=(draws, seeds))
    return np.asarray(stacked[which, row].mean(axis=1), dtype=float)


def cluster_weights(clusters: int, draws: int, rng: np.random.Generator) -> Array:
    """``(draws, clusters)``: how often each cluster is drawn."""
    return rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=draws).astype(float)


def from_draws(
    value: float, sampled: Array, *, n: int, missing: int, confidence: float, units: int, unit: str
) -> Estimate:
    """An estimate from bootstrap draws; draws in which the statistic was undefined (NaN) are left out.

    No interval for fewer than two ``units``, or when more than a tenth of the draws are undefined.
    """
    defined = _known(sampled)
    point = finite(value)
    estimate = Estimate(
        value=point, n=n, missing=missing, confidence=confidence, method=f"bootstrap over {unit}"
    )
    if point is None or units < 2 or defined.size < 0.9 * sampled.size:
        return estimate
    tail = (1 - confidence) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    method = estimate.method + (", all draws equal" if low == high else "")
    return estimate.model_copy(update={"low": float(low), "high": float(high), "method": method})


def _known(values: Array) -> Array:
    return values[~np.isnan(values)]
