"""The statistics behind ``improve``: small, exact where they can be, NaN where there is nothing to say."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Z95 = 1.959963984540054


def wilson_lower(hits: int, total: int, z: float = Z95) -> float:
    """Lower end of Wilson's interval of a share; NaN without trials."""
    if not total:
        return math.nan
    share, extra = hits / total, z * z / total
    middle = share + extra / 2
    half = z * math.sqrt((share * (1 - share) + extra / 4) / total)
    return (middle - half) / (1 + extra)


def ranks(values: Floats) -> Floats:
    """Ranks from 1, ties share their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    mean: Floats = last - (counts - 1) / 2
    return mean[inverse]


def correlation(x: Floats, y: Floats) -> float:
    """Pearson's correlation; NaN if one side does not vary."""
    a, b = x - x.mean(), y - y.mean()
    scale = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / scale if scale > 1e-12 else math.nan


def spearman(x: Floats, y: Floats) -> float:
    """Spearman's rank correlation; NaN if one side does not vary or fewer than three points."""
    return correlation(ranks(x), ranks(y)) if len(x) >= 3 else math.nan


def partial_spearman(x: Floats, y: Floats, control: Floats) -> float:
    """Spearman's correlation of x and y with ``control`` held; without it where the control does not vary."""
    xy, xz, yz = spearman(x, y), spearman(x, control), spearman(y, control)
    if math.isnan(xz) or math.isnan(yz):
        return xy
    left = (1 - xz * xz) * (1 - yz * yz)
    # Where the control explains a side fully, nothing is left that length could drive.
    return (xy - xz * yz) / math.sqrt(left) if left > 1e-12 else math.nan


def alpha(groups: Sequence[Sequence[float]]) -> float:
    """Krippendorff's alpha with interval distance; NaN if no value differs from another.

    Args:
        groups: readings of one unit each; units with a single reading are left out.
    """
    kept = [np.asarray(g, float) for g in groups if len(g) >= 2]
    n = sum(len(g) for g in kept)
    if n < 2:
        return math.nan
    observed = sum(_squares(g) / (len(g) - 1) for g in kept) / n
    expected = _squares(np.concatenate(kept)) / (n * (n - 1))
    return 1 - observed / expected if expected > 1e-15 else math.nan


def _squares(values: Floats) -> float:
    """Σ over ordered pairs of (a − b)²."""
    return float(2 * (len(values) * (values @ values) - values.sum() ** 2))


def rise_z(version: Floats, value: Floats) -> float:
    """Normal score of a rising trend: Spearman's ρ times √(n − 1); NaN if one side does not vary."""
    return spearman(version, value) * math.sqrt(max(len(version) - 1, 0))


def normal_quantile(p: float) -> float:
    """Quantile of the standard normal distribution, by bisection of ``erf``."""
    low, high = -10.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if 0.5 * (1 + math.erf(middle / math.sqrt(2))) < p else (low, middle)
    return (low + high) / 2


def bootstrap(
    clusters: Sequence[NDArray[np.int64]],
    statistic: Callable[[NDArray[np.int64]], float],
    *,
    draws: int = 200,
    seed: int = 0,
) -> tuple[float, float]:
    """The 2.5 % and 97.5 % points of a statistic over resampled clusters; NaN if it is never defined.

    Args:
        clusters: indices of the units of one task each; a task is drawn whole.
        statistic: of the drawn indices.
        draws: resamples.
        seed: of the generator.
    """
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(draws if clusters else 0):
        picked = rng.integers(0, len(clusters), len(clusters))
        value = statistic(np.concatenate([clusters[i] for i in picked]))
        if not math.isnan(value):
            found.append(value)
    if not found:
        return math.nan, math.nan
    low, high = np.quantile(found, [0.025, 0.975])
    return float(low), float(high)
