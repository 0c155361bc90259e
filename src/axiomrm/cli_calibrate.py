"""``axiomrm calibrate``: what a judge's probabilities are worth, from labels given by people."""

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from axiomrm.data.writing import check_free, check_target
from axiomrm.errors import ConfigError
from axiomrm.rm.calibration import CALIBRATION_FILE, Entry, write_calibration
from axiomrm.rm.calibration_fit import MIN_LABELS, Method, fit_calibration
from axiomrm.rm.gating import MAX_LOSS, GatePoint, choose_gate
from axiomrm.rm.labelled import described, gate_pairs, join, label_sets, read_labels, read_verdicts
from axiomrm.rubrics import Rubric

SHOWN = 12
"""Gates in the printed table."""

app = typer.Typer(
    help="Fit a calibrator, or pick a gate, from labelled verdicts.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
LabelFile = Annotated[Path, typer.Option("--labels", help="labels by people, JSONL")]
RubricName = Annotated[str, typer.Option("--rubric", "-r", help="the rubric that they were scored with")]


@app.command()
def fit(
    scored: Annotated[Path, typer.Argument(help="output of axiomrm score, without a calibrator")],
    labels: LabelFile,
    rubric: RubricName,
    model: Annotated[Path, typer.Option(help="checkpoint folder that the calibrator will lie in")],
    method: Annotated[
        str, typer.Option(help="temperature, isotonic (after it, yes/no scales), or auto: whichever holds")
    ] = "auto",
    level: Annotated[float, typer.Option(help="of the conformal intervals")] = 0.9,
    source: Annotated[str, typer.Option(help="where the labels are from, in words")] = "",
    replace: Annotated[bool, typer.Option("--replace", help="write over an earlier calibrator")] = False,
) -> None:
    """Fit a calibrator for each scale and mode, and store it with the checkpoint; 1 if none could be."""
    if method not in get_args(Method):
        raise typer.BadParameter(f"{method!r} is none of {list(get_args(Method))}", param_hint="--method")
    if not 0 < level < 1:
        raise typer.BadParameter(f"{level} is not between 0 and 1", param_hint="--level")
    if not model.is_dir():
        raise ConfigError(f"--model {model}: there is no such folder to put {CALIBRATION_FILE} into")
    target = model / CALIBRATION_FILE
    check_target(target, (scored, labels), "--model: ")
    check_free(target, replace, "--model: ")
    found = join(read_labels(labels), read_verdicts(scored), label_sets(Rubric.load(rubric)))
    for line in described(found.left_out):
        typer.echo(line)
    chosen = cast(Method, method)  # checked above
    made = fit_calibration(found.rows, method=chosen, level=level, source=source or labels.name)
    for entry in made.entries:
        typer.echo(_line(entry))
    if all(entry.temperature is None for entry in made.entries):
        typer.echo(f"nothing to store: no scale has {MIN_LABELS} labels")
        raise typer.Exit(1)
    typer.echo(f"written: {write_calibration(model, made)} (data {made.data_hash[:12]})")


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
    typer.echo(f"{found.n} labelled items with both verdicts\n  gate  critiques  agreement")
    step = max(1, len(found.points) // SHOWN)
    for point in sorted({*found.points[::step], found.chosen, found.always}):
        mark = "  <- chosen" if point == found.chosen else ""
        typer.echo(f"  {_gate(point)}  {point.critiques:8.1%}  {point.agreement:8.1%}{mark}")
    typer.echo(f"use mode='gated', gate={found.chosen.gate:.4g}")


def _gate(point: GatePoint) -> str:
    return "   -" if point.gate > 1 else f"{point.gate:4.2f}"


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
