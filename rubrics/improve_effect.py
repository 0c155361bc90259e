"""What a change would do to held-out pairs: stored verdicts are re-aggregated, nothing is judged again."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from axiomrm.data.verdict import Verdict
from axiomrm.errors import DataError
from axiomrm.rubrics.aggregate import aggregate
from axiomrm.rubrics.bind import ActiveAxiom, ActiveItem, ActiveRubric
from axiomrm.rubrics.improve_faults import MIN_UNITS
from axiomrm.rubrics.improve_rows import Row
from axiomrm.rubrics.improve_stats import bootstrap
from axiomrm.rubrics.rubric import Rubric

MIN_PAIRS = 30


@dataclass(frozen=True)
class Accuracy:
    """Share of pairs that the rewards order as the labels (or outcomes) do; a tie of rewards is half."""

    value: float
    low: float
    """95 % interval over resampled tasks."""
    high: float
    pairs: int

    def __str__(self) -> str:
        if self.pairs < MIN_PAIRS:
            return f"too few pairs ({self.pairs})"
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}], {self.pairs} pairs"


def halves(rows: Sequence[Row]) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """Rows to look for faults in, and rows to measure effects on; a task is on one side only.

    Half of the tasks by a hash of their name; more, if half of them gives fewer than ``MIN_UNITS`` rows.
    """
    tasks: dict[str, list[Row]] = {}
    for row in rows:
        tasks.setdefault(row.task, []).append(row)
    order = sorted(tasks, key=lambda t: hashlib.sha256(t.encode("utf-8", "surrogatepass")).digest())
    taken: set[str] = set()
    count = 0
    for task in order:
        if len(taken) >= len(order) / 2 and count >= MIN_UNITS:
            break
        taken.add(task)
        count += len(tasks[task])
    return tuple(r for r in rows if r.task in taken), tuple(r for r in rows if r.task not in taken)


def rewards(rubric: Rubric, rows: Sequence[Row]) -> list[float | None]:
    """Rewards of stored verdicts under a rubric; ``None``: it abstains, or the features do not fit."""
    bound: dict[str, ActiveRubric | None] = {}
    out = []
    for row in rows:
        known = repr(sorted(row.features.items(), key=lambda e: e[0]))
        if known not in bound:
            bound[known] = _bind(rubric, row.features)
        active = bound[known]
        out.append(aggregate(active, _verdicts(active, row)).reward if active is not None else None)
    return out


def _bind(rubric: Rubric, features: Mapping[str, Any]) -> ActiveRubric | None:
    try:
        return rubric.bind(features)
    except DataError:
        return None


def _verdicts(active: ActiveRubric, row: Row) -> dict[str, Any]:
    out: dict[str, Verdict | list[Verdict | None]] = {}
    judged: tuple[ActiveItem | ActiveAxiom, ...] = (*active.items, *active.axioms)
    for item in judged:
        if item.evidence.level == "turn":
            out[item.id] = [turn.get(item.id) for turn in row.turns]
        elif item.id in row.verdicts:
            out[item.id] = row.verdicts[item.id]
    return out


def pair_accuracy(rubric: Rubric, rows: Sequence[Row]) -> Accuracy:
    """Accuracy over all pairs of conversations of one task whose labels differ."""
    return accuracy_of(rewards(rubric, rows), rows)


def accuracy_of(found: Sequence[float | None], rows: Sequence[Row]) -> Accuracy:
    """As ``pair_accuracy``, for rewards that are known."""
    tasks: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        if found[index] is not None and _truth(row) is not None:
            tasks.setdefault(row.task, []).append(index)
    right: list[float] = []
    clusters = []
    for members in tasks.values():
        start = len(right)
        for a, b in combinations(members, 2):
            truth = _sign(_truth(rows[a]), _truth(rows[b]))
            if truth:
                right.append(0.5 + 0.5 * truth * _sign(found[a], found[b]))
        if len(right) > start:
            clusters.append(np.arange(start, len(right)))
    if not right:
        return Accuracy(math.nan, math.nan, math.nan, 0)
    values = np.array(right)
    low, high = bootstrap(clusters, lambda i: float(values[i].mean()))
    return Accuracy(float(values.mean()), low, high, len(right))


def _truth(row: Row) -> float | None:
    return row.label if row.label is not None else row.outcome


def _sign(a: float | None, b: float | None) -> int:
    assert a is not None and b is not None
    return (a > b) - (a < b)
