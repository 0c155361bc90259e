"""Whether a judge's probabilities mean what they say: ECE, Brier score, NLL, reliability table.

ECE is the plug-in estimate over bins of equal count, ties kept together. It is biased upwards, the more the
fewer items stand in a bin; compare it between judges on the same items, where the bias is alike, and read the
Brier score beside it. Intervals draw groups with replacement. Each draw of the ECE is biased once more, so
its draws are shifted by the excess of their mean over the estimate.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axiomrm.errors import DataError
from axiomrm.eval.bootstrap import DRAWS, Array, cluster_weights, from_draws
from axiomrm.eval.estimate import Estimate, Value

BINS = 10
_FLOOR = 1e-12


class CalibrationItem(NamedTuple):
    """One labelled verdict."""

    predicted: float | None
    """The judge's value in [0, 1]; ``None`` or NaN: no verdict."""
    gold: float
    """The human's value in [0, 1]."""
    p_gold: float | None = None
    """Probability of the human's label; ``None``: that of a yes/no verdict with ``predicted`` for yes."""
    group: str = ""
    """Prompt or dialogue that several items share; empty: its own."""


class ReliabilityBin(Value):
    """Items with similar predictions."""

    low: float
    """Smallest prediction."""
    high: float
    n: int
    predicted: float
    """Mean."""
    gold: float
    """Mean."""


class CalibrationMetrics(Value):
    """One judge on one labelled set."""

    ece: Estimate
    brier: Estimate
    """Mean of ``(predicted - gold) ** 2``."""
    nll: Estimate
    """Mean of ``-ln p_gold``, in nats; probabilities below 1e-12 count as that."""
    mean_gold: float | None
    table: tuple[ReliabilityBin, ...]


class CalibrationChange(Value):
    """After minus before, on the items that have a verdict in both; below 0 is better."""

    ece: Estimate
    brier: Estimate
    nll: Estimate


