"""``axiomrm rubric test``: runs cases and transcripts; only the items of kind llm need a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from axiomrm.data.jsonl import Rejected
from axiomrm.data.reading import stream_trajectories
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.errors import DataError, RubricError
from axiomrm.rubrics import ActiveAxiom, ActiveItem, Rubric, judge
from axiomrm.rubrics.cases import CaseUnit, case_units
from axiomrm.rubrics.judges import READS_CALLS

if TYPE_CHECKING:
    from axiomrm.rm.reward_model import RewardModel

Outcome = Scored | CannotAssess | Failed | None


def test(
    rubric: Annotated[str, typer.Argument(help="file or library name")],
    transcripts: Annotated[list[Path] | None, typer.Argument(help="chat logs (JSONL)")] = None,
    judge_model: Annotated[str | None, typer.Option("--judge", help="checkpoint folder or hub id")] = None,
    rubric_path: Annotated[
        list[Path] | None, typer.Option("--rubric-path", help="folder for imports")
    ] = None,
) -> None:
    """Run cases and transcripts; exit 1 if a case comes out wrong, 2 if a file cannot be read."""
    try:
        loaded = Rubric.load(rubric, search=tuple(rubric_path or ()))
    except RubricError as error:
        if not error.findings:
            raise
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error
    model = _model(judge_model)
    wrong = _cases(loaded, model)
    unread = 0
    for path in transcripts or ():
        try:
            _transcripts(loaded, path, model)
        except DataError as error:
            unread += 1
            typer.echo(f"axiomrm: {error}", err=True)
    raise typer.Exit(2 if unread else 1 if wrong else 0)


def _model(name: str | None) -> "RewardModel | None":
    if name is None:
        return None
    from axiomrm.cli_judge import Loading, as_typed, local

    with as_typed("--judge"):
        return local(name, Loading(), option="--judge")


def _cases(rubric: Rubric, model: "RewardModel | None") -> int:
    right = wrong = skipped = 0
    for unit in case_units(rubric):
        verdict = _verdict(rubric, unit, model)
        passed = unit.right(verdict) if verdict is not None else None
        skipped += passed is None
        right += passed is True
        wrong += passed is False
        if passed is False and isinstance(verdict, Scored):
            wanted = "at least" if unit.wants_high else "below"
            typer.echo(f"wrong  {unit.name}: value {verdict.value:.3g}, {wanted} 0.5 was expected")
    need = "; items of kind llm need --judge" if model is None and skipped else ""
    typer.echo(f"cases: {right} right, {wrong} wrong, {skipped} without a verdict{need}")
    return wrong


def _verdict(rubric: Rubric, unit: CaseUnit, model: "RewardModel | None") -> Outcome:
    active = rubric.bind(unit.trajectory.task.features, task=unit.name)
    for item in active.judged:
        if item.id != unit.item.id:
            continue
        if item.judge.kind == "programmatic" and item.judge.fn in READS_CALLS:
            return None  # a case is a text
        if item.judge.kind != "llm":
            return judge(item, unit.trajectory, 0 if item.evidence.level == "turn" else None)
        if model is not None:
            found = model.score(unit.trajectory, rubric).all_verdicts()
            return next((v for _, name, v in found if name == item.id), None)
    return None


def _transcripts(rubric: Rubric, path: Path, model: "RewardModel | None") -> None:
    rejected: list[Rejected] = []
    for trajectory in stream_trajectories(path, rejected):
        try:
            for line in _lines(rubric, trajectory, model):
                typer.echo(line)
        except DataError as error:
            typer.echo(f"{trajectory.id}: not scored: {error}")
    for bad in rejected:
        typer.echo(f"rejected {bad}", err=True)


def _lines(rubric: Rubric, trajectory: Trajectory, model: "RewardModel | None") -> Iterator[str]:
    if model is not None:
        judgement = model.score(trajectory, rubric)
        reward = "abstains" if judgement.reward is None else f"{judgement.reward:.3f}"
        yield f"{trajectory.id}: reward {reward} {judgement.reason}".rstrip()
    active = rubric.bind(trajectory.task.features, task=trajectory.task_id or trajectory.id)
    for item in active.judged:
        if item.judge.kind != "llm" and item.evidence.level == "trajectory":
            yield _line(trajectory, item, None)
    for turn in trajectory.turns:
        for item in active.at_turn(trajectory.before(turn.index)).judged:
            if item.judge.kind != "llm":
                yield _line(trajectory, item, turn.index)


def _line(trajectory: Trajectory, item: ActiveItem | ActiveAxiom, turn: int | None) -> str:
    verdict = judge(item, trajectory, turn)
    place = "" if turn is None else f" t{turn + 1}"
    if isinstance(verdict, Scored):
        return f"{trajectory.id}{place} {item.id}: {verdict.value:.3g} {verdict.label}".rstrip()
    why = verdict.reason if isinstance(verdict, CannotAssess) else f"{verdict.kind} {verdict.detail}"
    return f"{trajectory.id}{place} {item.id}: {verdict.status} ({why})"
