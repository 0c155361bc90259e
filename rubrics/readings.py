"""One item's verdicts → lo, hi and point: what is known, and what still might be.

``Scored(v)`` → all three are v. ``CannotAssess`` → lo 0, hi 1, point = the worst value (0; for a penalty 1), or
absent under ``skip``. ``Failed``, or no verdict at all → lo 0, hi 1, point absent: a failure is never a number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.rubrics.bind import ActiveItem
from axiomrm.rubrics.model import Reduce

AnyVerdict = Scored | CannotAssess | Failed
ZERO, ONE = Fraction(0), Fraction(1)
MISSING = Failed(kind="incomplete", detail="no verdict was given")


@dataclass(frozen=True)
class Reading:
    """Bounds and point of one item, exact."""

    lo: Fraction
    hi: Fraction
    point: Fraction | None
    scored: Fraction
    """Share that is Scored: 0 or 1, or the share of Scored turns."""


def read(verdict: AnyVerdict, item: ActiveItem) -> Reading:
    """Reading of one verdict."""
    if isinstance(verdict, Scored):
        value = Fraction(verdict.value)
        return Reading(value, value, value, ONE)
    if isinstance(verdict, CannotAssess) and item.on_cannot_assess == "worst":
        return Reading(ZERO, ONE, worst(item), ZERO)
    return Reading(ZERO, ONE, None, ZERO)


def worst(item: ActiveItem) -> Fraction:
    """0, or 1 for a penalty."""
    return ONE if item.polarity == "penalty" else ZERO


def read_turns(
    verdicts: Sequence[AnyVerdict | None], item: ActiveItem, turn_min_coverage: Fraction
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
        return Reading(known, known, known, ONE) if item.evidence.if_never == "worst" else None
    how = item.evidence.reduce or "mean"
    share = sum((r.scored for r in readings), ZERO) / len(readings)
    points = [r.point for r in readings if r.point is not None]
    point = reduce_values(points, how) if points and share >= turn_min_coverage else None
    if how == "last" and readings[-1].point is None:
        point = None
    lo = reduce_values([r.lo for r in readings], how)
    return Reading(lo, reduce_values([r.hi for r in readings], how), point, share)


def reduce_values(values: Sequence[Fraction], how: Reduce) -> Fraction:
    """``any`` = max, ``all`` = min, ``last`` = the last one."""
    if how in ("max", "any"):
        return max(values)
    if how in ("min", "all"):
        return min(values)
    return values[-1] if how == "last" else sum(values, ZERO) / len(values)
