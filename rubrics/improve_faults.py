"""The tests of section 11: which criteria of a rubric do no work, or the wrong one."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from axiomrm.data.verdict import CannotAssess, Scored, Verdict
from axiomrm.rubrics.improve_rows import Row, Rows
from axiomrm.rubrics.improve_stats import (
    alpha,
    bootstrap,
    partial_spearman,
    spearman,
    wilson_lower,
)
from axiomrm.rubrics.model import Theorem

MIN_UNITS = 200
DEAD_SHARE = 0.98
UNASSESSABLE_SHARE = 0.2
REDUNDANT, REDUNDANT_LOW = 0.9, 0.8
UNRELIABLE_ALPHA = 0.4
LENGTH_DRIVEN = 0.5

Kind = Literal[
    "dead", "never_applies", "unassessable", "redundant", "unreliable", "length_driven", "exploited"
]


@dataclass(frozen=True)
class Fault:
    """One finding about one criterion."""

    kind: Kind
    criterion: str
    message: str
    units: int
    other: str = ""
    """Redundant: the criterion that says the same."""
    examples: tuple[str, ...] = ()
    """Ids of conversations."""
    value: float = math.nan
    """The statistic that was compared with the bound."""


class Unit(NamedTuple):
    """One verdict on a conversation or a turn."""

    row: int
    turn: int | None
    verdict: Verdict


@dataclass(frozen=True)
class Sample:
    """The units of one criterion in some rows."""

    theorem: Theorem
    units: tuple[Unit, ...]

    @property
    def scored(self) -> dict[tuple[int, int | None], float]:
        """Row and turn → value as goodness: a penalty's turned round."""
        sign = self.theorem.polarity == "penalty"
        return {
            (u.row, u.turn): 1 - u.verdict.value if sign else u.verdict.value
            for u in self.units
            if isinstance(u.verdict, Scored)
        }


def sample(theorem: Theorem, rows: Sequence[Row]) -> Sample:
    """All verdicts on one criterion."""
    units = []
    for index, row in enumerate(rows):
        if theorem.id in row.verdicts:
            units.append(Unit(index, None, row.verdicts[theorem.id]))
        units += [
            Unit(index, t, found[theorem.id]) for t, found in enumerate(row.turns) if theorem.id in found
        ]
    return Sample(theorem, tuple(units))


def faults(theorems: Sequence[Theorem], rows: Sequence[Row], everything: Rows) -> Iterator[Fault]:
    """Findings in ``rows``.

    Args:
        theorems: active ones.
        rows: the half in which faults are looked for.
        everything: for repeated judgements and those of a second judge.
    """
    samples = {t.id: sample(t, rows) for t in theorems}
    broken: set[str] = set()
    for found in samples.values():
        for test in (_never, _unassessable, _dead):
            fault = test(found, rows)
            if fault is not None:
                broken.add(fault.criterion)
                yield fault
    alive = [s for s in samples.values() if s.theorem.id not in broken]
    merged = tuple(_redundant(alive, rows))
    yield from merged
    # What is merged away needs no advice of its own; the criterion that stays gets it.
    alive = [s for s in alive if s.theorem.id not in {fault.criterion for fault in merged}]
    for found in alive:
        for more in (_unreliable(found, rows, everything), _length(found, rows)):
            if more is not None:
                yield more
    # It needs the samples of this module, so it is imported where it is used.
    from axiomrm.rubrics.improve_trend import exploited

    yield from exploited(alive, rows, everything)


def too_few(theorems: Sequence[Theorem], rows: Sequence[Row]) -> dict[str, int]:
    """Criteria that apply somewhere, but to fewer than ``MIN_UNITS`` units."""
    counts = {t.id: len(sample(t, rows).units) for t in theorems}
    few = {name: n for name, n in counts.items() if 0 < n < MIN_UNITS}
    return few if len(rows) >= MIN_UNITS else {**counts}


def _never(found: Sample, rows: Sequence[Row]) -> Fault | None:
    if found.units or len(rows) < MIN_UNITS:
        return None
    message = f"applied to none of {len(rows)} conversations"
    return Fault("never_applies", found.theorem.id, message, len(rows), value=0.0)


def _unassessable(found: Sample, rows: Sequence[Row]) -> Fault | None:
    answered = [u for u in found.units if isinstance(u.verdict, Scored | CannotAssess)]
    missing = [u for u in answered if isinstance(u.verdict, CannotAssess)]
    if len(answered) < MIN_UNITS or len(missing) <= UNASSESSABLE_SHARE * len(answered):
        return None
    share = len(missing) / len(answered)
    message = f"could not be assessed in {len(missing)} of {len(answered)} units ({share:.0%})"
    return Fault(
        "unassessable", found.theorem.id, message, len(answered), examples=_names(missing, rows), value=share
    )


