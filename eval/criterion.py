"""Agreement of a judge with the oracle, criterion by criterion; surface and relational criteria apart.

A mean over both kinds hides that small judges read words well and compare places badly. Verdicts that are not
``Scored`` are missing: they are counted by kind and never guessed, so coverage stands beside every number.
Items of one dialogue are not independent, so intervals draw whole dialogues (``group``).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from axiomrm.data.verdict import CannotAssess, Scored, Verdict
from axiomrm.eval.bootstrap import DRAWS, Array, cluster_weights, from_draws, over_seeds
from axiomrm.eval.estimate import Estimate, Value, finite, wilson

Kind = Literal["surface", "relational", "other"]
TP, FP, FN, TN = range(4)


class CriterionItem(NamedTuple):
    """One criterion on one unit: the oracle's answer and the judge's verdict."""

    criterion: str
    gold: bool | None
    """``None``: the recording does not tell; the right verdict is ``CannotAssess``."""
    verdict: Verdict
    kind: Kind = "other"
    group: str = ""
    """Dialogue that the unit belongs to; empty: its own."""


class CriterionMetrics(Value):
    """One criterion."""

    criterion: str
    kind: Kind
    n: int
    """Items with a known answer and a ``Scored`` verdict."""
    cannot_assess: int
    """Items with a known answer that the judge would not assess."""
    failed: int
    minority_share: float | None
    """Share of the rarer answer among all items with a known answer."""
    balanced_accuracy: Estimate
    kappa: Estimate
    """Cohen's kappa."""
    brier: float | None
    """Mean squared error of the verdict's value against the answer."""
    calibration_error: float | None
    """Expected calibration error over ten equal bins of the value."""
    abstention_recall: Estimate
    """Share of the items without an answer for which the judge said so."""


class CriterionReport(Value):
    """All criteria of one judge."""

    criteria: tuple[CriterionMetrics, ...]
    balanced_accuracy: dict[Kind, Estimate]
    """Mean over the criteria of a kind."""
    undefined: tuple[str, ...] = ()
    """Criteria for which only one answer occurred, so that they are in no mean."""


