"""What ``RewardModel.score`` returns."""

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from axiomrm.data.verdict import Failed, Verdict

Outcome = Literal["a", "b", "tie"]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class TurnJudgement(_Value):
    """One turn's own reward, from the turn items that applied to it."""

    index: int
    """0-based; printed from t1."""
    reward: float | None
    """``None``: abstained, see ``reason``."""
    interval: tuple[float, float]
    coverage: float
    gate: float | None
    violated_axioms: tuple[str, ...] = ()
    verdicts: dict[str, Verdict] = Field(default_factory=dict)
    reason: str = ""


class Judgement(_Value):
    """One trajectory against one rubric."""

    schema_: Literal["axiomrm/judgement-1"] = Field(default="axiomrm/judgement-1", alias="schema")
    id: str = ""
    """The trajectory's id."""
    reward: float | None
    """``None``: abstained, see ``reason``; no gradient, no place in a mean."""
    interval: tuple[float, float]
    """Where the reward lies whatever the missing verdicts turn out to be, and, with a calibrator, wherever
    in its own conformal interval each criterion's value lies (gates of axioms apart)."""
    coverage: float
    """Share of the applicable weight that was Scored."""
    gate: float | None
    """``None``: unknown; a serving gate must block."""
    violated_axioms: tuple[str, ...] = ()
    verdicts: dict[str, Verdict] = Field(default_factory=dict)
    """Trajectory-level criteria; those of turns stand in ``turns``."""
    turns: tuple[TurnJudgement, ...] = ()
    """One a turn of the trajectory."""
    reason: str = ""
    rubric_hash: str = ""
    compiled_hash: str = ""
    judge_revision: str = ""
    calibration: str = ""
    """Hash of the calibrator; empty: none."""
    usage: dict[str, int] = Field(default_factory=dict)
    rank_key: tuple[bool, float, float] | None = None
    """No hard violation, gate, value before the gate; ``None`` if abstaining. ``rank`` goes by the first,
    then by ``reward``, and by the other two among equal rewards."""

    def all_verdicts(self) -> Iterable[tuple[int | None, str, Verdict]]:
        """``(turn or None, criterion id, verdict)`` of everything that was asked."""
        yield from ((None, name, verdict) for name, verdict in self.verdicts.items())
        for turn in self.turns:
            yield from ((turn.index, name, verdict) for name, verdict in turn.verdicts.items())

    @property
    def counts(self) -> dict[str, int]:
        """Verdicts by outcome: ``scored``, ``cannot_assess``, ``failed:<kind>``."""
        return dict(Counter(outcome(verdict) for _, _, verdict in self.all_verdicts()))

    def to_json(self) -> str:
        """JSON with a fixed order of fields and its schema's name; ``model_validate_json`` reads it."""
        return self.model_dump_json(by_alias=True)

    def explain(self) -> str:
        """The judgement in words, one criterion a line."""
        from axiomrm.rm.explaining import in_words

        return in_words(self)

    def _repr_html_(self) -> str:
        from axiomrm.rm.explaining import as_html

        return as_html(self)


class PairJudgement(_Value):
    """Two judgements of one task, compared."""

    winner: Outcome | None
    """``None``: one side abstained."""
    margin: float | None
    """Reward of a minus reward of b."""
    a: Judgement
    b: Judgement


class PairVerdict(_Value):
    """What a judge that saw both answers says, asked in both orders."""

    winner: Outcome | None
    """Where both orders agree; a conflict is a tie; ``None``: an order has no verdict."""
    p_a: float | None = None
    """Mean over orders of A = 1, T = 0.5, B = 0, as seen from a; ``None`` like ``winner``."""
    consistent: bool | None = None
    """Whether both orders say the same."""
    orders: tuple[Verdict, Verdict]
    """With a first and with b first; ``A`` is the answer that was shown first."""
    reason: str = ""
    """Why there is no winner."""


class Ranked(_Value):
    """One candidate's place."""

    index: int
    """Position in the call."""
    place: int | None
    """From 1; candidates within the tie band share one; ``None``: abstained."""
    judgement: Judgement


class TournamentPlace(_Value):
    """One candidate's place after meeting every other in both orders."""

    index: int
    """Position in the call."""
    place: int | None
    """From 1; equal points share one; ``None``: no comparison has an outcome."""
    points: float | None
    """Mean over its comparisons: win 1, tie 0.5."""
    compared: int
    """Comparisons that have an outcome, of n - 1."""


def outcome(verdict: Verdict) -> str:
    """``scored``, ``cannot_assess`` or ``failed:<kind>``."""
    return f"failed:{verdict.kind}" if isinstance(verdict, Failed) else verdict.status


def score_schema() -> dict[str, Any]:
    """JSON Schema of a row of ``axiomrm score``."""
    return ScoreRow.model_json_schema(by_alias=True, mode="serialization")


class ScoreRow(_Value):
    """One line of ``axiomrm score`` (schema ``axiomrm/score-1``)."""

    schema_: Literal["axiomrm/score-1"] = Field(default="axiomrm/score-1", alias="schema")
    file: str
    line: int
    """1-based line of the record in ``file``."""
    id: str
    side: Literal["a", "b"] | None = None
    """Which answer of a pair record."""
    run: str = ""
    """Hash of the input, the rubric, the judge, its settings and the limit; empty: not recorded."""
    judgement: Judgement
