"""One item's verdicts → lo, hi and point: what is known, and what still might be.

``Scored(v)`` → all three are v, but lo and hi are the ends of its interval where a calibrator gave one.
``CannotAssess`` → lo 0, hi 1, point = the worst value (0; for a penalty 1), or absent under ``skip``.
``Failed``, or no verdict at all → lo 0, hi 1, point absent: a failure is never a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.rubrics.bind import ActiveItem
from axiomrm.rubrics.model import Reduce

AnyVerdict = Scored | CannotAssess | Failed
SLACK = 1e-9
"""A share that equals its bound up to rounding reaches it."""
MISSING = Failed(kind="incomplete", detail="no verdict was given")


@dataclass(frozen=True)
class Reading:
    """Bounds and point of one item."""

    lo: float
    hi: float
    point: float | None
    scored: float
    """Share that is Scored: 0 or 1, or the share of Scored turns."""


def read(verdict: AnyVerdict, item: ActiveItem) -> Reading:
    """Reading of one verdict."""
    if isinstance(verdict, Scored):
        value = verdict.value
        low, high = verdict.interval or (value, value)
        return Reading(min(low, value), max(high, value), value, 1.0)
    if isinstance(verdict, CannotAssess) and item.on_cannot_assess == "worst":
        return Reading(0.0, 1.0, worst(item), 0.0)
    return Reading(0.0, 1.0, None, 0.0)


def worst(item: ActiveItem) -> float:
    """0, or 1 for a penalty."""
    return 1.0 if item.polarity == "penalty" else 0.0


def read_turns(
    verdicts: Sequence[AnyVerdict | None], item: ActiveItem, turn_min_coverage: float
) -> Reading | None:
    """Reading of a turn item over a trajectory.

    Args:
        verdicts: one a turn; ``None``: the item did not apply there.
        item: with ``evidence.reduce``.
        turn_min_coverage: with fewer Scored turns than this share, the point is absent.

    Returns:
        ``None`` if it applied at no turn and ``if_never`` is ``skip``.
    """
    readings = [read(v, item) for v in verdicts if v is not None]
    if not readings:
        known = worst(item)
        return Reading(known, known, known, 1.0) if item.evidence.if_never == "worst" else None
    how = item.evidence.reduce or "mean"
    share = fsum(r.scored for r in readings) / len(readings)
    points = [r.point for r in readings if r.point is not None]
    point = reduce_values(points, how) if points and share >= turn_min_coverage - SLACK else None
    if how == "last" and readings[-1].point is None:
        point = None
    lo = reduce_values([r.lo for r in readings], how)
    return Reading(lo, reduce_values([r.hi for r in readings], how), point, share)


def reduce_values(values: Sequence[float], how: Reduce) -> float:
    """``any`` = max, ``all`` = min, ``last`` = the last one."""
    if how in ("max", "any"):
        return max(values)
    if how in ("min", "all"):
        return min(values)
    return values[-1] if how == "last" else fsum(values) / len(values)
