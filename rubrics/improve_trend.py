"""Exploited criteria: the score rises over the versions of a policy while an independent view does not."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from axiomrm.rubrics.improve_faults import MIN_UNITS, Fault, Sample, order, sample
from axiomrm.rubrics.improve_rows import Row, Rows
from axiomrm.rubrics.improve_stats import Floats, normal_quantile, rise_z
from axiomrm.rubrics.model import Theorem

RISE_LEVEL = 0.01
"""Chance of a false rise over all criteria of one rubric."""
RISE_MIN = 0.1
"""Smallest rise of the mean, from the first to the last third of the versions."""


def exploited(found: Sequence[Sample], rows: Sequence[Row], everything: Rows) -> Iterator[Fault]:
    """Criteria of ``found`` that rise while the closest independent view of them stays flat."""
    bound = normal_quantile(1 - RISE_LEVEL / max(len(found), 1))
    for one in found:
        by_row: dict[int, list[float]] = {}
        for (index, _), value in sorted(one.scored.items(), key=lambda e: order(e[0])):
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
