"""Verdicts → reward, with interval, coverage and gate (RUBRICS.md section 7).

W⁺, W⁻: weight of the applicable reward and penalty items; m⁺, m⁻: weighted means over items that have a
point.

    net     base = clip(m⁺ − (W⁻/W⁺)·m⁻, 0, 1);   if only penalties apply: base = 1 − m⁻
    signed  base = (W⁺·m⁺ + W⁻·(1 − m⁻)) / (W⁺ + W⁻)
    u = min(gate, base);   R = u (net),  R = u·(W⁺ + W⁻) − W⁻ (signed)

Sums are ``math.fsum``, which is rounded once: the order of items cannot matter.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum

from axiomrm.errors import DataError
from axiomrm.rubrics.aggregated import Aggregate, Contribution
from axiomrm.rubrics.bind import ActiveAxiom, ActiveItem, ActiveRubric, shares
from axiomrm.rubrics.gates import Gate, combine
from axiomrm.rubrics.readings import MISSING, SLACK, AnyVerdict, Reading, read, read_turns

__all__ = ["Aggregate", "Contribution", "Verdicts", "aggregate"]

Verdicts = Mapping[str, AnyVerdict | Sequence[AnyVerdict | None]]
"""Item or axiom id → one verdict: trajectory-level items, and any item at one turn.

