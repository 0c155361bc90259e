"""Which criteria apply to a task or a turn, with final weights; a reply is never looked at."""

from collections.abc import Mapping
from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING, Any, Literal

from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError
from axiomrm.rubrics.active import ActiveAxiom, ActiveItem, ActiveRubric, Grant, Personal
from axiomrm.rubrics.cells import Undecided, first_model
from axiomrm.rubrics.expr import TRUE, And, Expr, Not, Value, evaluate, parse
from axiomrm.rubrics.expr_check import Variable
from axiomrm.rubrics.feature_values import feature_values, turn_values
from axiomrm.rubrics.hashing import item_hash
from axiomrm.rubrics.model import Axiom, EvidenceSpec, Template, Theorem
from axiomrm.rubrics.templates import instantiate
from axiomrm.rubrics.text_form import nfc

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

__all__ = [
    "ActiveAxiom",
    "ActiveItem",
    "ActiveRubric",
    "Grant",
    "Personal",
    "at_turn",
    "bind",
    "shares",
    "wanted",
    "weighted",
]

MAX_PERSONAL_BUDGET = 0.4


def bind(
    rubric: "Rubric", features: Mapping[str, Any], personal: Personal | None = None, *, task: str = ""
) -> ActiveRubric:
    """See ``Rubric.bind``."""
    values = feature_values(rubric.features, nfc(features), task)
    share = _share(rubric, personal)
    items = [item for t in rubric.theorems if (item := _theorem(rubric, t, values)) is not None]
    if share and personal is not None:
        parents = {i.id: i for i in items}
        for template in rubric.templates:
            parent = parents.get(template.specialises)
            made = instantiate(template, nfc(personal.slots)) if parent is not None else None
            item = _theorem(rubric, made, values, parent) if made is not None else None
            if item is not None:
                items.append(_reweighted(item, template, personal.weights))
    axioms = [a for x in rubric.axioms if (a := _axiom(rubric, x, values)) is not None]
    kept, dropped = _defeats(tuple(items), rubric.variables)
    kept, used = weighted(kept, share)
    return ActiveRubric(rubric, values, kept, tuple(axioms), used, "trajectory", dropped, personal, task)


def _share(rubric: "Rubric", personal: Personal | None) -> float:
    if personal is None:
        return 0.0
    budget = min(rubric.policy.personal_budget, MAX_PERSONAL_BUDGET)
    if not 0 <= personal.share <= budget:
        raise ConfigError(
            f"personal share {personal.share!r} must be in [0, {budget}] (policy.personal_budget)"
        )
    return personal.share


def _theorem(
    rubric: "Rubric", item: Theorem | Template, values: Mapping[str, Value], parent: ActiveItem | None = None
) -> ActiveItem | None:
    condition = parse(item.applies_when)
    applies = _applies(condition, item.evidence, values, rubric.variables)
    if applies is False:
        return None
    weight = item.weight
    if isinstance(item, Template) and item.max_weight is not None:
        weight = min(weight, item.max_weight)
    return ActiveItem(
        id=item.id,
        statement=item.statement,
        weight=weight,
        base_weight=weight,
        polarity=item.polarity,
        scale=item.scale,
        evidence=item.evidence,
        judge=item.judge,
        applies=applies,
        on_cannot_assess=item.on_cannot_assess,
        cases=item.cases,
        item_hash=rubric.item_hashes[item.id] if parent is None else item_hash(item, rubric.facets),
        personal=parent is not None,
        parent=parent.id if parent is not None else "",
        inverse=item.inverse,
        tags=item.tags,
        beats=item.beats,
        condition=condition if parent is None else _both(condition, parent),
        requires=parse(item.requires) if item.requires is not None else None,
        facets=rubric.facets,
    )


def _reweighted(item: ActiveItem, template: Template, weights: Mapping[str, float]) -> ActiveItem:
    """The item with the user's own weight for it; its hash stays, since its verdicts do."""
    if item.id not in weights:
        return item
    weight = weights[item.id]
    if not 0 < weight < float("inf"):
        raise ConfigError(f"personal weight of {item.id!r} is {weight!r}, it must be a finite number > 0")
    if template.max_weight is not None:
        weight = min(weight, template.max_weight)
    return replace(item, weight=weight, base_weight=weight)


def _both(condition: Expr, parent: ActiveItem) -> Expr:
    """A personal criterion applies only where its parent does (at the same turn, if both are turn items)."""
    if parent.evidence.level != "turn" or parent.condition == TRUE:
        return condition
    return And((parent.condition, condition))


