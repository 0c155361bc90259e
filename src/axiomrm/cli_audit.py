"""``axiomrm audit``: is this reward worth training on? Text or JSON; exit code 0 ok, 1 weak or harmful."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from axiomrm.cli_groups import grouped
from axiomrm.cli_judge import Loading, judge_for
from axiomrm.data.jsonl import Rejected
from axiomrm.data.openai_chat import to_trajectory
from axiomrm.data.reading import stream_trajectories
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.writing import atomic_file, check_free, check_output, check_rejected, write_rejected
from axiomrm.errors import ConfigError, DataError
from axiomrm.policy_opt.audit.metadata import recorded
from axiomrm.policy_opt.audit.rollouts import audit
from axiomrm.policy_opt.audit.verdict import Audit, Interval
from axiomrm.policy_opt.rewards.base import TurnScores
from axiomrm.rubrics import Rubric
from axiomrm.score_summary import items_for_a_model

SHOWN = 5
"""Reasons and criteria listed."""


@dataclass(frozen=True)
class Files:
    """What is written where."""

    out: Annotated[Path | None, typer.Option(help="write the JSON here too")] = None
    rejected: Annotated[
        Path | None, typer.Option(help="bad records; default: ROLLOUTS.rejected.jsonl, here")
    ] = None
    replace: Annotated[bool, typer.Option("--replace", help="write over what --out names")] = False


@grouped
def audit_file(
    rollouts: Annotated[Path, typer.Argument(help="rollouts with outcomes (OpenAI chat format), JSONL")],
    rubric: Annotated[
        str | None, typer.Option("--rubric", "-r", help="ask this rubric; default: turn_rewards of the file")
    ] = None,
    model: Annotated[str | None, typer.Option(help="judge: checkpoint folder, hub id or URL")] = None,
    served_model: Annotated[str, typer.Option(help="model name at a server")] = "",
    solved: Annotated[float, typer.Option(help="least outcome of a success")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of text")] = False,
    spot_checks: Annotated[int, typer.Option(min=0, help="rollouts to read for each reason")] = 3,
    seed: Annotated[int, typer.Option(min=0, help="of the bootstrap")] = 0,
    *,
    files: Files,
) -> None:
    """Say whether a process reward predicts success, and whether it looks gamed, before training on it.

    The grade is ok, weak or harmful; only ok exits with 0. Bad records stand in ROLLOUTS.rejected.jsonl.
    """
    loading = Loading(model=model, served_model=served_model)
    _refuse_idle(loading, rubric)
    if not math.isfinite(solved):
        raise ConfigError(f"--solved {solved}: expected a finite number")
    loaded = None if rubric is None else _loaded(rubric, loading)
    beside = files.rejected or Path(f"{rollouts.stem}.rejected.jsonl")
    _check(files, beside, [rollouts, *(() if loaded is None else loaded.files)])
    read = _read(rollouts, beside)
    answers = None if loaded is None else _ask(read, loaded, loading)
    found = audit(read, answers, spot_checks=spot_checks, seed=seed, solved=solved)
    if files.out is not None:
        with atomic_file(files.out) as handle:
            handle.write(found.model_dump_json(indent=1) + "\n")
    typer.echo(found.model_dump_json(indent=1) if as_json else "\n".join(lines(found)))
    if found.verdict != "ok":
        raise typer.Exit(1)


def _refuse_idle(loading: Loading, rubric: str | None) -> None:
    if loading.model is not None and rubric is None:
        raise ConfigError(
            f"--model {loading.model}: a judge needs a --rubric to ask; without one turn_rewards are read"
        )
    if loading.served_model and not loading.served:
        raise ConfigError(
            f"--served-model {loading.served_model}: is of a server; "
            f"--model {loading.model} is no http:// URL"
        )


def _check(files: Files, beside: Path, inputs: Sequence[Path]) -> None:
    if files.rejected is not None:
        check_output(files.rejected, inputs, (), "--rejected ")
    if files.out is not None:
        check_output(files.out, inputs, (beside,))
        check_free(files.out, files.replace, "--out ")


def _read(rollouts: Path, beside: Path) -> list[Trajectory]:
    """The rollouts that can be read; the others go to ``beside``."""
    rejected: list[Rejected] = []
    read = list(stream_trajectories(rollouts, rejected, _rollout))
    if rejected:
        try:
            check_rejected(beside, f"audit {rollouts}")
            write_rejected(beside, rejected)
        except OSError as error:
            raise ConfigError(
                f"{beside}: {len(rejected)} rejected records cannot be written there ({error.strerror}); "
                f"name another file with --rejected FILE; the first: {rejected[0]}"
            ) from error
        typer.echo(f"{len(rejected)} records rejected, see {beside}", err=True)
    if not read:
        first = f"; first: {rejected[0]}" if rejected else ""
        raise DataError(f"{rollouts}: no rollout could be read ({len(rejected)} records rejected{first})")
    return read


def _rollout(record: Mapping[str, Any]) -> Trajectory:
    return recorded(to_trajectory(record))


def _loaded(rubric: str, loading: Loading) -> Rubric:
    loaded = Rubric.load(rubric)
    needing = items_for_a_model(loaded)
    if needing and loading.model is None:
        raise ConfigError(
            f"--rubric {rubric}: {len(needing)} of its items need a judge model: --model FOLDER, "
            f"hub id or URL ({', '.join(sorted(needing))})"
        )
    return loaded


def _ask(read: Sequence[Trajectory], rubric: Rubric, loading: Loading) -> list[TurnScores]:
    from axiomrm.policy_opt.rewards.judge import programmatic_reward, rubric_judge

    if loading.model is not None:
        return rubric_judge(judge_for(loading, {}), rubric)(read)
    return programmatic_reward(rubric)(read)


def lines(found: Audit) -> Iterator[str]:
    """The audit in words."""
    yield f"{found.verdict}: {_summary(found)}"
    yield from (f"  because {reason}" for reason in found.reasons)
    yield from (f"  note: {note}" for note in found.notes)
    yield f"suggested beta {found.suggested_beta:g}"
    unit = "rollouts, pooled over tasks" if found.pooled else "groups whose outcome varies"
    yield f"does the reward predict success? disc {_interval(found.disc)} over {found.disc.n} {unit}"
    for name, item in list(found.items.items())[:SHOWN]:
        yield f"  {name}: disc {_interval(item.disc)}{_share(item.variance_share)}"
    yield "reward and length: " + _numbers(found.correlations, "{:.2f}")
    yield "habits: " + _numbers(found.habits, "{:.0%}")
    if found.failures_among_best is not None:
        yield f"failures among the tenth rewarded most: {found.failures_among_best:.0%}"
    yield from _missing(found)
    for lie in found.lying_tools[:SHOWN]:
        told = " but ".join(f"{a!r} at {w}" for a, w in zip(lie.answers, lie.where, strict=True))
        yield f"tool {lie.tool} {lie.arguments} answered {told}"
    if found.spot_checks:
        yield "read these:"
    for look in found.spot_checks:
        outcome = "none" if look.outcome is None else f"{look.outcome:g}"
        yield f"  {look.id}: {look.why} (reward {look.reward:.2f}, outcome {outcome})"


def _summary(found: Audit) -> str:
    threshold = "" if found.solved_at == 1 else f" (outcome at least {found.solved_at:g})"
    success = "no outcome known" if found.success is None else f"{found.success:.0%} solved{threshold}"
    return f"{found.rollouts} rollouts of {found.groups} tasks, {found.turns} turns, {success}"


def _missing(found: Audit) -> Iterator[str]:
    if found.missing_share is None:
        yield "no turn was to be judged; the reward is that of whole rollouts"
        return
    yield f"turns without a reward: {found.missing_share:.1%} of {found.verdicts}"
    for reason, count in sorted(found.missing.items(), key=lambda x: -x[1])[:SHOWN]:
        yield f"  {reason}: {count}"


def _share(found: float | None) -> str:
    # Adding 0 takes the sign off a share that rounds to nothing.
    return "" if found is None else f", {round(found, 2) + 0.0:.0%} of the reward's variance"


def _interval(found: Interval) -> str:
    if found.value is None:
        return "unknown"
    if found.low is None or found.high is None:
        return f"{found.value:.2f} (no interval)"
    return f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _numbers(values: dict[str, float | None], form: str) -> str:
    return ", ".join(f"{k} {'unknown' if v is None else form.format(v)}" for k, v in values.items())