def criterion_report(
    items_by_seed: Sequence[Sequence[CriterionItem]],
    *,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> CriterionReport:
    """Metrics of one judge.

    Args:
        items_by_seed: held-out items, one sequence a training seed; values are means over seeds, intervals
            draw seeds and then dialogues.
        draws: bootstrap samples.
        confidence: of all intervals.
        seed: of the draws.
    """
    rng = np.random.default_rng(seed)
    runs = [_Counts(items, draws, rng) for items in items_by_seed if items]
    names = list(dict.fromkeys(item.criterion for items in items_by_seed for item in items))
    kinds = {item.criterion: item.kind for items in items_by_seed for item in items}
    everything = [item for items in items_by_seed for item in items]
    criteria = tuple(_one(name, kinds[name], everything, runs, rng, confidence) for name in names)
    defined = [m for m in criteria if m.balanced_accuracy.value is not None]
    macro = {
        kind: _macro([m for m in defined if m.kind == kind], runs, rng, confidence)
        for kind in dict.fromkeys(m.kind for m in criteria)
    }
    undefined = tuple(m.criterion for m in criteria if m.balanced_accuracy.value is None)
    return CriterionReport(criteria=criteria, balanced_accuracy=macro, undefined=undefined)


def balanced_accuracy(confusion: Array) -> Array:
    """Mean of the two recalls, from ``(…, 4)`` counts TP, FP, FN, TN; NaN where an answer does not occur."""
    with np.errstate(invalid="ignore", divide="ignore"):
        yes = confusion[..., TP] / (confusion[..., TP] + confusion[..., FN])
        no = confusion[..., TN] / (confusion[..., TN] + confusion[..., FP])
    return np.asarray((yes + no) / 2, dtype=float)


def cohen_kappa(confusion: Array) -> Array:
    """Agreement beyond chance, from ``(…, 4)`` counts; NaN where chance agreement is certain."""
    total = confusion.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = (confusion[..., TP] + confusion[..., TN]) / total
        said = (confusion[..., TP] + confusion[..., FP]) / total
        true = (confusion[..., TP] + confusion[..., FN]) / total
        chance = said * true + (1 - said) * (1 - true)
        return np.asarray(np.where(chance < 1, (observed - chance) / (1 - chance), np.nan), dtype=float)


class _Counts:
    """Confusion counts of one seed: whole, and in each bootstrap draw of its dialogues."""

    def __init__(self, items: Sequence[CriterionItem], draws: int, rng: np.random.Generator) -> None:
        groups = {g: i for i, g in enumerate(dict.fromkeys(_group(i, item) for i, item in enumerate(items)))}
        self.column = {c: i for i, c in enumerate(dict.fromkeys(item.criterion for item in items))}
        counts = np.zeros((len(groups), len(self.column), 4))
        for number, item in enumerate(items):
            if item.gold is not None and isinstance(item.verdict, Scored):
                cell = _cell(item.gold, item.verdict.value >= 0.5)
                counts[groups[_group(number, item)], self.column[item.criterion], cell] += 1
        self.whole = counts.sum(axis=0)
        weights = cluster_weights(len(groups), draws, rng)
        self.drawn = (weights @ counts.reshape(len(groups), -1)).reshape(draws, len(self.column), 4)
        self.groups = (counts.sum(axis=2) > 0).sum(axis=0)
        """Dialogues with a usable item, by criterion."""


def _group(number: int, item: CriterionItem) -> str:
    return item.group or f"#{number}"


def _cell(gold: bool, said: bool) -> int:
    if gold:
        return TP if said else FN
    return FP if said else TN


def _one(
    name: str,
    kind: Kind,
    everything: Sequence[CriterionItem],
    runs: Sequence[_Counts],
    rng: np.random.Generator,
    confidence: float,
) -> CriterionMetrics:
    items = [item for item in everything if item.criterion == name]
    known = [item for item in items if item.gold is not None]
    scored = [(item.gold, item.verdict.value) for item in known if isinstance(item.verdict, Scored)]
    unsure = sum(isinstance(item.verdict, CannotAssess) for item in known)
    positives = sum(bool(item.gold) for item in known)
    having = [run for run in runs if name in run.column]
    missing = len(known) - len(scored)

    def estimate(metric: str) -> Estimate:
        return _estimate(metric, name, having, rng, confidence=confidence, n=len(scored), missing=missing)

    gold, value = np.array([g for g, _ in scored], dtype=float), np.array([v for _, v in scored], dtype=float)
    return CriterionMetrics(
        criterion=name,
        kind=kind,
        n=len(scored),
        cannot_assess=unsure,
        failed=missing - unsure,
        minority_share=min(positives, len(known) - positives) / len(known) if known else None,
        balanced_accuracy=estimate("balanced_accuracy"),
        kappa=estimate("kappa"),
        brier=finite(float(np.mean((value - gold) ** 2))) if scored else None,
        calibration_error=calibration_error(gold, value) if scored else None,
        abstention_recall=_abstention(items, confidence),
    )


def _estimate(
    metric: str,
    name: str,
    runs: Sequence[_Counts],
    rng: np.random.Generator,
    *,
    confidence: float,
    n: int,
    missing: int,
) -> Estimate:
    of = balanced_accuracy if metric == "balanced_accuracy" else cohen_kappa
    if not n:
        return Estimate(value=None, missing=missing, confidence=confidence)
    value = float(np.mean([of(run.whole[run.column[name]]) for run in runs]))
    sampled = over_seeds([of(run.drawn[:, run.column[name]]) for run in runs], rng)
    units = max(int(run.groups[run.column[name]]) for run in runs)
    found = from_draws(
        value, sampled, n=n, missing=missing, confidence=confidence, units=units, unit=_unit(runs)
    )
    if found.value == 1.0 and metric == "balanced_accuracy":
        return _without_errors(found, [run.whole[run.column[name]] for run in runs], confidence)
    return found


def _without_errors(found: Estimate, confusions: Iterable[Array], confidence: float) -> Estimate:
    """A perfect score: every draw is perfect too, so the lower end comes from Wilson on each answer."""
    total = np.sum(list(confusions), axis=0)
    yes = wilson(total[TP], int(total[TP] + total[FN]), confidence=confidence).low
    no = wilson(total[TN], int(total[TN] + total[FP]), confidence=confidence).low
    low = None if yes is None or no is None else (yes + no) / 2
    return found.model_copy(update={"low": low, "high": 1.0, "method": "wilson, no error seen"})


def _macro(
    metrics: Sequence[CriterionMetrics], runs: Sequence[_Counts], rng: np.random.Generator, confidence: float
) -> Estimate:
    """Mean over criteria, one draw of dialogues for all of them."""
    names = {m.criterion for m in metrics}
    values = [m.balanced_accuracy.value for m in metrics if m.balanced_accuracy.value is not None]
    n, missing = sum(m.n for m in metrics), sum(m.cannot_assess + m.failed for m in metrics)
    if not values:
        return Estimate(value=None, n=n, missing=missing, confidence=confidence)
    sampled = [
        balanced_accuracy(run.drawn[:, [c for name, c in run.column.items() if name in names]]).mean(axis=1)
        for run in runs
        if names & run.column.keys()
    ]
    units = max(int(run.groups.max()) for run in runs)
    found = from_draws(
        float(np.mean(values)),
        over_seeds(sampled, rng),
        n=n,
        missing=missing,
        confidence=confidence,
        units=units,
        unit=_unit(runs),
    )
    if found.value == 1.0:
        lows = [m.balanced_accuracy.low for m in metrics if m.balanced_accuracy.low is not None]
        return found.model_copy(update={"low": min(lows, default=None), "method": "wilson, no error seen"})
    return found


def _unit(runs: Sequence[_Counts]) -> str:
    return "dialogues" if len(runs) == 1 else "seeds and dialogues"


def _abstention(items: Iterable[CriterionItem], confidence: float) -> Estimate:
    without = [item.verdict.status for item in items if item.gold is None]
    counts = Counter(without)
    decided = counts["cannot_assess"] + counts["scored"]
    return wilson(counts["cannot_assess"], decided, missing=counts["failed"], confidence=confidence)


def calibration_error(gold: Array, value: Array, bins: int = 10) -> float:
    """Mean over items of the gap between value and frequency in the item's bin (equal bins over [0, 1])."""
    which = np.minimum((value * bins).astype(int), bins - 1)
    gaps = [
        abs(value[which == b].mean() - gold[which == b].mean()) * (which == b).sum() for b in np.unique(which)
    ]
    return float(sum(gaps) / value.size)
