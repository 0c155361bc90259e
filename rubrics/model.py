"""The schema ``atr/1``: frozen pydantic models of one rubric file.

The models hold what was written; checks with a code of their own (weights, caps …) are in ``checks.py``.

Value conventions: a *theorem's* verdict value says how true its statement is; a *penalty's* statement
describes the fault, value 1 = fully present; an *axiom's* statement describes compliance, value 0 =
violated, with the severity as label.
"""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

SCHEMA = "atr/1"
Number = Annotated[float, Strict()]
Whole = Annotated[int, Strict()]
Scalar = Annotated[bool, Strict()] | Whole | Number | Annotated[str, Strict()]
Status = Literal["draft", "quarantine", "active", "deprecated"]
Polarity = Literal["reward", "penalty"]
Reduce = Literal["mean", "min", "max", "any", "all", "last"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Header(_Model):
    """Who this rubric is."""

    id: str
    """``[a-z][a-z0-9_]*``, equal to the file name."""
    version: str
    """Semantic version; quote it if it looks like a number."""
    title: str = ""
    languages: tuple[str, ...] = ()
    license: str = ""
    guidelines: str = ""
    """Text shown to the judge before all criteria."""
    imports: tuple[str, ...] = ()
    """``id@range``: exact, ``^`` or ``~``."""


class Feature(_Model):
    """A fact of the task, known before any reply exists; read from ``task.features``."""

    type: Literal["bool", "enum", "int"]
    values: tuple[str, ...] = ()
    """Enum only."""
    range: tuple[Whole, Whole] | None = None
    """Int only, both ends included."""
    default: Scalar | None = None
    """Value for tasks without it; none: such a task is an error."""


class TurnFeature(_Model):
    """A fact of the dialogue before the judged assistant message."""

    type: Literal["bool", "enum", "int"]
    values: tuple[str, ...] = ()
    range: tuple[Whole, Whole] | None = None
    probe: str
    """A key of ``PROBES`` that looks at the prefix only."""
    args: dict[str, Any] = Field(default_factory=dict)
    default: Scalar | None = None
    """Value where the probe finds no record; none: such a dialogue is an error."""


class Facet(_Model):
    """A measurable property of a reply or a trajectory."""

    type: Literal["bool", "enum", "int", "number"]
    values: tuple[str, ...] = ()
    range: tuple[Number, Number] | None = None
    probe: str | None = None
    """A key of ``PROBES``; none: for proofs only."""
    args: dict[str, Any] = Field(default_factory=dict)


class LlmJudge(_Model):
    """Judged by a language model."""

    kind: Literal["llm"]
    mode: Literal["critique", "direct"] | None = None
    votes: Whole = 1
    """Readings, in mode direct only one; an axiom's detector takes an odd number and decides by majority."""


class ProgrammaticJudge(_Model):
    """Judged by a function of ``JUDGES``."""

    kind: Literal["programmatic"]
    fn: str
    args: dict[str, Any] = Field(default_factory=dict)


class ConstraintJudge(_Model):
    """Judged by evaluating ``requires`` on the facets."""

    kind: Literal["constraint"]


Judge = Annotated[LlmJudge | ProgrammaticJudge | ConstraintJudge, Field(discriminator="kind")]


class EvidenceSpec(_Model):
    """What an item is judged on."""

    level: Literal["trajectory", "turn"] = "trajectory"
    reduce: Reduce | None = None
    """Required at level turn: how the turns become one value."""
    if_never: Literal["skip", "worst"] = "skip"
    """What a turn item that applied at no turn counts as."""


class Anchor(_Model):
    """One labelled point of an ordinal scale."""

    value: Number
    text: str


class Scale(_Model):
    """The values that a verdict can take, inside [0, 1]."""

    kind: Literal["binary", "ordinal", "continuous"] = "binary"
    anchors: tuple[Anchor, ...] = ()
    """Ordinal only: 2 to 7, values strictly rising from 0 to 1."""


class Case(_Model):
    """A short good/bad pair shown to the judge and run by ``axiomrm rubric test``."""

    good: str | None = None
    bad: str | None = None
    note: str = ""
    features: dict[str, Scalar] = Field(default_factory=dict)


class Source(_Model):
    """Where an item comes from."""

    kind: str
    ref: str
    note: str = ""


class Allow(_Model):
    """Silences one warning of one item."""

    code: str
    why: str


class Axiom(_Model):
    """Not negotiable: a broken hard axiom closes a gate, a broken soft one caps the reward."""

    id: str
    statement: str
    type: Literal["hard", "soft", "premise"]
    cap: Number | None = None
    """Soft only: the reward's upper bound if violated, inside (0, 1)."""
    caps: dict[str, Number] | None = None
    """Soft only: severity → cap, mild to grave, strictly falling."""
    applies_when: str = "true"
    requires: str | None = None
    detector: Judge = LlmJudge(kind="llm")
    on_cannot_assess: Literal["abstain", "violate", "worst", "skip"] | None = None
    """Hard: abstain (default) or violate; soft: worst (default) or skip."""
    evidence: EvidenceSpec = EvidenceSpec()
    status: Status = "active"
    cases: tuple[Case, ...] = ()
    sources: tuple[Source, ...] = ()
    tags: tuple[str, ...] = ()
    lint_allow: tuple[Allow, ...] = ()


class Theorem(_Model):
    """A scenario norm with a weight, derived from axioms."""

    id: str
    derived_from: tuple[str, ...]
    derivation: str
    """The reasoning step; never shown to the judge."""
    statement: str
    applies_when: str = "true"
    requires: str | None = None
    scale: Scale = Scale()
    weight: Number = 1.0
    polarity: Polarity = "reward"
    inverse: str = ""
    """Wording of the fault's absence, for exporters."""
    evidence: EvidenceSpec = EvidenceSpec()
    judge: Judge = LlmJudge(kind="llm")
    on_cannot_assess: Literal["worst", "skip"] = "worst"
    beats: tuple[str, ...] = ()
    status: Status = "active"
    cases: tuple[Case, ...] = ()
    sources: tuple[Source, ...] = ()
    tags: tuple[str, ...] = ()
    lint_allow: tuple[Allow, ...] = ()


class Param(_Model):
    """A template's parameter: the value of one slot through a total map."""

    slot: str
    map: dict[str, Scalar]
    """Slot value, written as text, → parameter."""


class Template(_Model):
    """A theorem with parameters that are read from allow-listed profile slots."""

    id: str
    specialises: str
    reads: tuple[str, ...]
    params: dict[str, Param] = Field(default_factory=dict)
    statement: str
    applies_when: str = "true"
    requires: str | None = None
    dimension: Literal["form", "content", "value"]
    max_weight: Number | None = None
    weight: Number = 1.0
    scale: Scale = Scale()
    polarity: Polarity = "reward"
    inverse: str = ""
    evidence: EvidenceSpec = EvidenceSpec()
    judge: Judge = LlmJudge(kind="llm")
    on_cannot_assess: Literal["worst", "skip"] = "worst"
    beats: tuple[str, ...] = ()
    status: Status = "active"
    cases: tuple[Case, ...] = ()
    sources: tuple[Source, ...] = ()
    tags: tuple[str, ...] = ()
    lint_allow: tuple[Allow, ...] = ()


class Defaults(_Model):
    """Values for the fields of all theorems and templates that do not set them."""

    weight: Number | None = None
    polarity: Polarity | None = None
    applies_when: str | None = None
    scale: Scale | None = None
    evidence: EvidenceSpec | None = None
    judge: Judge | None = None
    on_cannot_assess: Literal["worst", "skip"] | None = None
    status: Status | None = None
    max_weight: Number | None = None
    tags: tuple[str, ...] | None = None


class Policy(_Model):
    """How verdicts become a reward."""

    scale: Literal["net", "signed"] = "net"
    min_coverage: Number = 0.6
    turn_min_coverage: Number = 0.5
    personal_budget: Number = 0.4
    """Upper bound of the personal share; never above 0.4."""


class Change(_Model):
    """One line of the changelog."""

    version: str
    date: str = ""
    note: str = ""


class RubricFile(_Model):
    """One ``atr/1`` document as written, before imports and defaults."""

    schema_: Literal["atr/1"] = Field(default="atr/1", alias="schema")
    rubric: Header
    features: dict[str, Feature] = Field(default_factory=dict)
    turn_features: dict[str, TurnFeature] = Field(default_factory=dict)
    facets: dict[str, Facet] = Field(default_factory=dict)
    defaults: Defaults = Defaults()
    axioms: tuple[Axiom, ...] = ()
    theorems: tuple[Theorem, ...] = ()
    personal_templates: tuple[Template, ...] = ()
    policy: Policy = Policy()
    changelog: tuple[Change, ...] = ()

    @classmethod
    def parse(cls, tree: Any) -> "RubricFile":
        """From plain JSON-like values, without any coercion of types.

        Raises:
            pydantic.ValidationError: the tree does not have the shape of ``atr/1``.
        """
        return cls.model_validate_json(json.dumps(tree), strict=True)

    def plain(self) -> dict[str, Any]:
        """JSON-like values of what was set, in schema order; ``parse`` gives an equal document."""
        out: dict[str, Any] = {"schema": SCHEMA}
        out.update(self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"schema_"}))
        return out
