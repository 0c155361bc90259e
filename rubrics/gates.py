"""Axioms → gate: 0 if a hard one is violated, else the smallest cap of the violated soft ones, else 1."""

from collections.abc import Iterable
from dataclasses import dataclass

from axiomrm.data.verdict import CannotAssess, Scored
from axiomrm.rubrics.bind import ActiveAxiom
from axiomrm.rubrics.readings import AnyVerdict


@dataclass(frozen=True)
class Gate:
    """Combined over all axioms (a turn-level axiom counts at each of its turns)."""

    point: float
    worst: float
    best: float
    violated: tuple[str, ...]
    """Ids of axioms that a verdict says are violated, sorted."""
    assumed: tuple[str, ...]
    """Ids that count as violated because they could not be assessed."""
    hard_violated: bool
    unknown: str
    """Why the gate is not decided; empty: it is."""


def violated(verdict: Scored) -> bool:
    """An axiom's value says how far the reply complies; below one half is a violation."""
    return verdict.value < 0.5


def cap_of(axiom: ActiveAxiom, label: str) -> float:
    """Cap of a violation; the gravest if the label names no declared severity."""
    if axiom.type == "hard":
        return 0.0
    return axiom.caps[label] if label in axiom.caps else lowest(axiom)


def lowest(axiom: ActiveAxiom) -> float:
    """Gate of the gravest violation."""
    return 0.0 if axiom.type == "hard" else min(axiom.caps.values())


def combine(pairs: Iterable[tuple[ActiveAxiom, AnyVerdict]]) -> Gate:
    """Minimum over axioms: idempotent, so correlated violations are not counted twice."""
    point = worst = best = 1.0
    named: set[str] = set()
    assumed: set[str] = set()
    hard, unknown = False, []
    for axiom, verdict in pairs:
        if isinstance(verdict, Scored):
            factor = cap_of(axiom, verdict.label) if violated(verdict) else 1.0
            point, worst, best = min(point, factor), min(worst, factor), min(best, factor)
            if violated(verdict):
                named.add(axiom.id)
                hard = hard or axiom.type == "hard"
            continue
        worst = min(worst, lowest(axiom))
        if isinstance(verdict, CannotAssess) and axiom.on_cannot_assess in ("violate", "worst"):
            point = min(point, lowest(axiom))
            assumed.add(axiom.id)
            hard = hard or axiom.type == "hard"
        elif not isinstance(verdict, CannotAssess):
            unknown.append(f"axiom {axiom.id} failed: {verdict.kind}")
        elif axiom.on_cannot_assess == "abstain":
            unknown.append(f"hard axiom {axiom.id} cannot be assessed: {verdict.reason or 'no reason given'}")
    return Gate(
        point, worst, best, tuple(sorted(named)), tuple(sorted(assumed)), hard, "; ".join(sorted(unknown))
    )
