"""Trajectories against bound rubrics: what to ask, whom to ask, and what becomes of the answers.

All model questions of all trajectories of a call go to the engine together; the rest is answered in place.
Which criteria apply comes from the task and, for turn items, from the prefix before the judged message.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Failed, Verdict
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.asking import VerdictRequest
from axiomrm.rm.criteria import criterion_of, settled
from axiomrm.rm.judgement import Judgement, TurnJudgement
from axiomrm.rubrics import ActiveAxiom, ActiveItem, ActiveRubric, Aggregate, Rubric, aggregate, judge
from axiomrm.rubrics.model import LlmJudge

Item = ActiveItem | ActiveAxiom
Unit = int | None


@dataclass
class _Plan:
    """One trajectory with its questions."""

    trajectory: Trajectory
    active: ActiveRubric
    turns: list[ActiveRubric]
    """The rubric bound to the prefix of each turn."""
    asked: list[tuple[Item, Unit]] = field(default_factory=list)
    answers: dict[tuple[str, Unit], Verdict] = field(default_factory=dict)


def judge_all(
    pairs: Sequence[tuple[Trajectory, ActiveRubric]],
    ask: Callable[[Sequence[VerdictRequest]], list[Verdict]],
    judge_revision: str,
    calibration: str = "",
) -> list[Judgement]:
    """One judgement a pair, in order.

    Args:
        pairs: trajectories with the rubric bound to their task.
        ask: answers the questions that need a model.
        judge_revision: goes into every judgement, like ``calibration``.
        calibration: hash of the calibrator that ``ask`` applies.

    Raises:
        DataError: a turn feature without default has no record in some prefix.
    """
    plans = [_plan(trajectory, active) for trajectory, active in pairs]
    requests = [_request(p, item, turn) for p in plans for item, turn in p.asked]
    answers = iter(ask(requests))
    for plan in plans:
        for item, turn in plan.asked:
            plan.answers[item.id, turn] = settled(item, next(answers))
    stamps = {"judge_revision": judge_revision, "calibration": calibration}
    return [_judgement(plan, stamps) for plan in plans]


def bound(trajectory: Trajectory, rubric: Rubric) -> ActiveRubric | Failed:
    """The rubric bound to the trajectory's task, or why it cannot be, at any of its turns."""
    try:
        active = rubric.bind(trajectory.task.features, task=trajectory.task_id or trajectory.id)
        for turn in trajectory.turns:
            active.at_turn(trajectory.before(turn.index))
    except DataError as error:
        return Failed(kind="bad_input", detail=str(error))
    return active


def _plan(trajectory: Trajectory, active: ActiveRubric) -> _Plan:
    turns = [active.at_turn(trajectory.before(turn.index)) for turn in trajectory.turns]
    plan = _Plan(trajectory, active, turns)
    units: list[tuple[Unit, ActiveRubric]] = [(None, active), *enumerate(turns)]
    for unit, rubric in units:
        for item in _items(rubric):
            if (item.evidence.level == "turn") != (unit is not None):
                continue
            if item.judge.kind == "llm":
                plan.asked.append((item, unit))
            else:
                plan.answers[item.id, unit] = _programmatic(item, trajectory, unit)
    return plan


def _items(rubric: ActiveRubric) -> list[Item]:
    return [*rubric.axioms, *rubric.items]


def _programmatic(item: Item, trajectory: Trajectory, turn: Unit) -> Verdict:
    # A judge function runs on logs found in the wild: its crash is one missing verdict, not the batch's end.
    try:
        return judge(item, trajectory, turn)
    except ConfigError:
        raise
    except Exception as error:
        return Failed(kind="infrastructure", detail=f"{item.id}: {type(error).__name__}: {error}")


def _request(plan: _Plan, item: Item, turn: Unit) -> VerdictRequest:
    asked = item.judge if item.judge.kind == "llm" else LlmJudge(kind="llm")
    return VerdictRequest(
        plan.trajectory,
        criterion_of(item),
        turn,
        plan.active.guidelines,
        asked.votes,
        mode=asked.mode,
        majority=isinstance(item, ActiveAxiom),
    )


def _judgement(plan: _Plan, stamps: Mapping[str, str]) -> Judgement:
    turns = tuple(_turn(plan, t, rubric) for t, rubric in enumerate(plan.turns))
    whole: dict[str, Verdict | list[Verdict | None]] = {}
    for item in _items(plan.active):
        if item.evidence.level == "turn":
            whole[item.id] = [plan.answers.get((item.id, t)) for t in range(len(plan.turns))]
        elif (item.id, None) in plan.answers:
            whole[item.id] = plan.answers[item.id, None]
    result = aggregate(plan.active, whole)
    return Judgement(
        id=plan.trajectory.id,
        verdicts={name: v for name, v in whole.items() if not isinstance(v, list)},
        turns=turns,
        rubric_hash=plan.active.rubric_hash,
        compiled_hash=plan.active.compiled_hash,
        **stamps,
        usage={"model_verdicts": len(plan.asked), "verdicts": len(plan.answers)},
        rank_key=result.rank_key,
        **_fields(result),
    )


def _turn(plan: _Plan, turn: int, rubric: ActiveRubric) -> TurnJudgement:
    here = {item.id: plan.answers[item.id, turn] for item in _items(rubric)}
    return TurnJudgement(index=turn, verdicts=here, **_fields(aggregate(rubric, here)))


def _fields(result: Aggregate) -> dict[str, Any]:
    return {
        "reward": result.reward,
        "interval": result.interval,
        "coverage": result.coverage,
        "gate": result.gate,
        "violated_axioms": result.violated_axioms,
        "reason": result.reason,
    }