def calibration_metrics(
    items: Sequence[CalibrationItem],
    *,
    bins: int = BINS,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> CalibrationMetrics:
    """Metrics of one judge.

    Args:
        items: labelled verdicts; those without a prediction are missing.
        bins: of the ECE and the table, at most.
        draws: bootstrap samples, over groups.
        confidence: of the intervals.
        seed: of the draws.
    """
    present = [i for i in items if _known(i)]
    missing = len(items) - len(present)
    if not present:
        none = Estimate(value=None, missing=missing, confidence=confidence)
        return CalibrationMetrics(ece=none, brier=none, nll=none, mean_gold=None, table=())
    found, weights = _Arrays(present, bins), _weights(present, draws, seed)
    drawn = _Drawn(present, weights, missing, confidence, "groups")
    return CalibrationMetrics(
        ece=drawn.estimate(found.ece, shift=True, least=0.0),
        brier=drawn.estimate(found.brier),
        nll=drawn.estimate(found.nll),
        mean_gold=float(found.gold.mean()),
        table=found.table(),
    )


def calibration_change(
    before: Sequence[CalibrationItem],
    after: Sequence[CalibrationItem],
    *,
    bins: int = BINS,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> CalibrationChange:
    """Paired differences; both sides of a draw hold the same groups.

    Args:
        before: items of one judge.
        after: the same items, in the same order, of the other.
        bins: of the ECE.
        draws: bootstrap samples.
        confidence: of the intervals.
        seed: of the draws.

    Raises:
        DataError: the two do not hold the same items.
    """
    if [(i.gold, i.group) for i in before] != [(i.gold, i.group) for i in after]:
        raise DataError("before and after must hold the same labelled items in the same order")
    both = [(b, a) for b, a in zip(before, after, strict=True) if _known(b) and _known(a)]
    missing = len(before) - len(both)
    if not both:
        none = Estimate(value=None, missing=missing, confidence=confidence)
        return CalibrationChange(ece=none, brier=none, nll=none)
    one, two = _Arrays([b for b, _ in both], bins), _Arrays([a for _, a in both], bins)
    groups = [a for _, a in both]
    drawn = _Drawn(groups, _weights(groups, draws, seed), missing, confidence, "groups, paired")
    return CalibrationChange(
        ece=drawn.estimate(lambda w: two.ece(w) - one.ece(w), shift=True),
        brier=drawn.estimate(lambda w: two.brier(w) - one.brier(w)),
        nll=drawn.estimate(lambda w: two.nll(w) - one.nll(w)),
    )


class _Drawn:
    """Items drawn by group, and the estimates on them."""

    def __init__(
        self, items: Sequence[CalibrationItem], weights: Array, missing: int, confidence: float, unit: str
    ) -> None:
        self.weights, self.missing, self.confidence, self.unit = weights, missing, confidence, unit
        self.n = len(items)
        self.units = len({i.group for i in items if i.group}) + sum(not i.group for i in items)

    def estimate(
        self, statistic: Callable[[Array], Array], *, shift: bool = False, least: float = -math.inf
    ) -> Estimate:
        """``shift``: centre the draws on the value; ``least``: the smallest value that there can be."""
        value = float(statistic(np.ones((1, self.n)))[0])
        sampled = statistic(self.weights)
        if shift:
            sampled = np.maximum(sampled - (sampled.mean() - value), least)
        return from_draws(
            value,
            sampled,
            n=self.n,
            missing=self.missing,
            confidence=self.confidence,
            units=self.units,
            unit=self.unit,
        )


class _Arrays:
    """Items as arrays; every statistic takes ``(draws, n)`` weights and gives ``(draws,)``."""

    def __init__(self, items: Sequence[CalibrationItem], bins: int) -> None:
        self.predicted = np.array([i.predicted for i in items], dtype=float)
        self.gold = np.array([i.gold for i in items], dtype=float)
        p = [i.p_gold if i.p_gold is not None else _binary(i) for i in items]
        self.loss = -np.log(np.maximum(np.array(p, dtype=float), _FLOOR))
        self.bin = equal_count_bins(self.predicted, bins)

    def ece(self, weights: Array) -> Array:
        one_hot = np.eye(self.bin.max() + 1)[self.bin]
        gaps = weights @ (one_hot * (self.predicted - self.gold)[:, None])
        return np.asarray(np.abs(gaps).sum(axis=1) / weights.sum(axis=1))

    def brier(self, weights: Array) -> Array:
        return np.asarray(weights @ (self.predicted - self.gold) ** 2 / weights.sum(axis=1))

    def nll(self, weights: Array) -> Array:
        return np.asarray(weights @ self.loss / weights.sum(axis=1))

    def table(self) -> tuple[ReliabilityBin, ...]:
        rows = []
        for b in range(self.bin.max() + 1):
            here = self.bin == b
            p, y = self.predicted[here], self.gold[here]
            rows.append(
                ReliabilityBin(
                    low=p.min(), high=p.max(), n=int(here.sum()), predicted=p.mean(), gold=y.mean()
                )
            )
        return tuple(rows)


def equal_count_bins(predicted: Array, bins: int) -> NDArray[np.int_]:
    """``(n,)``: the bin of each prediction, from 0; equal predictions share one, so there may be fewer.

    Args:
        predicted: ``(n,)``, not empty.
        bins: wanted.
    """
    _, inverse, counts = np.unique(predicted, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    wanted = np.minimum((middle * bins / predicted.size).astype(int), bins - 1)
    _, dense = np.unique(wanted, return_inverse=True)
    return np.asarray(dense[inverse].reshape(-1), dtype=np.int_)


def _weights(items: Sequence[CalibrationItem], draws: int, seed: int) -> Array:
    names = [i.group or f"\0{n}" for n, i in enumerate(items)]
    _, cluster = np.unique(names, return_inverse=True)
    return cluster_weights(int(cluster.max()) + 1, draws, np.random.default_rng(seed))[:, cluster]


def _known(item: CalibrationItem) -> bool:
    return item.predicted is not None and not math.isnan(item.predicted)


def _binary(item: CalibrationItem) -> float:
    p = item.predicted
    assert p is not None  # a missing prediction is counted and left out before
    return item.gold * p + (1 - item.gold) * (1 - p)
