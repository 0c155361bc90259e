"""Verbs ``run``, ``train`` and ``report``: the pipeline on the command line."""

import importlib
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Literal, NoReturn

import typer

from axiomrm.config import RunConfig, load_config
from axiomrm.config_file import OVERRIDE
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.algorithms.presets import PRESETS
from axiomrm.progress import reporter_for_terminal
from axiomrm.runner import Interrupted, RunResult, Stage, read_run, run_one, run_pipeline

PIPELINE = (
    "synthesize",
    "cold_start",
    "rm_general",
    "rm_rubric",
    "rm_personal",
    "policy",
    "evaluate",
    "report",
)
"""Stages in order; ``axiomrm.stages.<name>`` has ``run(context)`` and may have ``check(config)``."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)
train_app = typer.Typer(help="Train one part: rm (a judge stage) or policy.", no_args_is_help=True)
app.add_typer(train_app, name="train")

Config = Annotated[Path, typer.Argument(help="YAML file, e.g. configs/quickstart.yaml.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="Changes, e.g. policy.train.iterations=5.")]
Name = Annotated[
    str | None, typer.Option("--name", help="Folder under the runs folder; default: the config's.")
]
RunsDir = Annotated[Path, typer.Option("--runs-dir", envvar="AXIOMRM_RUNS", help="Where run folders lie.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Delete what an earlier run left in the folder.")]
AcceptCode = Annotated[
    bool, typer.Option("--accept-code-change", help="Go on with a run that other code or libraries began.")
]
StageName = Annotated[
    Literal["general", "rubric", "personal"], typer.Option("--stage", help="Last judge stage to train.")
]

AlgorithmName = Annotated[
    str | None,
    typer.Option(
        "--algorithm",
        help=f"Train with this one alone, without the config's other arms: {', '.join(PRESETS)}.",
    ),
]


class Stopped(KeyboardInterrupt):
    """The process was asked to end by a signal."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@app.command("run")
def run_command(
    config: Config,
    overrides: Overrides = None,
    name: Name = None,
    runs_dir: RunsDir = Path("runs"),
    fresh: Fresh = False,
    accept_code_change: AcceptCode = False,
) -> None:
    """Run the pipeline of a configuration; a run that was stopped goes on where it was."""
    result = _run(_load(config, overrides, name), runs_dir, None, fresh, accept_code_change)
    typer.echo(f"run folder: {result.run_dir}")
    report = result.run_dir / "report.html"
    if report.exists():
        typer.echo(f"report: {report.resolve()}")


@train_app.command("rm")
def train_rm(
    config: Config,
    overrides: Overrides = None,
    stage: StageName = "personal",
    name: Name = None,
    runs_dir: RunsDir = Path("runs"),
    fresh: Fresh = False,
    accept_code_change: AcceptCode = False,
) -> None:
    """Train the judge up to a stage, with what that needs."""
    result = _run(_load(config, overrides, name), runs_dir, f"rm_{stage}", fresh, accept_code_change)
    typer.echo(f"judge: {result.run_dir / f'rm_{stage}'}")


@train_app.command("policy")
def train_policy(
    config: Config,
    overrides: Overrides = None,
    algorithm: AlgorithmName = None,
    name: Name = None,
    runs_dir: RunsDir = Path("runs"),
    fresh: Fresh = False,
    accept_code_change: AcceptCode = False,
) -> None:
    """Train the policy, with the judge and the cold start that it needs."""
    chosen = {} if algorithm is None else _only(algorithm)
    loaded = _load(config, overrides, name, chosen)
    result = _run(loaded, runs_dir, "policy", fresh, accept_code_change)
    typer.echo(f"policy: {result.run_dir / 'policy'}")


