"""``axiomrm calibrate``: what a judge's probabilities are worth, from labels given by people."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from axiomrm.cli_groups import given, grouped
from axiomrm.data.writing import check_free, check_target
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.calibration import CALIBRATION_FILE, Calibration, Entry, write_calibration
from axiomrm.rm.calibration_fit import MIN_LABELS, Method, fit_calibration
from axiomrm.rm.engines.loading import EngineKind
from axiomrm.rm.gating import MAX_LOSS, GatePoint, choose_gate
from axiomrm.rm.labelled import (
    described,
    gate_pairs,
    join_files,
    label_sets,
    read_labels,
    read_scored,
    read_verdicts,
)
from axiomrm.rm.prompt import View
from axiomrm.rm.request import Asking, Overflow
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric

SHOWN = 12
"""Gates in the printed table."""
GATE_WIDTH = 10
"""Characters of its first column; a gate between two very close confidences takes more."""

app = typer.Typer(
    help="Fit a calibrator, or pick a gate, from labelled verdicts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
LabelFile = Annotated[Path, typer.Option("--labels", help="labels by people, JSONL")]
RubricName = Annotated[str, typer.Option("--rubric", "-r", help="the rubric that they were scored with")]


@dataclass(frozen=True)
class Judged:
    """What of ``axiomrm score``'s options makes the judge of the rows another one; without a mode."""

    engine: Annotated[EngineKind, typer.Option(help="as the rows were scored")] = "transformers"
    dtype: Annotated[str, typer.Option(help="as the rows were scored")] = "float32"
    device: Annotated[str | None, typer.Option(help="torch device; default: the CPU")] = None
    url: Annotated[
        str | None, typer.Option(help="servers that scored the rows, with the folder as --tokenizer")
    ] = None
    served_model: Annotated[str, typer.Option(help="model name at the servers")] = ""
    template: Annotated[str | None, typer.Option(help="as the rows were scored")] = None
    joint: Annotated[int, typer.Option(min=1, help="as the rows were scored")] = Asking.joint
    turn_view: Annotated[View, typer.Option(help="as the rows were scored")] = Asking.turn_view
    overflow: Annotated[Overflow, typer.Option(help="as the rows were scored")] = Asking.overflow

    def load(self, folder: Path) -> RewardModel:
        """The judge, without a calibrator.

        Raises:
            ConfigError: it cannot be loaded.
            JudgeError: no server answers.
        """
        asked = {name: getattr(self, name) for name in ("template", "joint", "turn_view", "overflow")}
        if self.url is None:
            place = {name: getattr(self, name) for name in ("engine", "dtype", "device")}
            return RewardModel.from_pretrained(folder, calibration=None, **place, **asked)
        urls = self.url.split(",")
        return RewardModel.connect(urls, model=self.served_model, tokenizer=folder, calibration=None, **asked)


@app.command()
@grouped
def fit(
    ctx: typer.Context,
    scored: Annotated[list[Path], typer.Argument(help="outputs of axiomrm score, without a calibrator")],
    labels: LabelFile,
    rubric: RubricName,
    model: Annotated[Path, typer.Option(help="checkpoint folder that the calibrator will lie in")],
    method: Annotated[
        str, typer.Option(help="temperature, isotonic (after it, yes/no scales), or auto: whichever holds")
    ] = "auto",
    level: Annotated[float, typer.Option(help="of the conformal intervals")] = 0.9,
    source: Annotated[str, typer.Option(help="where the labels are from, in words")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="write over an earlier calibrator")] = False,
    *,
    judged: Judged,
) -> None:
    """Fit a calibrator for each scale and mode, and store it with the checkpoint; 1 if none could be.

    The judge is loaded once, to see that it is the one that scored the rows; its options are those that they
    were scored with.
    """
    _refuse(method, level, judged, ctx)
    if not model.is_dir():
        raise ConfigError(f"--model {model}: there is no such folder to put {CALIBRATION_FILE} into")
    target = model / CALIBRATION_FILE
    check_target(target, (*scored, labels), "--model: ")
    check_free(target, replace, "--model: ")
    found = join_files(read_labels(labels), read_scored(scored), label_sets(Rubric.load(rubric)))
    for line in described(found.left_out):
        typer.echo(line)
    chosen = cast(Method, method)  # checked above
    made = fit_calibration(found.rows, method=chosen, level=level, source=source or labels.name)
    for entry in made.entries:
        typer.echo(_line(entry))
    if all(entry.temperature is None for entry in made.entries):
        typer.echo(f"nothing to store: no scale has {MIN_LABELS} labels")
        raise typer.Exit(1)
    made = _of_judge(made, judged.load(model), f"--model {model}")
    typer.echo(f"written: {write_calibration(model, made)} (data {made.data_hash[:12]})")


