"""What ``RewardModel.score`` returns."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict


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

    id: str = ""
    """The trajectory's id."""
    reward: float | None
    """``None``: abstained, see ``reason``; no gradient, no place in a mean."""
    interval: tuple[float, float]
    """Where the reward lies whatever the missing verdicts turn out to be."""
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
    usage: dict[str, int] = Field(default_factory=dict)
    rank_key: tuple[bool, float, float] | None = None
    """Larger is better: no hard violation, then gate, then value before it; ``None`` if abstaining."""

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
        """JSON with a fixed order of fields."""
        return self.model_dump_json()

    def explain(self) -> str:
        """The judgement in words, one criterion a line."""
        lines = [f"{self.id or 'trajectory'}: {_headline(self)}"]
        lines += [f"  {name}: {_sentence(verdict)}" for name, verdict in self.verdicts.items()]
        for turn in self.turns:
            lines.append(f"  t{turn.index + 1}: {_headline(turn)}")
            lines += [f"    {name}: {_sentence(verdict)}" for name, verdict in turn.verdicts.items()]
        flags = sorted(
            {flag for _, _, verdict in self.all_verdicts() for flag in getattr(verdict, "flags", ())}
        )
        return "\n".join([*lines, *([f"  flags: {', '.join(flags)}"] if flags else [])])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'' if turn is None else f't{turn + 1}'}</td><td>{html.escape(name)}</td>"
            f"<td>{html.escape(_sentence(verdict))}</td></tr>"
            for turn, name, verdict in self.all_verdicts()
        )
        head = f"<b>{html.escape(self.id)}</b> {html.escape(_headline(self))}"
        return (
            f"<div>{head}<table><tr><th>turn</th><th>criterion</th><th>verdict</th></tr>{rows}</table></div>"
        )


class PairJudgement(_Value):
    """Two judgements of one task, compared."""

    winner: Literal["a", "b", "tie"] | None
    """``None``: one side abstained."""
    margin: float | None
    """Reward of a minus reward of b."""
    a: Judgement
    b: Judgement


class Ranked(_Value):
    """One candidate's place."""

    index: int
    """Position in the call."""
    place: int | None
    """From 1; candidates within the tie band share one; ``None``: abstained."""
    judgement: Judgement


def outcome(verdict: Verdict) -> str:
    """``scored``, ``cannot_assess`` or ``failed:<kind>``."""
    return f"failed:{verdict.kind}" if isinstance(verdict, Failed) else verdict.status


def ahead(a: Judgement, b: Judgement, tie_band: float) -> Literal["a", "b", "tie"] | None:
    """Which of two is better: a hard violation loses, else the reward, with a band of ties."""
    if a.reward is None or b.reward is None or a.rank_key is None or b.rank_key is None:
        return None
    if a.rank_key[0] != b.rank_key[0]:
        return "a" if a.rank_key[0] else "b"
    if abs(a.reward - b.reward) <= tie_band:
        return "tie"
    return "a" if a.reward > b.reward else "b"


def _headline(unit: Judgement | TurnJudgement) -> str:
    low, high = unit.interval
    reward = "abstains" if unit.reward is None else f"{unit.reward:.3f}"
    parts = [f"reward {reward} in [{low:.2f}, {high:.2f}]", f"coverage {unit.coverage:.2f}"]
    parts.append("gate unknown" if unit.gate is None else f"gate {unit.gate:g}")
    parts += [f"violated: {', '.join(unit.violated_axioms)}"] if unit.violated_axioms else []
    return "; ".join([*parts, *([unit.reason] if unit.reason else [])])


def _sentence(verdict: Verdict) -> str:
    if isinstance(verdict, Failed):
        return f"failed ({verdict.kind}): {verdict.detail}"
    if isinstance(verdict, CannotAssess):
        return f"cannot assess: {verdict.reason}"
    return _scored(verdict)


def _scored(verdict: Scored) -> str:
    shares = _shares(verdict.distribution)
    quotes = "".join(f' [t{e.turn + 1} {e.status}: "{e.quote}"]' for e in verdict.evidence)
    notes = f" — {verdict.critique}" if verdict.critique else ""
    return f"{verdict.value:.3f} {verdict.label}{shares}{notes}{quotes}"


def _shares(distribution: Mapping[str, float]) -> str:
    if not distribution:
        return ""
    return " (" + ", ".join(f"{label} {p:.2f}" for label, p in distribution.items()) + ")"


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
    judgement: Judgement
