"""``axiomrm score``: chat logs or preference pairs in, one judgement a line out."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from axiomrm.cli_groups import given, grouped
from axiomrm.cli_judge import How, Loading, as_typed, cached, judge_for, refuse_idle
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import Progress, rejected_path, score_file
from axiomrm.score_summary import Summary, items_for_a_model

FAILURE_LIMIT = 0.05
"""Share of failed verdicts above which the exit code is 1; input that no judge could read does not count."""
TOLD_EVERY_S = 10.0


@dataclass(frozen=True)
class Output:
    """What of the input goes where."""

    limit: Annotated[int | None, typer.Option(min=1, help="read at most so many records")] = None
    out: Annotated[Path | None, typer.Option(help="output; default: LOGS.RUBRIC.scored.jsonl, here")] = None
    replace: Annotated[
        bool, typer.Option(help="replace scores of another input, rubric, judge or setting")
    ] = False
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="go on where the judge is away; its failures are final rows")
    ] = False


@grouped
def score(
    ctx: typer.Context,
    logs: Annotated[Path, typer.Argument(help="chat logs (OpenAI format) or pairs (context, a, b), JSONL")],
    rubric: Annotated[str, typer.Option("--rubric", "-r", help="library name or YAML file")],
    *,
    output: Output,
    loading: Loading,
    how: How,
) -> None:
    """Score each conversation with a rubric; without --model only its programmatic and constraint items.

    A killed run goes on where it was when the same command is given again, and so does one whose judge was
    away. Readings of a local model are kept in the user's cache unless --cache says otherwise; those of a
    server only if it says so, because what model stands behind a URL can change.
    """
    typed = given(ctx)
    refuse_idle(loading, typed)
    if loading.model is None and output.keep_going:
        raise typer.BadParameter("needs --model: without a model no judge is away", param_hint="--keep-going")
    options = how.options
    if not logs.exists():
        raise DataError(f"{logs}: no such file")
    loaded = Rubric.load(rubric)
    if loading.model is None:
        _say_what_needs_a_model(loaded)
    judge = cached(judge_for(loading, options), loading)
    target = output.out or Path(f"{logs.stem}.{loaded.id}.scored.jsonl")
    told = _teller()
    with as_typed():
        summary = score_file(
            logs,
            loaded,
            judge,
            target,
            limit=output.limit,
            replace=output.replace,
            keep_going=output.keep_going,
            told=told,
        )
    for line in report(summary, target, judge):
        typer.echo(line)
    _exit_if_poor(summary, logs)


def _exit_if_poor(summary: Summary, logs: Path) -> None:
    if summary.rejected and not summary.scored:
        raise DataError(_why_none(logs, summary))
    if summary.failure_share > FAILURE_LIMIT:
        typer.echo(f"more than {FAILURE_LIMIT:.0%} of the verdicts failed", err=True)
        raise typer.Exit(1)


def report(summary: Summary, target: Path, judge: RewardModel) -> Iterator[str]:
    """The summary, line by line."""
    yield from summary.lines()
    if judge.engine is not None and judge.asking.untrained:
        yield "  this model was never trained as a judge: min_mass 0, verdicts flagged untrained_judge"
    if summary.rejected:
        kinds = Counter(str(row.get("kind", "unreadable")) for row in summary.rejected)
        listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        yield f"  rejected: {len(summary.rejected)} ({listed}) in {rejected_path(target)}"
    yield f"written: {target}"


def _why_none(logs: Path, summary: Summary) -> str:
    first = min(summary.rejected, key=lambda row: int(row["line"]))
    many = len(summary.rejected)
    return (
        f"{logs}: no conversation could be scored ({many} rejected; first: "
        f"{first['file']}:{first['line']}: {first['reason']})"
    )


def _say_what_needs_a_model(rubric: Rubric) -> None:
    needing = items_for_a_model(rubric)
    if not needing:
        return
    judged = [item for item in (*rubric.axioms, *rubric.theorems) if getattr(item, "type", "") != "premise"]
    said = f"no model given: {len(needing)} of {len(judged)} items of rubric {rubric.id!r} need one: --model"
    if len(needing) == len(judged):
        raise ConfigError(f"{said} FOLDER, hub id or URL")
    typer.echo(f"{said} (the others are judged)", err=True)


def _teller() -> Callable[[Progress], None]:
    """Says on standard error how far the run is, how fast and how long it will take, every ten seconds."""
    last = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= TOLD_EVERY_S:
            last = time.monotonic()
            typer.echo(progress_line(progress), file=sys.stderr)

    return tell


def progress_line(progress: Progress) -> str:
    """Records done, rate, and time left where the number of records is known."""
    rate = (progress.records - progress.resumed) / progress.seconds if progress.seconds else 0.0
    of = "" if progress.total is None else f" of {progress.total}"
    left = ""
    if progress.total is not None and rate:
        seconds = max(0, progress.total - progress.records) / rate
        left = f", {seconds / 60:.0f} min left" if seconds >= 120 else f", {seconds:.0f} s left"
    return f"  {progress.records}{of} records, {rate:.2f}/s{left}"


def schema_text() -> str:
    """The published JSON Schema of a row, as it stands in ``rm/schema/score-1.json``."""
    from axiomrm.rm.judgement import score_schema

    return json.dumps(score_schema(), indent=1, sort_keys=True) + "\n"
