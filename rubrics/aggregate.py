"""Verdicts → reward, with interval, coverage and gate (RUBRICS.md section 7).

W⁺, W⁻: weight of the applicable reward and penalty items; m⁺, m⁻: weighted means over items that have a point.

    net     base = clip(m⁺ − (W⁻/W⁺)·m⁻, 0, 1);   if only penalties apply: base = 1 − m⁻
    signed  base = (W⁺·m⁺ + W⁻·(1 − m⁻)) / (W⁺ + W⁻)
    u = min(gate, base);   R = u (net),  R = u·(W⁺ + W⁻) − W⁻ (signed)

All sums are exact fractions and rounded once at the end: the order of items cannot matter, and the properties
P1–P8 hold to the bit (stronger than the ``math.fsum`` of the specification).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from axiomrm.errors import DataError
from axiomrm.rubrics.bind import ActiveAxiom, ActiveItem, ActiveRubric, exact, shares
from axiomrm.rubrics.gates import Gate, combine
from axiomrm.rubrics.readings import MISSING, ONE, ZERO, AnyVerdict, Reading, read, read_turns

Verdicts = Mapping[str, AnyVerdict | Sequence[AnyVerdict | None]]
"""Item or axiom id → one verdict (trajectory level, or any item at one turn), or one a turn with ``None`` where it
did not apply (turn-level items of a whole trajectory)."""


@dataclass(frozen=True)
class Contribution:
    """What one criterion did."""

    id: str
    polarity: Literal["reward", "penalty"]
    weight: float
    """Final weight, after the personal share."""
    lo: float
    hi: float
    point: float | None
    """``None``: no point, so it is left out of the mean."""
    amount: float
    """Its part of the unclipped value (net) or of Σw⁺v − Σw⁻p (signed); 0 without a point."""
    coverage: float
    """Share that was Scored."""
    personal: bool = False


@dataclass(frozen=True)
class Aggregate:
    """The result of one aggregation."""

    reward: float | None
    """``None``: abstain; no gradient, left out of means, counted."""
    interval: tuple[float, float]
    """Where the reward lies whatever the missing verdicts turn out to be."""
    coverage: float
    gate: float | None
    """``None``: unknown, a serving gate must block."""
    violated_axioms: tuple[str, ...]
    contributions: tuple[Contribution, ...]
    reason: str = ""
    """Why the reward is missing."""
    base: float | None = None
    unclipped: float | None = None
    """m⁺ − (W⁻/W⁺)·m⁻ before clipping and gating (signed: Σw⁺v − Σw⁻p); ``None`` if a mean is missing."""
    generic: float | None = None
    """Part of ``unclipped`` that generic items gave."""
    personal: float | None = None
    share: float = 0.0
    """λ as used."""
    assumed_axioms: tuple[str, ...] = ()
    """Count as violated because they could not be assessed."""
    hard_violated: bool = False

    @property
    def rank_key(self) -> tuple[bool, float, float] | None:
        """Sort key, larger is better: no hard violation first, then gate, then base; ``None`` if abstaining."""
        if self.reward is None or self.gate is None or self.base is None:
            return None
        return (not self.hard_violated, self.gate, self.base)

    @property
    def passes_gate(self) -> bool:
        """What a serving gate asks: known, and fully open. Unknown blocks."""
        return self.gate == 1.0


@dataclass(frozen=True)
class _Row:
    item: ActiveItem
    weight: Fraction
    reading: Reading


@dataclass(frozen=True)
class _Side:
    """One sign: total weight, weighted mean of lo, hi, and of the points."""

    total: Fraction
    lo: Fraction
    hi: Fraction
    point: Fraction | None
    pointed: Fraction


def aggregate(active: ActiveRubric, verdicts: Verdicts) -> Aggregate:
    """Combine the verdicts of one unit.

    Args:
        active: a rubric bound to a task (trajectory), or ``active.at_turn(prefix)`` (one turn).
        verdicts: by item and axiom id, see ``Verdicts``. An id without a verdict counts as failed, never as a number.

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
    known = {x.id for x in (*active.items, *active.axioms)}
    unknown = sorted(set(verdicts) - known)
    if unknown:
        raise DataError(
            f"verdict for {unknown[0]!r}, which does not apply here; applicable: {', '.join(sorted(known))}"
        )


def _rows(active: ActiveRubric, verdicts: Verdicts) -> list[_Row]:
    rows = []
    limit = exact(active.policy.turn_min_coverage)
    for item in active.items:
        found = _listed(active, item, verdicts.get(item.id, MISSING))
        reading = read(found, item) if not isinstance(found, tuple) else read_turns(found, item, limit)
        if reading is not None:
            rows.append(_Row(item, ZERO, reading))
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
    total = sum((r.weight for r in rows), ZERO)
    if not total:
        return _Side(ZERO, ZERO, ZERO, None, ZERO)
    lo = sum((r.weight * r.reading.lo for r in rows), ZERO) / total
    hi = sum((r.weight * r.reading.hi for r in rows), ZERO) / total
    pairs = [(r.weight, r.reading.point) for r in rows if r.reading.point is not None]
    pointed = sum((w for w, _ in pairs), ZERO)
    point = sum((w * p for w, p in pairs), ZERO) / pointed if pointed else None
    return _Side(total, lo, hi, point, pointed)