Turn-level items of a whole trajectory: a list, one a turn, ``None`` where the item did not apply.
"""


@dataclass(frozen=True)
class _Row:
    item: ActiveItem
    weight: float
    reading: Reading


@dataclass(frozen=True)
class _Side:
    """One sign: total weight, weighted mean of lo, hi, and of the points."""

    total: float
    lo: float
    hi: float
    point: float | None
    pointed: float


def aggregate(active: ActiveRubric, verdicts: Verdicts) -> Aggregate:
    """Combine the verdicts of one unit.

    Args:
        active: a rubric bound to a task (trajectory), or ``active.at_turn(prefix)`` (one turn). verdicts:
        by item and axiom id, see ``Verdicts``. An id without a verdict counts as failed, never as a number.

    Returns:
        Reward, interval, coverage and gate; the reward is ``None`` with a reason where it cannot be had.

    Raises:
        DataError: a verdict for an id that this rubric does not have, or of the wrong form for its level.
    """
    _check_ids(active, verdicts)
    rows = _rows(active, verdicts)
    weights, share = shares(tuple(r.item for r in rows), active.share)
    rows = [replace(r, weight=weights[r.item.id]) for r in rows if r.item.id in weights]
    gate = combine(_axiom_verdicts(active, verdicts))
    plus = _side([r for r in rows if r.item.polarity == "reward"])
    minus = _side([r for r in rows if r.item.polarity == "penalty"])
    return _result(active, rows, plus, minus, gate, share)


def _check_ids(active: ActiveRubric, verdicts: Verdicts) -> None:
    known = {x.id for x in active.judged}
    unknown = sorted(set(verdicts) - known)
    if unknown:
        raise DataError(
            f"verdict for {unknown[0]!r}, which does not apply here; applicable: {', '.join(sorted(known))}"
        )


def _rows(active: ActiveRubric, verdicts: Verdicts) -> list[_Row]:
    rows = []
    limit = active.policy.turn_min_coverage
    for item in active.items:
        found = _listed(active, item, verdicts.get(item.id, MISSING))
        reading = read(found, item) if not isinstance(found, tuple) else read_turns(found, item, limit)
        if reading is not None:
            rows.append(_Row(item, 0.0, reading))
    return rows


def _listed(
    active: ActiveRubric, item: ActiveItem | ActiveAxiom, verdict: AnyVerdict | Sequence[AnyVerdict | None]
) -> AnyVerdict | tuple[AnyVerdict | None, ...]:
    """A tuple, one a turn, exactly for turn items of a whole trajectory."""
    many = isinstance(verdict, Sequence)
    wanted = active.level == "trajectory" and item.evidence.level == "turn"
    if many and not wanted:
        raise DataError(f"{item.id}: a list of verdicts, one verdict is needed")
    if wanted and not many:
        if verdict is MISSING:
            return (MISSING,)
        raise DataError(
            f"{item.id}: one verdict, a list with one a turn is needed (None where it does not apply)"
        )
    return tuple(verdict) if isinstance(verdict, Sequence) else verdict


def _axiom_verdicts(active: ActiveRubric, verdicts: Verdicts) -> list[tuple[ActiveAxiom, AnyVerdict]]:
    pairs: list[tuple[ActiveAxiom, AnyVerdict]] = []
    for axiom in active.axioms:
        found = _listed(active, axiom, verdicts.get(axiom.id, MISSING))
        for verdict in found if isinstance(found, tuple) else (found,):
            if verdict is not None:
                pairs.append((axiom, verdict))
    return pairs


def _side(rows: list[_Row]) -> _Side:
    total = fsum(r.weight for r in rows)
    if not total:
        return _Side(0.0, 0.0, 0.0, None, 0.0)
    lo = fsum(r.weight * r.reading.lo for r in rows) / total
    hi = fsum(r.weight * r.reading.hi for r in rows) / total
    pairs = [(r.weight, r.reading.point) for r in rows if r.reading.point is not None]
    pointed = fsum(w for w, _ in pairs)
    point = fsum(w * p for w, p in pairs) / pointed if pointed else None
    return _Side(total, lo, hi, point, pointed)


def _base(scale: str, plus: float, minus: float, w_plus: float, w_minus: float) -> float:
    if scale == "signed":
        return (w_plus * plus + w_minus * (1 - minus)) / (w_plus + w_minus)
    if not w_plus:
        return 1 - minus
    return min(1.0, max(0.0, plus - w_minus / w_plus * minus))


def _result(
    active: ActiveRubric, rows: list[_Row], plus: _Side, minus: _Side, gate: Gate, share: float
) -> Aggregate:
    scale, total = active.policy.scale, plus.total + minus.total
    coverage = fsum(r.weight * r.reading.scored for r in rows) / total if total else 0.0
    reason = _reason(active, rows, plus, minus, gate, coverage)
    base, reward, interval = _rewards(scale, plus, minus, gate)
    parts = _contributions(rows, plus, minus, scale)
    unclipped, generic, personal = _parts(parts, plus, minus, scale)
    return Aggregate(
        reward=None if reason else reward,
        interval=interval,
        coverage=coverage,
        gate=gate.point if not gate.unknown or gate.worst == gate.best else None,
        violated_axioms=gate.violated,
        contributions=tuple(c for c, _ in parts),
        reason=reason,
        base=base,
        unclipped=unclipped,
        generic=generic,
        personal=personal,
        share=share,
        assumed_axioms=gate.assumed,
        hard_violated=gate.hard_violated,
    )


def _rewards(
    scale: str, plus: _Side, minus: _Side, gate: Gate
) -> tuple[float | None, float | None, tuple[float, float]]:
    """Base, reward and interval.

    A turn item without a point can still have bounds inside (0, 1), and then the mean over the others can lie
    outside of what is possible: the base is brought to the nearest possible value.
    """
    total = plus.total + minus.total

    def outside(u: float) -> float:
        return min(plus.total, max(-minus.total, u * total - minus.total)) if scale == "signed" else u

    if not total:
        return None, None, (outside(0.0), outside(gate.best))
    low = _base(scale, plus.lo, minus.hi, plus.total, minus.total)
    high = _base(scale, plus.hi, minus.lo, plus.total, minus.total)
    interval = (outside(min(gate.worst, low)), outside(min(gate.best, high)))
    if not _has_points(plus, minus):
        return None, None, interval
    base = _base(scale, plus.point or 0.0, minus.point or 0.0, plus.total, minus.total)
    base = min(high, max(low, base))
    return base, outside(min(gate.point, base)), interval


def _has_points(plus: _Side, minus: _Side) -> bool:
    return all(side.point is not None for side in (plus, minus) if side.total)


def _reason(
    active: ActiveRubric, rows: list[_Row], plus: _Side, minus: _Side, gate: Gate, coverage: float
) -> str:
    if not rows:
        return "no applicable criterion"
    reasons = [gate.unknown] if gate.unknown else []
    limit = active.policy.min_coverage
    if coverage < limit - SLACK:
        reasons.append(f"coverage {coverage:.3g} is below {limit:.3g}")
    for side, name in ((plus, "reward"), (minus, "penalty")):
        if side.total and side.point is None:
            reasons.append(f"no applicable {name} criterion has a value")
    return "; ".join(reasons)


def _contributions(
    rows: list[_Row], plus: _Side, minus: _Side, scale: str
) -> list[tuple[Contribution, float]]:
    out = []
    for row in rows:
        side = plus if row.item.polarity == "reward" else minus
        amount = 0.0
        if row.reading.point is not None and side.pointed:
            amount = row.weight * row.reading.point / side.pointed * _force(row.item, plus, minus, scale)
        r = row.reading
        contribution = Contribution(
            id=row.item.id,
            polarity=row.item.polarity,
            weight=row.weight,
            lo=r.lo,
            hi=r.hi,
            point=r.point,
            amount=amount,
            coverage=r.scored,
            personal=row.item.personal,
        )
        out.append((contribution, amount))
    return out


def _force(item: ActiveItem, plus: _Side, minus: _Side, scale: str) -> float:
    """Factor of one sign's mean in the unclipped value."""
    if item.polarity == "reward":
        return plus.total if scale == "signed" else 1.0
    if scale == "signed":
        return -minus.total
    return -minus.total / plus.total if plus.total else -1.0


def _parts(
    parts: list[tuple[Contribution, float]], plus: _Side, minus: _Side, scale: str
) -> tuple[float | None, float | None, float | None]:
    """Unclipped value, its generic and its personal part; under net with penalties only it starts from 1."""
    if not parts or not _has_points(plus, minus):
        return None, None, None
    start = 1.0 if scale == "net" and not plus.total else 0.0
    generic = start + fsum(a for c, a in parts if not c.personal)
    personal = fsum(a for c, a in parts if c.personal)
    return generic + personal, generic, personal
