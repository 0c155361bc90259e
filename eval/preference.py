"""Pair accuracy of a judge against human or simulated choices, with ties, whole and by subset.

A judge that ties where a person chose gets half a point, so that ties earn what a coin would. Pairs that the
person tied say nothing about accuracy and are reported apart. A pair with a missing score is missing; the
bounds say what the accuracy would be if all missing pairs were wrong, and if all were right.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from axiomrm.eval.bootstrap import DRAWS, Array, cluster_weights, from_draws, over_seeds
from axiomrm.eval.estimate import Estimate, Value, wilson


class PairItem(NamedTuple):
    """One pair: what was chosen, and what the judge scored."""

    label: Literal["a", "b", "tie"]
    score_a: float | None
    """``None`` or NaN: no verdict."""
    score_b: float | None
    subset: str = ""
    group: str = ""
    """Prompt or source that several pairs share; empty: its own."""


class PreferenceMetrics(Value):
    """One judge on one set of pairs."""

    accuracy: Estimate
    """Of the pairs with a choice; a judge's tie counts a half."""
    strict_accuracy: float | None
    """A judge's tie counts as wrong."""
    lower_bound: float | None
    """Accuracy if every missing pair were wrong."""
    upper_bound: float | None
    tie_rate: float | None
    """Share of the scored pairs with a choice that the judge ties."""
    label_ties: int
    """Pairs without a choice."""
    label_ties_found: Estimate
    """Share of those that the judge ties too."""


def credit(
    label: Literal["a", "b", "tie"], score_a: float | None, score_b: float | None, margin: float = 0.0
) -> float:
    """1 right, 0.5 the judge ties, 0 wrong; NaN if a score is missing or there was no choice."""
    if score_a is None or score_b is None or math.isnan(score_a) or math.isnan(score_b) or label == "tie":
        return float("nan")
    if abs(score_a - score_b) <= margin:
        return 0.5
    return float((score_a > score_b) == (label == "a"))


def preference_metrics(
    items_by_seed: Sequence[Sequence[PairItem]],
    *,
    margin: float = 0.0,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> PreferenceMetrics:
    """Accuracy of one judge.

    Args:
        items_by_seed: pairs, one sequence a training seed.
        margin: scores closer than this are a tie.
        draws: bootstrap samples; they draw seeds, then groups.
        confidence: of all intervals.
        seed: of the draws.
    """
    everything = [item for items in items_by_seed for item in items]
    chosen = [item for item in everything if item.label != "tie"]
    credits = np.array([credit(i.label, i.score_a, i.score_b, margin) for i in chosen])
    present = credits[~np.isnan(credits)]
    missing = credits.size - present.size
    accuracy = _accuracy(items_by_seed, margin, draws, confidence, seed, missing)
    tied = [item for item in everything if item.label == "tie"]
    agreed = np.array([credit("a", i.score_a, i.score_b, margin) for i in tied])  # 0.5 where the judge ties
    return PreferenceMetrics(
        accuracy=accuracy,
        strict_accuracy=float((present == 1).mean()) if present.size else None,
        lower_bound=float(present.sum() / credits.size) if credits.size else None,
        upper_bound=float((present.sum() + missing) / credits.size) if credits.size else None,
        tie_rate=float((present == 0.5).mean()) if present.size else None,
        label_ties=len(tied),
        label_ties_found=wilson(
            float((agreed == 0.5).sum()),
            int((~np.isnan(agreed)).sum()),
            missing=int(np.isnan(agreed).sum()),
            confidence=confidence,
        ),
    )


def by_subset(
    items_by_seed: Sequence[Sequence[PairItem]], *, margin: float = 0.0, draws: int = DRAWS, seed: int = 0
) -> dict[str, PreferenceMetrics]:
    """Metrics of each subset, in order of first appearance."""
    names = dict.fromkeys(item.subset for items in items_by_seed for item in items)
    return {
        name: preference_metrics(
            [[item for item in items if item.subset == name] for items in items_by_seed],
            margin=margin,
            draws=draws,
            seed=seed,
        )
        for name in names
    }


def _accuracy(
    items_by_seed: Sequence[Sequence[PairItem]],
    margin: float,
    draws: int,
    confidence: float,
    seed: int,
    missing: int,
) -> Estimate:
    rng = np.random.default_rng(seed)
    totals = [_by_group(items, margin) for items in items_by_seed]
    totals = [total for total in totals if len(total)]
    n = int(sum(total[:, 1].sum() for total in totals))
    if not n:
        return Estimate(value=None, missing=missing, confidence=confidence)
    value = float(np.mean([total[:, 0].sum() / total[:, 1].sum() for total in totals]))
    if value in (0.0, 1.0):
        return wilson(value * n, n, missing=missing, confidence=confidence)
    sampled = []
    for total in totals:
        drawn = cluster_weights(len(total), draws, rng) @ total
        sampled.append(drawn[:, 0] / drawn[:, 1])
    unit = "groups of pairs" if len(totals) == 1 else "seeds and groups of pairs"
    units = max(len(total) for total in totals)
    return from_draws(
        value, over_seeds(sampled, rng), n=n, missing=missing, confidence=confidence, units=units, unit=unit
    )


def _by_group(items: Sequence[PairItem], margin: float) -> Array:
    """``(groups, 2)``: summed credit and number of pairs, for groups with a scored choice."""
    totals: dict[str, list[float]] = {}
    for number, item in enumerate(items):
        points = credit(item.label, item.score_a, item.score_b, margin)
        if not math.isnan(points):
            total = totals.setdefault(item.group or f"#{number}", [0.0, 0.0])
            total[0] += points
            total[1] += 1
    return np.array(list(totals.values())).reshape(-1, 2)
