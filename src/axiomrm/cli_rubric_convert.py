"""``axiomrm rubric convert`` and ``improve``; registered by ``cli_rubric``."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from axiomrm.data.writing import atomic_file
from axiomrm.rubrics.convert.files import Plan, plan
from axiomrm.rubrics.findings import errors_of


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="file, or a folder of rubrics")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="file, or a folder for several rubrics")],
    source_format: Annotated[str, typer.Option("--from", help="atr or a foreign format")],
    target_format: Annotated[str, typer.Option("--to", help="atr or a foreign format")],
    strict: Annotated[bool, typer.Option("--strict", help="exit 2 and write nothing on any loss")] = False,
    activate: Annotated[bool, typer.Option("--activate", help="imported items score at once")] = False,
    criterion: Annotated[str | None, typer.Option(help="export this theorem only")] = None,
    report: Annotated[Path | None, typer.Option(help="write the losses here as JSON")] = None,
    rubric_path: Annotated[
        list[Path] | None, typer.Option("--rubric-path", help="folder for imports")
    ] = None,
) -> None:
    """Convert a rubric from or to another format, and say what is lost.

    Formats: atr, autorubric, healthbench, promptfoo, verifiers, auraone, prometheus, rubrichub, rar, geval.
    """
    made = plan(
        source,
        target,
        source_format=source_format,
        target_format=target_format,
        activate=activate,
        criterion=criterion,
        search=rubric_path or (),
    )
    typer.echo(made.report.text(), err=True)
    if report is not None and not (strict and not made.report.empty):
        with atomic_file(report) as handle:
            handle.write(made.report.as_json())
    if strict and not made.report.empty:
        typer.echo(f"--strict: {len(made.report.losses)} losses, nothing written", err=True)
        raise typer.Exit(2)
    failed = _lint(made)
    made.write()
    for path, _ in made.files[:5]:
        typer.echo(f"wrote {path}")
    if len(made.files) > 5:
        typer.echo(f"and {len(made.files) - 5} more files")
    raise typer.Exit(1 if failed and activate else 0)


def _lint(made: Plan) -> bool:
    """Say what the linter finds in the imported rubrics; whether any of it is an error."""
    if not made.models:
        return False
    found = list(made.findings())
    counts = ", ".join(f"{code} {n}" for code, n in sorted(Counter(f.code for f in found).items()))
    errors = len(errors_of(found))
    typer.echo(
        f"lint: {errors} errors, {len(found) - errors} warnings{f' ({counts})' if counts else ''}", err=True
    )
    for finding in errors_of(found)[:10]:
        typer.echo(finding.text(), err=True)
    if any(t.status == "draft" for m in made.models for t in m.theorems):
        typer.echo(
            "all items are drafts; --activate, or set their status to active, to let them score", err=True
        )
    return errors > 0