def _refuse(method: str, level: float, judged: Judged, ctx: typer.Context) -> None:
    """Raise ``BadParameter`` for what cannot be, and for options that nobody would read."""
    if method not in get_args(Method):
        raise typer.BadParameter(f"{method!r} is none of {list(get_args(Method))}", param_hint="--method")
    if not 0 < level < 1:
        raise typer.BadParameter(f"{level} is not between 0 and 1", param_hint="--level")
    idle = ("served_model",) if judged.url is None else ("engine", "dtype", "device")
    typed = [option for name, option in given(ctx).items() if name in idle]
    if typed or (judged.url and not judged.served_model):
        raise typer.BadParameter(
            "servers have a --url and a --served-model; a model that runs here has engine, dtype and device",
            param_hint=" and ".join(typed or ["--url"]),
        )


def _of_judge(made: Calibration, judge: RewardModel, place: str) -> Calibration:
    """The calibrator as this judge loads it: each entry under the revision of its own mode.

    Rows may have been scored in that mode, or in none, each criterion in its own.

    Raises:
        DataError: they were scored by another judge, or in gated mode, where which answers get notes depends
            on the answers.
    """
    entries = []
    for entry in made.entries:
        plain = judge.with_settings(readout=entry.readout)
        own = plain.with_settings(mode=entry.mode).judge_revision
        if entry.judge_revision not in (own, plain.judge_revision):
            raise DataError(
                f"{place}: is judge {own[:12]} in {entry.mode} mode, the rows were scored by "
                f"{entry.judge_revision[:12]}, whose calibrator it could not load: name the folder and the "
                "options that they were scored with; rows of gated mode make no calibrator: score in direct "
                "and critique mode, and give both files"
            )
        entries.append(entry.model_copy(update={"judge_revision": own}))
    return made.model_copy(update={"entries": tuple(entries)})


@app.command()
def gate(
    direct: Annotated[Path, typer.Argument(help="axiomrm score, mode direct")],
    critique: Annotated[Path, typer.Argument(help="the same recordings, mode critique")],
    labels: LabelFile,
    rubric: RubricName,
    max_loss: Annotated[
        float, typer.Option(min=0, max=100, help="points of agreement that may be lost")
    ] = 100 * MAX_LOSS,
) -> None:
    """Pick the cheapest gate that agrees with people almost as often as critiques everywhere."""
    sets = label_sets(Rubric.load(rubric))
    joined = gate_pairs(read_labels(labels), read_verdicts(direct), read_verdicts(critique), sets)
    for line in described(joined.left_out):
        typer.echo(line)
    found = choose_gate(joined.pairs, max_loss=max_loss / 100)
    typer.echo(f"{found.n} labelled items with both verdicts\n{'gate':>{GATE_WIDTH}}  critiques  agreement")
    step = max(1, len(found.points) // SHOWN)
    for point in sorted({*found.points[::step], found.chosen, found.always}):
        mark = "  <- chosen" if point == found.chosen else ""
        typer.echo(f"{_gate(point):>{GATE_WIDTH}}  {point.critiques:8.1%}  {point.agreement:8.1%}{mark}")
    typer.echo(f"use mode='gated', gate={found.chosen.gate!r}")


def _gate(point: GatePoint) -> str:
    return "-" if point.gate > 1 else repr(point.gate)  # rounded, it could be another gate


def _line(entry: Entry) -> str:
    head = f"{entry.scale} ({entry.mode}, {entry.readout}): {entry.labels} labels"
    if entry.temperature is None:
        return f"{head}; {entry.note}"
    parts = [f"temperature {entry.temperature:.3g}"]
    parts += [f"isotonic with {len(entry.isotonic)} knots"] if entry.isotonic else []
    parts += [entry.note] if entry.note else []
    if entry.nll_before is not None and entry.nll_after is not None:
        parts.append(f"NLL on its own labels {entry.nll_before:.3f} -> {entry.nll_after:.3f}")
    width = "too few labels for an interval" if entry.residual is None else f"interval +-{entry.residual:.2f}"
    return f"{head}; {'; '.join([*parts, width])}"