def _axiom(rubric: "Rubric", axiom: Axiom, values: Mapping[str, Value]) -> ActiveAxiom | None:
    if axiom.type == "premise":
        return None
    condition = parse(axiom.applies_when)
    applies = _applies(condition, axiom.evidence, values, rubric.variables)
    if applies is False:
        return None
    caps = axiom.caps or ({} if axiom.cap is None else {"violated": axiom.cap})
    default: Literal["abstain", "worst"] = "abstain" if axiom.type == "hard" else "worst"
    return ActiveAxiom(
        id=axiom.id,
        statement=axiom.statement,
        type=axiom.type,
        caps=caps,
        evidence=axiom.evidence,
        judge=axiom.detector,
        applies=applies,
        on_cannot_assess=axiom.on_cannot_assess or default,
        cases=axiom.cases,
        item_hash=rubric.item_hashes[axiom.id],
        condition=condition,
        requires=parse(axiom.requires) if axiom.requires is not None else None,
        facets=rubric.facets,
    )


def _applies(
    condition: Expr, evidence: EvidenceSpec, values: Mapping[str, Value], variables: Mapping[str, Variable]
) -> bool | None:
    known = evaluate(condition, values)
    if known is not None or evidence.level != "turn":
        return bool(known)
    try:
        return None if first_model([condition], variables, values) is not None else False
    except Undecided:
        return None


def at_turn(active: ActiveRubric, prefix: Trajectory) -> ActiveRubric:
    """See ``ActiveRubric.at_turn``."""
    rubric = active.rubric
    open_ = [x.condition for x in active.judged if x.evidence.level == "turn"]
    env = {**active.features, **turn_values(rubric.turn_features, open_, prefix, active.task)}
    items = tuple(
        replace(i, applies=True)
        for i in active.items
        if i.evidence.level == "turn" and evaluate(i.condition, env)
    )
    axioms = tuple(
        replace(a, applies=True)
        for a in active.axioms
        if a.evidence.level == "turn" and evaluate(a.condition, env)
    )
    kept, dropped = _defeats(items, rubric.variables)
    share = _share(rubric, active.personal)
    kept, used = weighted(kept, share)
    return replace(active, features=env, items=kept, axioms=axioms, share=used, level="turn", dropped=dropped)


def _defeats(
    items: tuple[ActiveItem, ...], variables: Mapping[str, Variable]
) -> tuple[tuple[ActiveItem, ...], tuple[tuple[str, str], ...]]:
    """Drop the losers of ``beats`` among items that surely apply together; a dropped item defeats nobody."""
    if not any(i.beats for i in items):
        return items, ()
    present = {i.id: i for i in items}
    lost: dict[str, str] = {}
    for winner in _by_rank(items):
        if winner.id in lost or winner.applies is None:
            continue
        for loser_id in winner.beats:
            loser = present.get(loser_id)
            if loser is not None and loser.applies and _incompatible(winner, loser, variables):
                lost.setdefault(loser_id, winner.id)
    return tuple(i for i in items if i.id not in lost), tuple(sorted(lost.items()))


def _by_rank(items: tuple[ActiveItem, ...]) -> list[ActiveItem]:
    """Winners before losers; ``beats`` has no cycles (E103)."""
    beaten_by: dict[str, list[ActiveItem]] = {}
    for item in items:
        for loser in item.beats:
            beaten_by.setdefault(loser, []).append(item)
    order: dict[str, ActiveItem] = {}

    def visit(item: ActiveItem) -> None:
        for winner in beaten_by.get(item.id, ()):
            if winner.id not in order:
                visit(winner)
        order.setdefault(item.id, item)

    for item in items:
        visit(item)
    return list(order.values())


def _incompatible(a: ActiveItem, b: ActiveItem, variables: Mapping[str, Variable]) -> bool:
    if a.requires is None or b.requires is None or a.evidence.level != b.evidence.level:
        return False
    try:
        return first_model([wanted(a), wanted(b)], variables) is None
    except Undecided:
        return False


def wanted(item: ActiveItem) -> Expr:
    """What a good reply fulfils: the formal side, negated for a penalty."""
    requires = item.requires if item.requires is not None else TRUE
    return Not(requires) if item.polarity == "penalty" and item.requires is not None else requires


def shares(items: tuple[ActiveItem, ...], share: float) -> tuple[dict[str, float], float]:
    """Final weights, and the share that was used.

    Generic rewards get w·(1−λ), personal ones w·λ·W⁺/W_pers; penalties keep full force. λ is 0 if no personal
    reward or no generic reward applies.
    """
    generic = [i.base_weight for i in items if i.polarity == "reward" and not i.personal]
    personal = [i.base_weight for i in items if i.polarity == "reward" and i.personal]
    if not share or not generic or not personal:
        return {i.id: i.base_weight for i in items if not i.personal}, 0.0
    total = fsum(generic)
    factor = share * total / fsum(personal)
    out: dict[str, float] = {}
    for item in items:
        weight = item.base_weight
        if item.polarity == "reward":
            weight *= factor if item.personal else 1 - share
        out[item.id] = weight
    return out, share


def weighted(items: tuple[ActiveItem, ...], share: float) -> tuple[tuple[ActiveItem, ...], float]:
    """Items with their final weights; personal ones are left out where the share falls to 0."""
    weights, used = shares(items, share)
    return tuple(replace(i, weight=weights[i.id]) for i in items if i.id in weights), used
