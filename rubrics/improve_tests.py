"""The tests of section 11: which criteria of a rubric do no work, or the wrong one."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np

from axiomrm.data.verdict import CannotAssess, Scored, Verdict
from axiomrm.rubrics.improve_rows import Row, Rows
from axiomrm.rubrics.improve_stats import (
    Floats,
    alpha,
    bootstrap,
    normal_quantile,
    partial_spearman,
    rise_z,
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
RISE_LEVEL = 0.01
"""Chance of a false rise over all criteria of one rubric."""
RISE_MIN = 0.1
"""Smallest rise of the mean, from the first to the last third of the versions."""

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
    yield from _redundant(alive, rows)
    for found in alive:
        for more in (_unreliable(found, rows, everything), _length(found, rows)):
            if more is not None:
                yield more
    yield from _exploited(alive, rows, everything)


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
    met = mean >= 0.5 if found.theorem.polarity == "reward" else mean < 0.5
    kind = "met" if met else "not met"
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
        common = sorted(values[one.id].keys() & values[two.id].keys(), key=_order)
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
    for (index, turn), value in sorted(found.scored.items(), key=lambda e: _order(e[0])):
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


def _exploited(found: Sequence[Sample], rows: Sequence[Row], everything: Rows) -> Iterator[Fault]:
    bound = normal_quantile(1 - RISE_LEVEL / max(len(found), 1))
    for one in found:
        by_row: dict[int, list[float]] = {}
        for (index, _), value in sorted(one.scored.items(), key=lambda e: _order(e[0])):
            by_row.setdefault(index, []).append(value)
        # One point a conversation: its turns are not independent of each other.
        points = [
            (version, sum(values) / len(values), index)
            for index, values in by_row.items()
            if (version := rows[index].version) is not None
        ]
        if len(points) < MIN_UNITS or len({p[0] for p in points}) < 2:
            continue
        versions, means = (np.array([p[i] for p in points]) for i in (0, 1))
        rise = _rise(versions, means)
        if not (rise_z(versions, means) >= bound and rise >= RISE_MIN):
            continue
        witness = _witness(one.theorem, rows, everything)
        if witness is None or not _flat(rows, witness[1]):
            continue
        last = [p for p in points if p[0] == versions.max()]
        worst = sorted(last, key=lambda p: (-p[1], witness[1].get(p[2], 0.0), p[2]))
        names = tuple(dict.fromkeys(rows[p[2]].name for p in worst))[:5]
        count = len(set(versions.tolist()))
        message = f"mean rises by {rise:.2f} over {count} policy versions while {witness[0]} does not"
        yield Fault("exploited", one.theorem.id, message, len(points), examples=names, value=rise)


def _rise(version: Floats, value: Floats) -> float:
    """Mean of the last third of the versions minus that of the first."""
    found = np.unique(version)
    third = max(1, len(found) // 3)
    return float(value[version >= found[-third]].mean() - value[version <= found[third - 1]].mean())


def _witness(
    theorem: Theorem, rows: Sequence[Row], everything: Rows
) -> tuple[str, Mapping[int, float]] | None:
    """The closest independent view that covers enough rows: a second judge, human labels, the outcome."""
    second = {}
    for index, row in enumerate(rows):
        other = everything.second.get(row.key)
        values = list(sample(theorem, [other]).scored.values()) if other is not None else []
        if values:
            second[index] = sum(values) / len(values)
    labels = {i: row.label for i, row in enumerate(rows) if row.label is not None}
    outcomes = {i: row.outcome for i, row in enumerate(rows) if row.outcome is not None}
    named = (("the second judge's mean", second), ("the human score", labels), ("the outcome", outcomes))
    for name, found in named:
        if sum(rows[i].version is not None for i in found) >= MIN_UNITS // 4:
            return name, found
    return None


def _flat(rows: Sequence[Row], values: Mapping[int, float]) -> bool:
    """Whether a witness does not rise over the versions, at the 5 % level."""
    points = [(version, v) for i, v in values.items() if (version := rows[i].version) is not None]
    z = rise_z(np.array([p[0] for p in points]), np.array([p[1] for p in points]))
    return not z >= normal_quantile(0.95)


def _names(units: Sequence[Unit], rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(rows[u.row].name for u in units))[:5]


def _order(place: tuple[int, int | None]) -> tuple[int, int]:
    return place[0], -1 if place[1] is None else place[1]


def _clusters(tasks: Sequence[str]) -> list["np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    found: dict[str, list[int]] = {}
    for index, task in enumerate(tasks):
        found.setdefault(task, []).append(index)
    return [np.array(v, dtype=np.int64) for v in found.values()]
