"""Items as the conflict search sees them: when they apply, and what a good reply then fulfils."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from axiomrm.rubrics.expr import TRUE, And, Expr, ExprError, Not, names_of, parse
from axiomrm.rubrics.expr_text import unparse
from axiomrm.rubrics.findings import Path
from axiomrm.rubrics.model import Axiom, Template, Theorem
from axiomrm.rubrics.templates import variants

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

Kind = Literal["axiom", "theorem", "personal"]


@dataclass(frozen=True, eq=False)
class Clause:
    """One item, or one variant of a template."""

    id: str
    kind: Kind
    applies: Expr
    wants: Expr
    """``requires``; negated for a penalty, whose statement describes the fault. ``TRUE``: no formal side."""
    level: Literal["trajectory", "turn"]
    beats: tuple[str, ...]
    path: Path
    own: bool
    """Of the file that is linted, not of an import."""
    weight: float = 0.0
    specialises: str = ""
    chosen: Mapping[str, tuple[str, str]] | None = None
    """Template only: parameter → (slot value, parameter value)."""
    slots: Mapping[str, str] | None = None
    """Template only: slot → slot value."""

    @property
    def label(self) -> str:
        """``pt.verbosity (limit=30, from stated.verbosity=1)``."""
        if not self.chosen or not self.slots:
            return self.id
        values = ", ".join(f"{n}={p}" for n, (_, p) in self.chosen.items())
        origin = ", ".join(f"{s}={v}" for s, v in self.slots.items())
        return f"{self.id} ({values}, from {origin})"

    @property
    def formal(self) -> bool:
        """Whether it has a formal side."""
        return self.wants is not TRUE

    @property
    def text(self) -> str:
        """The formal side in words of the condition language."""
        return unparse(self.wants)


def clauses_of(rubric: "Rubric") -> tuple[Clause, ...]:
    """Clauses of all active items, imports first; items whose conditions are faulty are left out."""
    from axiomrm.rubrics.rubric import walk

    out: list[Clause] = []
    for part, section, index, item in walk(rubric):
        if item.status != "active":
            continue
        out += _clauses(rubric, part is rubric, (section, index), item)
    return tuple(out)


def _clauses(rubric: "Rubric", own: bool, path: Path, item: Axiom | Theorem | Template) -> Iterator[Clause]:
    known = rubric.variables
    options = variants(item) if isinstance(item, Template) else [({}, item)]
    for chosen, filled in options:
        try:
            applies = parse(filled.applies_when)
            wants = TRUE if filled.requires is None else parse(filled.requires)
        except ExprError:
            continue
        if not (names_of(applies) | names_of(wants)) <= known.keys():
            continue
        if not isinstance(filled, Axiom) and filled.polarity == "penalty" and wants is not TRUE:
            wants = Not(wants)
        slots = (
            {item.params[n].slot: key for n, (key, _) in chosen.items()}
            if isinstance(item, Template)
            else None
        )
        yield Clause(
            id=item.id,
            kind={Axiom: "axiom", Theorem: "theorem", Template: "personal"}[type(item)],  # type: ignore[arg-type]  # literals
            applies=_with_parent(rubric, filled, applies),
            wants=wants,
            level=item.evidence.level,
            beats=() if isinstance(item, Axiom) else item.beats,
            path=path,
            own=own,
            weight=0.0 if isinstance(item, Axiom) else item.weight,
            specialises=item.specialises if isinstance(item, Template) else "",
            chosen=chosen or None,
            slots=slots,
        )


def _with_parent(rubric: "Rubric", item: Axiom | Theorem | Template, applies: Expr) -> Expr:
    """A personal criterion applies only where its parent does."""
    if not isinstance(item, Template):
        return applies
    parent = next((t for t in rubric.theorems if t.id == item.specialises), None)
    try:
        condition = parse(parent.applies_when) if parent is not None else TRUE
    except ExprError:
        return applies
    return applies if condition == TRUE else And((condition, applies))


def together(a: Clause, b: Clause) -> bool:
    """Whether both can be active for one user: no two variants of a template, no two values of a slot."""
    if a.id == b.id:
        return False
    if a.slots and b.slots:
        return all(b.slots.get(s, v) == v for s, v in a.slots.items())
    return True
