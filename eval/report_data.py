"""What the report shows. Every part may be absent; absent parts appear as "not measured"."""

from typing import Literal

from pydantic import Field

from axiomrm.data.verdict import Verdict
from axiomrm.eval.criterion import CriterionReport
from axiomrm.eval.curves import RolloutsTo
from axiomrm.eval.estimate import NOT_MEASURED, Estimate, Value
from axiomrm.eval.personal import PersonalMetrics
from axiomrm.eval.worth import WorthTable

Role = Literal["system", "developer", "user", "assistant", "tool"]


class Headline(Value):
    """One number at the top of the page."""

    label: str
    estimate: Estimate
    note: str = ""
    """What it is compared with, e.g. ``cold start 21 %``."""
    signed: bool = False
    """A difference, shown with its sign and in points."""


class JudgeRow(Value):
    """One judge: a base model, a stage, or a baseline such as Bradley–Terry."""

    label: str
    note: str = ""
    pair_accuracy: Estimate = NOT_MEASURED
    """Overall quality, held-out pairs."""
    surface: Estimate = NOT_MEASURED
    """Mean balanced accuracy over criteria that one place of the dialogue decides."""
    relational: Estimate = NOT_MEASURED
    """The same over criteria that compare two places."""
    personal: Estimate = NOT_MEASURED
    """Pair accuracy, mean over users."""


class CurvePoint(Value):
    """One evaluation of a policy during training."""

    rollouts: int = Field(ge=0)
    success: Estimate


class Curve(Value):
    """One arm's learning curve."""

    label: str
    points: tuple[CurvePoint, ...]
    reached: RolloutsTo | None = None
    """Rollouts to the target."""
    main: bool = False


class TurnVerdict(Value):
    """One verdict of the judge on one turn."""

    criterion: str
    verdict: Verdict
    oracle: bool | None = None
    """What the environment knows; ``None``: it does not say."""
    penalty: bool = False
    """A criterion that a good turn does *not* meet."""


class TranscriptMessage(Value):
    """One message as it was."""

    role: Role
    content: str = ""
    calls: tuple[str, ...] = ()
    """Tool calls as text, ``name(argument=…)``."""


class TranscriptTurn(Value):
    """One assistant message, what follows it, and what the judge said about it."""

    messages: tuple[TranscriptMessage, ...]
    verdicts: tuple[TurnVerdict, ...] = ()
    reward: float | None = None
    """What training saw for this turn; ``None``: missing."""
    advantage: float | None = None
    """What its loss was weighted with; ``None``: none, or not known."""
    critiques: dict[str, str] = Field(default_factory=dict)
    """What the judge wrote, by criterion, where the verdicts do not hold it."""


class Transcript(Value):
    """One dialogue to spot-check."""

    title: str
    policy: str = ""
    why: str = ""
    """Why it was picked: ``random``, ``judge and outcome disagree`` …"""
    outcome: float | None = None
    """The verifier's score; ``None``: it gave none."""
    opening: tuple[TranscriptMessage, ...] = ()
    """Messages before the first turn."""
    turns: tuple[TranscriptTurn, ...] = ()


class ReportData(Value):
    """Everything on the page."""

    run: str
    summary: str = ""
    """One sentence for a reader in a hurry."""
    headlines: tuple[Headline, ...] = ()
    judges: tuple[JudgeRow, ...] = ()
    criteria: dict[str, CriterionReport] = Field(default_factory=dict)
    """By judge, e.g. ``base`` and ``rubric stage``, in the order to show."""
    personal: PersonalMetrics | None = None
    personal_subsets: dict[str, PersonalMetrics] = Field(default_factory=dict)
    target: float = 0.5
    """Success rate that ``reached`` in the curves refers to."""
    curves: tuple[Curve, ...] = ()
    behaviour: dict[str, dict[str, Estimate]] = Field(default_factory=dict)
    """By policy, then by metric; shares between 0 and 1, and counts."""
    worth: WorthTable | None = None
    transcripts: tuple[Transcript, ...] = ()
    data: dict[str, str] = Field(default_factory=dict)
    """Counts and rates of synthesis, as text."""
    notes: tuple[str, ...] = ()
    """Limits a reader must know."""
    provenance: dict[str, str] = Field(default_factory=dict)
    """Seed, hashes, versions, commands, date."""
