"""``axiomrm forget``: a user withdrew consent, so their dialogues leave a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from axiomrm.cli_run import report_command
from axiomrm.config import RunConfig, load_config
from axiomrm.data.jsonl import Rejected, read_records
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.rewards.users import named_subject
from axiomrm.runlock import run_lock
from axiomrm.runner import read_run
from axiomrm.stage_files import TRANSCRIPTS, clean_partial, restamp


def forget(
    run: Annotated[Path, typer.Argument(help="run folder, e.g. runs/quickstart")],
    subject: Annotated[str, typer.Argument(help="the user's opaque token")],
) -> None:
    """Take a user's dialogues out of a run: stored rollouts, transcripts, their reward's scale, the report.

    What weights have learned stays, and so do sums over many rollouts. Stop a run that is going on first.
    """
    measured = "evaluate" in read_run(run).records
    arms = {
        training.parent: kept
        for training in sorted(run.glob("policy/*/training"))
        if (kept := _kept(training))
    }
    if not arms:
        raise ConfigError(f"{run}: no policy was trained here yet, so it holds nobody's dialogues")
    with run_lock(run):
        clean_partial(run / "policy")
        for arm in arms:
            _take_out(arm, subject)
        restamp(run / "policy", [file for kept in arms.values() for file in kept])
    if measured and (run / "report.html").exists():
        report_command(run)
    for path in _profiles_with(load_config(run / "config.yaml"), subject):
        typer.echo(f"{path}: take the user's line out of it too, before the run goes on", err=True)


def _kept(training: Path) -> list[Path]:
    """Files of an arm that hold dialogues."""
    from axiomrm.policy_opt.forgetting import own_transcripts  # torch

    transcripts = [*own_transcripts(training), *(training.parent / name for name in TRANSCRIPTS)]
    return [*filter(Path.is_file, transcripts), *training.glob("checkpoint-*/state.json")]


def _take_out(arm: Path, subject: str) -> None:
    from axiomrm.policy_opt.forgetting import forget_subject  # torch

    gone = forget_subject(arm / "training", subject, [arm / name for name in TRANSCRIPTS])
    typer.echo(f"{arm.name}: {gone.stored} stored rollouts, {gone.transcripts} rows of transcripts")


def _profiles_with(config: RunConfig, subject: str) -> Iterator[Path]:
    for path in sorted(set(config.profile_paths().values())):
        rows = [item.value for item in read_records(path) if not isinstance(item, Rejected)]
        if any(named_subject(row) == subject for row in rows):
            yield path
