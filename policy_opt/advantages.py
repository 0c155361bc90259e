"""Critic-free advantages: baseline ladder, scaling, mixing and calibration (POLICY.md sections 5 and 6).

Order matters: return first, baseline second. Centring rewards per turn and then summing them has the wrong
sign where the policy decides when to stop (verl#7244). Everything in a baseline is independent of the
action given its state: the leave-one-out mean skips the whole own trajectory, the running statistic is
older than the batch.

Deviations, numbered: (1) the first batch has no running scale yet and uses its own standard deviation; where
it has none either, because one trajectory alone has a value, the declared range stands for it; (2) a judge
that gives a whole informative group one and the same mean counts there as discrimination 0, not as undefined.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axiomrm.errors import DataError

FloatArray = NDArray[np.float64]
Scale = Literal["none", "batch", "group"]
CLIP = 3.0
"""Greatest absolute advantage that is trained on."""
ZERO = 1e-6
"""Absolute advantage from which a step teaches anything: below is rounding."""
FLOOR_SHARE = 0.05
"""Least scale, as a share of the declared reward range."""


class LeaveOneOut(NamedTuple):
    """Baseline ingredients, one entry a value."""

    mean: FloatArray
    """Mean of the other members; NaN where there are none."""
    m: NDArray[np.int64]
    """Members of the group that served, the own one included; 1 = nobody else."""
    level: NDArray[np.int64]
    """Which ladder level served; -1 = none."""


def check_rewards(values: Sequence[float], place: str = "reward") -> None:
    """NaN is missing and fine; an infinite reward is nobody's judgement.

    Raises:
        DataError: naming the first infinite index.
    """
    for index, value in enumerate(values):
        if np.isinf(value):
            raise DataError(f"{place} {index}: {value!r} is not finite; a missing reward is NaN or None")


def leave_one_out(
    values: Sequence[float] | FloatArray,
    owners: Sequence[Hashable],
    levels: Sequence[Sequence[Hashable | None]],
) -> LeaveOneOut:
    """Mean of the other trajectories in the first ladder level where a value has company.

    Args:
        values: returns; NaN = missing (in nobody's mean, and gets no entry of its own).
        owners: the trajectory of each value; a trajectory never serves its own baseline.
        levels: group keys of each value, finest level first; ``None`` = not in this level.
    """
    array = np.asarray(values, dtype=np.float64)
    check_rewards(array.tolist())
    mean = np.full(len(array), np.nan)
    m = np.ones(len(array), dtype=np.int64)
    served = np.full(len(array), -1, dtype=np.int64)
    for depth, keys in enumerate(levels):
        groups: dict[Hashable, list[int]] = defaultdict(list)
        for i, key in enumerate(keys):
            if key is not None and not np.isnan(array[i]):
                groups[key].append(i)
        for members in groups.values():
            for i in members:
                others = [j for j in members if owners[j] != owners[i]]
                if others and served[i] < 0:
                    mean[i], m[i], served[i] = array[others].mean(), len(others) + 1, depth
    return LeaveOneOut(mean, m, served)


def shrink(loo: float, m: int, b_ema: float, kappa: float) -> float:
    """Baseline of one value: leave-one-out mean shrunk to the running statistic.

    ``(m-1)/(m-1+kappa) * loo + kappa/(m-1+kappa) * b_ema``; a singleton gets ``b_ema`` alone (not 0 and not
    its raw reward), no ``b_ema`` yet gives ``loo`` alone, neither gives NaN: the step is not drawn.
    """
    if m < 2 or np.isnan(loo):
        return b_ema
    if np.isnan(b_ema) or kappa == 0:
        return loo
    return ((m - 1) * loo + kappa * b_ema) / (m - 1 + kappa)


def per_owner_std(values: Sequence[float] | FloatArray, owners: Sequence[Hashable]) -> float:
    """Standard deviation with every trajectory weighing the same, NaN-aware; NaN below two trajectories.

    Pooling steps would weigh long, usually failing, trajectories more, and the steps of a single one, which
    share its outcome, would make a deviation of 0.
    """
    array = np.asarray(values, dtype=np.float64)
    keep = ~np.isnan(array)
    counts = Counter(owner for owner, known in zip(owners, keep, strict=True) if known)
    if len(counts) < 2:
        return float("nan")
    weights = np.array([1.0 / counts[o] if k else 0.0 for o, k in zip(owners, keep, strict=True)])[keep]
    centre = np.average(array[keep], weights=weights)
    return float(np.sqrt(np.average((array[keep] - centre) ** 2, weights=weights)))


def scaled(raw: float, sigma: float, reward_range: float) -> float:
    """``raw`` over its scale, which is at least `FLOOR_SHARE` of the declared reward range; over the whole
    range where no scale is known (NaN), so that an unknown scale is not the strongest signal of all."""
    return raw / (reward_range if np.isnan(sigma) else max(sigma, FLOOR_SHARE * reward_range))


def zero_share(advantages: Sequence[float] | FloatArray) -> float:
    """Share of the known advantages that are 0 up to rounding; NaN if none is known."""
    known = [abs(value) for value in advantages if not np.isnan(value)]
    return float(np.mean([value < ZERO for value in known])) if known else float("nan")


def mix(a_global: float, a_local: float, *, alpha: float, beta_eff: float) -> float:
    """Weighted sum of both advantages, clipped at ±`CLIP`.

    A missing term, or one without weight, is left out; nothing left = NaN: the step is not drawn.
    """
    terms = [w * a for w, a in ((alpha, a_global), (beta_eff, a_local)) if w > 0 and not np.isnan(a)]
    return float(np.clip(sum(terms), -CLIP, CLIP)) if terms else float("nan")


def group_advantages(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    *,
    kappa: float = 0.0,
    b_ema: float = float("nan"),
    scale: Scale = "none",
    reward_range: float = 1.0,
) -> FloatArray:
    """Leave-one-out advantages of one return a trajectory (RLOO at the defaults).

    Returns:
        One a reward. NaN where the reward is missing, or where a singleton has no running statistic: not
        drawn.
    """
    loo = leave_one_out(rewards, list(range(len(rewards))), [groups])
    raw = np.array(
        [r - shrink(b, int(m), b_ema, kappa) for r, b, m in zip(rewards, loo.mean, loo.m, strict=True)],
        dtype=np.float64,
    )
    if scale == "none":
        return raw
    if scale == "batch":
        sigma = per_owner_std(raw, list(range(len(raw))))
        return np.array([scaled(a, sigma, reward_range) for a in raw])
    out = raw.copy()
    for key in set(groups):
        rows = [i for i, g in enumerate(groups) if g == key and not np.isnan(raw[i])]
        if len(rows) > 1:
            out[rows] = raw[rows] / (np.std(np.asarray(rewards, dtype=np.float64)[rows], ddof=1) + 1e-4)
    return out


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Rank correlation with tied ranks averaged; 0 where one side does not vary."""
    ranks_a, ranks_b = _ranks(np.asarray(a, dtype=np.float64)), _ranks(np.asarray(b, dtype=np.float64))
    if np.ptp(ranks_a) == 0 or np.ptp(ranks_b) == 0:
        return 0.0
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _ranks(values: FloatArray) -> FloatArray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: FloatArray = (last - (counts - 1) / 2.0)[inverse]
    return middle


def group_discrimination(judge_means: Sequence[float], outcomes: Sequence[float]) -> float:
    """Does the judge's trajectory mean rank this group's outcomes? NaN if the outcome does not vary."""
    pairs = [(j, o) for j, o in zip(judge_means, outcomes, strict=True) if not (np.isnan(j) or np.isnan(o))]
    if len({o for _, o in pairs}) < 2:
        return float("nan")
    return spearman([j for j, _ in pairs], [o for _, o in pairs])


def effective_beta(beta: float, disc: float, full_at: float = 0.2) -> float:
    """``beta * clip(disc / full_at, 0, 1)``: at discrimination 0 training is outcome-only."""
    return beta * float(np.clip(disc / full_at, 0.0, 1.0))
