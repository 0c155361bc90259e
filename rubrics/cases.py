"""The ``cases`` of a rubric as small trajectories, and whether verdicts on them come out as written."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.rubrics.cells import Undecided, first_model
from axiomrm.rubrics.expr import parse
from axiomrm.rubrics.model import Axiom, Case, Theorem

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric


@dataclass(frozen=True)
class CaseUnit:
    """One side of one case, ready to be judged."""

    item: Axiom | Theorem
    index: int
    side: Literal["good", "bad"]
    trajectory: Trajectory
    """A user message with the case's note, then the text as the only assistant message."""

    @property
    def name(self) -> str:
        """``th.concise cases[0].good``."""
        return f"{self.item.id} cases[{self.index}].{self.side}"

    @property
    def wants_high(self) -> bool:
        """Whether a right verdict is at least one half: good for rewards and axioms, bad for penalties."""
        penalty = isinstance(self.item, Theorem) and self.item.polarity == "penalty"
        return (self.side == "good") != penalty

    def right(self, verdict: Scored | CannotAssess | Failed) -> bool | None:
        """Whether the verdict comes out as written; ``None``: it has no value."""
        if not isinstance(verdict, Scored):
            return None
        return (verdict.value >= 0.5) == self.wants_high


def case_units(rubric: "Rubric") -> Iterator[CaseUnit]:
    """Both sides of all cases of active axioms and theorems."""
    items: list[Axiom | Theorem] = [*rubric.axioms, *rubric.theorems]
    for item in items:
        for index, case in enumerate(item.cases):
            features = _features(rubric, item, case)
            sides: tuple[tuple[Literal["good", "bad"], str | None], ...] = (
                ("good", case.good),
                ("bad", case.bad),
            )
            for side, text in sides:
                if text is not None and features is not None:
                    yield CaseUnit(item, index, side, _trajectory(item.id, case, text, features))


def _features(rubric: "Rubric", item: Axiom | Theorem, case: Case) -> dict[str, Any] | None:
    """Features under which the item applies: those of the case, then defaults, then the first scenario."""
    given = {n: s.default for n, s in rubric.features.items() if s.default is not None} | dict(case.features)
    condition = parse(item.applies_when)
    for fixed in (given, dict(case.features)):
        try:
            found = first_model([condition], rubric.variables, fixed)
        except Undecided:
            return None
        if found is not None:
            chosen = {**fixed, **{k: v for k, v in found.items() if k in rubric.features}}
            return {n: chosen.get(n, _any(rubric, n)) for n in rubric.features}
    return None


def _any(rubric: "Rubric", name: str) -> Any:
    spec = rubric.features[name]
    if spec.default is not None:
        return spec.default
    if spec.type == "enum":
        return spec.values[0]
    return spec.range[0] if spec.range is not None else False


def _trajectory(name: str, case: Case, text: str, features: dict[str, Any]) -> Trajectory:
    messages = (
        Message(role="user", content=case.note or "(no message)"),
        Message(role="assistant", content=text),
    )
    return Trajectory(id=name, task_id=name, task=Task(id=name, features=features), messages=messages)
