"""A rubric bound to a task: criteria with final weights, axioms with gates, what a personal profile adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

from axiomrm.data.trajectory import Trajectory
from axiomrm.rubrics.expr import TRUE, Expr, Value
from axiomrm.rubrics.hashing import digest
from axiomrm.rubrics.model import Case, EvidenceSpec, Facet, Judge, Polarity, Policy, Scale

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric


class Grant(Protocol):
    """Consent behind a personal rubric; passed in by ``personalization``."""

    def check(self, purpose: str, recipient: str) -> None:
        """Raise ``ConsentError`` unless the grant covers ``purpose`` for ``recipient``."""


@dataclass(frozen=True)
class Personal:
    """What one user's profile adds: allow-listed slot values and the share that they may have.

    Its representation shows the share alone.
    """

    slots: Mapping[str, Any] = field(repr=False)
    """Slot → scalar, or list for a set slot; a template applies if all slots it reads are here."""
    share: float
    """λ in [0, personal_budget]; 0 gives the generic result."""
    weights: Mapping[str, float] = field(default_factory=dict, repr=False)
    """Template → weight among the personal criteria, in place of its own; cut at its ``max_weight``."""
    grant: Grant | None = field(default=None, compare=False, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Slot versions, consent epoch, subject token, expiry: travels beside the hash, never in it."""


@dataclass(frozen=True)
class ActiveItem:
    """A criterion that applies, or that may apply at some turn."""

    id: str
    statement: str
    weight: float
    """Final weight, after the personal share."""
    base_weight: float
    polarity: Polarity
    scale: Scale
    evidence: EvidenceSpec
    judge: Judge
    applies: bool | None
    """``None``: decided at each turn."""
    on_cannot_assess: Literal["worst", "skip"]
    cases: tuple[Case, ...]
    item_hash: str
    personal: bool = False
    parent: str = ""
    """The theorem that a personal criterion specialises."""
    inverse: str = ""
    tags: tuple[str, ...] = ()
    beats: tuple[str, ...] = ()
    condition: Expr = field(default=TRUE, compare=False)
    requires: Expr | None = field(default=None, compare=False)
    facets: Mapping[str, Facet] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True)
class ActiveAxiom:
    """A hard or soft axiom that applies, or that may apply at some turn."""

    id: str
    statement: str
    type: Literal["hard", "soft"]
    caps: Mapping[str, float]
    """Severity → cap, mild to grave; ``{"violated": cap}`` where one number was given; empty if hard."""
    evidence: EvidenceSpec
    judge: Judge
    applies: bool | None
    on_cannot_assess: Literal["abstain", "violate", "worst", "skip"]
    cases: tuple[Case, ...]
    item_hash: str
    condition: Expr = field(default=TRUE, compare=False)
    requires: Expr | None = field(default=None, compare=False)
    facets: Mapping[str, Facet] = field(default_factory=dict, compare=False, repr=False)

    @property
    def scale(self) -> Scale:
        """Axioms are judged yes or no."""
        return Scale()

    @property
    def severities(self) -> tuple[str, ...]:
        """Labels of a violation, mild to grave; empty: only one kind of violation."""
        return tuple(self.caps) if tuple(self.caps) != ("violated",) else ()


@dataclass(frozen=True)
class ActiveRubric:
    """A rubric bound to the features of one task, or (``level == "turn"``) to one prefix."""

    rubric: "Rubric" = field(repr=False)
    features: Mapping[str, Value]
    items: tuple[ActiveItem, ...]
    axioms: tuple[ActiveAxiom, ...]
    share: float = 0.0
    """λ; 0 if no personal criterion applies."""
    level: Literal["trajectory", "turn"] = "trajectory"
    dropped: tuple[tuple[str, str], ...] = ()
    """(loser, winner) of ``beats``."""
    personal: Personal | None = field(default=None, repr=False)
    task: str = ""

    @property
    def policy(self) -> Policy:
        """The rubric's policy."""
        return self.rubric.policy

    @property
    def judged(self) -> tuple[ActiveItem | ActiveAxiom, ...]:
        """Everything that needs a verdict: items, then axioms."""
        return (*self.items, *self.axioms)

    @property
    def rubric_hash(self) -> str:
        """Hash of the generic rubric."""
        return self.rubric.hash

    @property
    def compiled_hash(self) -> str:
        """SHA-256 over criteria, weights, λ and feature values only; no provenance."""
        criteria = {i.id: [i.item_hash, i.weight] for i in self.items}
        axioms = {a.id: a.item_hash for a in self.axioms}
        body = {"criteria": criteria, "axioms": axioms, "share": self.share, "features": dict(self.features)}
        return digest(body)

    @property
    def guidelines(self) -> str:
        """Text for the judge before all criteria."""
        return self.rubric.guidelines

    def at_turn(self, prefix: Trajectory) -> "ActiveRubric":
        """The turn-level items and axioms that apply to the assistant message that follows ``prefix``.

        Args:
            prefix: ``trajectory.before(turn)``; its messages are all that is looked at.

        Raises:
            DataError: a turn feature without default has no record in the prefix.
        """
        from axiomrm.rubrics.bind import at_turn

        return at_turn(self, prefix)