def _dead(found: Sample, rows: Sequence[Row]) -> Fault | None:
    scored = [(u, u.verdict) for u in found.units if isinstance(u.verdict, Scored)]
    if len(scored) < MIN_UNITS:
        return None
    labels = Counter(v.label or f"{v.value:g}" for _, v in scored)
    label, hits = labels.most_common(1)[0]
    low = wilson_lower(hits, len(scored))
    if low < DEAD_SHARE:
        return None
    same = [v.value for _, v in scored if (v.label or f"{v.value:g}") == label]
    mean = sum(same) / len(same)
    names = ("not met", "met") if found.theorem.polarity == "reward" else ("fault absent", "fault present")
    kind = names[mean >= 0.5]
    message = f"{kind} ({label!r}) in {hits} of {len(scored)} units; share at least {low:.1%}"
    others = [u for u, v in scored if (v.label or f"{v.value:g}") != label]
    return Fault("dead", found.theorem.id, message, len(scored), examples=_names(others, rows), value=low)


def _redundant(found: Sequence[Sample], rows: Sequence[Row]) -> Iterator[Fault]:
    places = {s.theorem.id: frozenset((u.row, u.turn) for u in s.units) for s in found}
    values = {s.theorem.id: s.scored for s in found}
    for a, b in combinations(found, 2):
        one, two = a.theorem, b.theorem
        if places[one.id] != places[two.id]:
            continue
        common = sorted(values[one.id].keys() & values[two.id].keys(), key=order)
        if len(common) < MIN_UNITS:
            continue
        x, y = (np.array([values[t.id][k] for k in common]) for t in (one, two))
        rho = spearman(x, y)
        if not rho >= REDUNDANT:
            continue
        clusters = _clusters([rows[k[0]].task for k in common])
        low, _ = bootstrap(clusters, lambda i, x=x, y=y: spearman(x[i], y[i]))  # type: ignore[misc]
        if not low >= REDUNDANT_LOW:
            continue
        keep, drop = (one, two) if one.weight >= two.weight else (two, one)
        message = f"ranks as {keep.id} does: Spearman {rho:.2f}, at least {low:.2f}, {len(common)} units"
        yield Fault("redundant", drop.id, message, len(common), keep.id, value=rho)


def _unreliable(found: Sample, rows: Sequence[Row], everything: Rows) -> Fault | None:
    groups: dict[tuple[int, int | None], list[float]] = {}
    for unit in found.units:
        if not isinstance(unit.verdict, Scored):
            continue
        values = [unit.verdict.value]
        for again in everything.repeats.get(rows[unit.row].key, ()):
            verdict = _verdict(again, found.theorem.id, unit.turn)
            values += [verdict.value] if isinstance(verdict, Scored) else []
        if len(values) >= 2:
            groups[unit.row, unit.turn] = values
    if len(groups) < MIN_UNITS:
        return None
    agreement = alpha(list(groups.values()))
    if not agreement < UNRELIABLE_ALPHA:
        return None
    spread = sorted(groups, key=lambda k: (min(groups[k]) - max(groups[k]), k[0]))
    names = tuple(dict.fromkeys(rows[k[0]].name for k in spread))[:5]
    message = f"repeated judgements agree with α = {agreement:.2f} over {len(groups)} units"
    return Fault("unreliable", found.theorem.id, message, len(groups), examples=names, value=agreement)


def _verdict(row: Row, name: str, turn: int | None) -> Verdict | None:
    if turn is None:
        return row.verdicts.get(name)
    return row.turns[turn].get(name) if turn < len(row.turns) else None


def _length(found: Sample, rows: Sequence[Row]) -> Fault | None:
    points = []
    for (index, turn), value in sorted(found.scored.items(), key=lambda e: order(e[0])):
        length = rows[index].length
        if turn is not None and turn < len(rows[index].turn_lengths):
            length = rows[index].turn_lengths[turn]
        if length is not None:
            points.append((index, value, length))
    if len(points) < MIN_UNITS:
        return None
    x, y = np.array([p[1] for p in points]), np.array([p[2] for p in points])
    known = [rows[p[0]].outcome for p in points]
    outcomes = [o for o in known if o is not None]
    full = len(outcomes) == len(points)
    rho = partial_spearman(x, y, np.array(outcomes)) if full else spearman(x, y)
    if not rho >= LENGTH_DRIVEN:
        return None
    how = "with the outcome held" if full else "outcome not recorded everywhere, so not held"
    longest = sorted(points, key=lambda p: -p[2])
    names = tuple(dict.fromkeys(rows[p[0]].name for p in longest))[:5]
    message = f"rises with length: rank correlation {rho:.2f} over {len(points)} units, {how}"
    return Fault("length_driven", found.theorem.id, message, len(points), examples=names, value=rho)


def _names(units: Sequence[Unit], rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rows[u.row].name for u in units))[:5]


def order(place: tuple[int, int | None]) -> tuple[int, int]:
    """Sort key of a row and a turn."""
    return place[0], -1 if place[1] is None else place[1]


def _clusters(tasks: Sequence[str]) -> list["np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    found: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        found.setdefault(task, []).append(index)
    return [np.array(v, dtype=np.int64) for v in found.values()]