def _base(scale: str, plus: Fraction, minus: Fraction, w_plus: Fraction, w_minus: Fraction) -> Fraction:
    if scale == "signed":
        return (w_plus * plus + w_minus * (1 - minus)) / (w_plus + w_minus)
    if not w_plus:
        return 1 - minus
    return min(ONE, max(ZERO, plus - w_minus / w_plus * minus))


def _result(
    active: ActiveRubric, rows: list[_Row], plus: _Side, minus: _Side, gate: Gate, share: float
) -> Aggregate:
    scale, total = active.policy.scale, plus.total + minus.total
    coverage = sum((r.weight * r.reading.scored for r in rows), ZERO) / total if total else ZERO
    reason = _reason(active, rows, plus, minus, gate, coverage)
    low, high, base = ZERO, ONE, None
    if total:
        low = _base(scale, plus.lo, minus.hi, plus.total, minus.total)
        high = _base(scale, plus.hi, minus.lo, plus.total, minus.total)
        if _has_points(plus, minus):
            base = _base(scale, plus.point or ZERO, minus.point or ZERO, plus.total, minus.total)

    def outside(u: Fraction) -> float:
        return float(u * total - minus.total if scale == "signed" else u)

    known = not gate.unknown or gate.worst == gate.best
    parts = _contributions(rows, plus, minus, scale)
    values = _parts(parts, plus, minus, scale)
    return Aggregate(
        reward=outside(min(gate.point, base)) if base is not None and not reason else None,
        interval=(outside(min(gate.worst, low)), outside(min(gate.best, high))),
        coverage=float(coverage),
        gate=float(gate.point) if known else None,
        violated_axioms=gate.violated,
        contributions=tuple(c for c, _ in parts),
        reason=reason,
        base=float(base) if base is not None else None,
        unclipped=values[0],
        generic=values[1],
        personal=values[2],
        share=share,
        assumed_axioms=gate.assumed,
        hard_violated=gate.hard_violated,
    )


def _has_points(plus: _Side, minus: _Side) -> bool:
    return all(side.point is not None for side in (plus, minus) if side.total)


def _reason(
    active: ActiveRubric, rows: list[_Row], plus: _Side, minus: _Side, gate: Gate, coverage: Fraction
) -> str:
    if not rows:
        return "no applicable criterion"
    reasons = [gate.unknown] if gate.unknown else []
    limit = exact(active.policy.min_coverage)
    if coverage < limit:
        reasons.append(f"coverage {float(coverage):.3g} is below {float(limit):.3g}")
    for side, name in ((plus, "reward"), (minus, "penalty")):
        if side.total and side.point is None:
            reasons.append(f"no applicable {name} criterion has a value")
    return "; ".join(reasons)


def _contributions(
    rows: list[_Row], plus: _Side, minus: _Side, scale: str
) -> list[tuple[Contribution, Fraction]]:
    out = []
    for row in rows:
        side = plus if row.item.polarity == "reward" else minus
        amount = ZERO
        if row.reading.point is not None and side.pointed:
            amount = row.weight * row.reading.point / side.pointed * _force(row.item, plus, minus, scale)
        r = row.reading
        contribution = Contribution(
            id=row.item.id,
            polarity=row.item.polarity,
            weight=float(row.weight),
            lo=float(r.lo),
            hi=float(r.hi),
            point=None if r.point is None else float(r.point),
            amount=float(amount),
            coverage=float(r.scored),
            personal=row.item.personal,
        )
        out.append((contribution, amount))
    return out


def _force(item: ActiveItem, plus: _Side, minus: _Side, scale: str) -> Fraction:
    """Factor of one sign's mean in the unclipped value."""
    if item.polarity == "reward":
        return plus.total if scale == "signed" else ONE
    if scale == "signed":
        return -minus.total
    return -minus.total / plus.total if plus.total else -ONE


def _parts(
    parts: list[tuple[Contribution, Fraction]], plus: _Side, minus: _Side, scale: str
) -> tuple[float | None, float | None, float | None]:
    """Unclipped value, its generic and its personal part; under net with penalties only it starts from 1."""
    if not parts or not _has_points(plus, minus):
        return None, None, None
    start = ONE if scale == "net" and not plus.total else ZERO
    generic = sum((a for c, a in parts if not c.personal), start)
    personal = sum((a for c, a in parts if c.personal), ZERO)
    return float(generic + personal), float(generic), float(personal)