@app.command("report")
def report_command(run: Annotated[Path, typer.Argument(help="Run folder, e.g. runs/quickstart.")]) -> None:
    """Write report.html of a run again."""
    if "evaluate" not in read_run(run).records:
        again = f"axiomrm run {run / 'config.yaml'} --runs-dir {run.resolve().parent}"
        raise ConfigError(
            f"{run}: nothing has been measured yet, stage evaluate has not finished; go on with: {again}"
        )
    config = load_config(run / "config.yaml")
    run_one(load_stages(("report",))[0], run, config, reporter_for_terminal())
    typer.echo(f"report: {(run / 'report.html').resolve()}")


def load_stages(names: Sequence[str] = PIPELINE) -> list[Stage]:
    """The stages of the pipeline; their modules bring torch, so they are imported here and not before."""
    modules = {name: importlib.import_module(f"axiomrm.stages.{name}") for name in names}
    stages = [Stage(name, module.run, getattr(module, "check", None)) for name, module in modules.items()]
    importlib.import_module("transformers.utils.logging").disable_progress_bar()  # one bar, the CLI's own
    return stages


def _only(algorithm: str) -> dict[str, str]:
    """Overrides that make an algorithm the one arm, and what was typed; later ones may change it."""
    if algorithm not in PRESETS:
        raise ConfigError(f"--algorithm {algorithm!r}: there is none; known: {', '.join(PRESETS)}")
    settings = PRESETS[algorithm].model_dump_json()
    return dict.fromkeys((f"policy.train.algorithm={settings}", "policy.arms={}"), f"--algorithm {algorithm}")


def _load(
    config: Path, overrides: Sequence[str] | None, name: str | None, chosen: Mapping[str, str] | None = None
) -> RunConfig:
    """The configuration; an error names an option as it was typed, not the override that it stands for.

    Args:
        config: the YAML file.
        overrides: typed by the user.
        name: of ``--name``.
        chosen: overrides of other options, before the user's own: what was typed for each.
    """
    chosen = chosen or {}
    named = {} if name is None else {f"name={json.dumps(name)}": f"--name {name!r}"}
    try:
        return load_config(config, [*chosen, *(overrides or []), *named])
    except ConfigError as error:
        message = str(error)
        for override, typed in {**chosen, **named}.items():
            message = message.replace(f"{OVERRIDE}{override!r}", typed)
        raise ConfigError(message) from error


def _run(
    config: RunConfig, runs_dir: Path, until: str | None, fresh: bool, accept_code_change: bool
) -> RunResult:
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(config.threads)  # read once, when torch is imported
    names = PIPELINE if until is None else PIPELINE[: PIPELINE.index(until) + 1]
    try:
        with _sigterm_as_interrupt():
            return run_pipeline(
                load_stages(names),
                config,
                runs_dir,
                fresh=fresh,
                accept_code_change=accept_code_change,
                reporter=reporter_for_terminal(),
            )
    except KeyboardInterrupt as stop:
        raise _stopped(stop, runs_dir / config.name, fresh) from None


def _stopped(stop: KeyboardInterrupt, run_dir: Path, fresh: bool) -> typer.Exit:
    """Say how the run is taken up again, and the exit code of what stopped it."""
    if not isinstance(stop, Interrupted) and not fresh and (run_dir / "manifest.json").exists():
        typer.echo(f"stopped before the run went on; the same command goes on from {run_dir}", err=True)
    elif not isinstance(stop, Interrupted):
        typer.echo("stopped before the run began; the same command begins it", err=True)
    elif fresh:
        typer.echo(f"stopped; the same command without --fresh goes on from {run_dir}", err=True)
    else:
        typer.echo(f"stopped; the same command goes on from {run_dir}", err=True)
    cause = stop.__cause__ if isinstance(stop, Interrupted) else stop
    return typer.Exit(128 + (cause.number if isinstance(cause, Stopped) else signal.SIGINT))


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """A scheduler's polite kill ends a run as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise Stopped(number)

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError as error:
        raise ConfigError("axiomrm run has to be called from the main thread") from error
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
