"""``axiomrm rubric convert`` and ``improve``; registered by ``cli_rubric``."""

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from axiomrm.data.writing import atomic_file, check_free, check_output, check_target
from axiomrm.errors import ConfigError, DataError
from axiomrm.rubrics.convert.files import Plan, plan
from axiomrm.rubrics.findings import errors_of
from axiomrm.rubrics.imports import LIBRARY
from axiomrm.rubrics.improve import Improvement, accepted, read_proposal, read_rows
from axiomrm.rubrics.improve import improve as propose
from axiomrm.rubrics.load import find
from axiomrm.rubrics.rubric import Rubric

PROPOSAL = ("proposal.yaml", "proposal.diff", "evidence.md")
"""Files that ``improve`` writes."""


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="file, or a folder of rubrics")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="file, or a folder for several rubrics")],
    source_format: Annotated[str, typer.Option("--from", help="atr or a foreign format")],
    target_format: Annotated[str, typer.Option("--to", help="atr or a foreign format")],
    strict: Annotated[bool, typer.Option("--strict", help="exit 2 and write nothing on any loss")] = False,
    activate: Annotated[bool, typer.Option("--activate", help="imported items score at once")] = False,
    criterion: Annotated[str | None, typer.Option(help="export this theorem only")] = None,
    report: Annotated[Path | None, typer.Option(help="write the losses here as JSON")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="write over files that are there")] = False,
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
    _check(made, report, replace)
    _say_losses(made, report, strict)
    failed = _lint(made)
    made.write()
    for path, _ in made.files[:5]:
        typer.echo(f"wrote {path}")
    if len(made.files) > 5:
        typer.echo(f"and {len(made.files) - 5} more files")
    raise typer.Exit(1 if failed and activate else 0)


def _say_losses(made: Plan, report: Path | None, strict: bool) -> None:
    """Name what is lost; nothing may be with ``strict``."""
    typer.echo(made.report.text(), err=True)
    if report is not None and not (strict and not made.report.empty):
        with atomic_file(report) as handle:
            handle.write(made.report.as_json())
    if strict and not made.report.empty:
        typer.echo(f"--strict: {len(made.report.losses)} losses, nothing written", err=True)
        raise typer.Exit(2)


def _check(made: Plan, report: Path | None, replace: bool) -> None:
    for path, _ in made.files:
        check_target(path, made.read)
        check_free(path, replace)
    if report is not None:
        check_target(report, made.read, "--report ")
        check_output(report, made.read, [path for path, _ in made.files], "--report ")
        check_free(report, replace, "--report ")


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


def improve(
    rubric: Annotated[str, typer.Argument(help="rubric file")],
    scores: Annotated[list[Path] | None, typer.Option(help="rows of axiomrm score; may be repeated")] = None,
    labels: Annotated[Path | None, typer.Option(help="human scores: JSONL of {id, score}")] = None,
    transcripts: Annotated[
        list[Path] | None, typer.Option(help="chat logs, if they are not where the rows say")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder for the proposal")] = Path(),
    accept: Annotated[Path | None, typer.Option(help="a proposal to take changes from")] = None,
    only: Annotated[str | None, typer.Option(help="changes or criteria to take, comma-separated")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="write over an earlier proposal")] = False,
    rubric_path: Annotated[
        list[Path] | None, typer.Option("--rubric-path", help="folder for imports")
    ] = None,
) -> None:
    """Find criteria that do no work, or the wrong one; propose changes; take them with --accept.

    Writes proposal.yaml, proposal.diff and evidence.md; the rubric itself changes only with --accept.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out}: a file; name a folder for the proposal")
    path = find(rubric, tuple(rubric_path or ()))
    loaded = Rubric.load(path, search=tuple(rubric_path or ()))
    if accept is not None:
        _accept(loaded, path, accept, only)
        return
    if not scores:
        raise ConfigError("give --scores (rows of axiomrm score) to look for faults, or --accept a proposal")
    if only is not None:
        raise ConfigError("--only goes with --accept")
    given = [*loaded.files, *scores, *(transcripts or ()), *([] if labels is None else [labels])]
    for name in PROPOSAL:
        check_target(out / name, given)
        check_free(out / name, replace)
    _write(propose(loaded, read_rows(scores, labels, transcripts or ())), out)


def _write(found: Improvement, out: Path) -> None:
    """Put a proposal into a folder and say what it changes."""
    texts = dict(zip(PROPOSAL, (found.proposal.to_yaml(), found.diff, found.evidence), strict=True))
    for name, text in texts.items():
        with atomic_file(out / name) as handle:
            handle.write(text)
    for change in found.proposal.changes:
        typer.echo(f"{change.id} {change.criterion}: {change.fault.replace('_', ' ')}: {change.why}")
    typer.echo(f"{len(found.faults)} findings; wrote {', '.join(str(out / name) for name in texts)}")


def _accept(rubric: Rubric, path: Path, proposal: Path, only: str | None) -> None:
    if path.parent == LIBRARY:
        raise ConfigError(
            f"{rubric.id} is a rubric of the library, which is not edited; copy {path} and improve that"
        )
    try:
        text = proposal.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{proposal}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    names = [word.strip() for word in (only or "").split(",") if word.strip()]
    new = accepted(rubric, read_proposal(text, str(proposal)), names)
    with atomic_file(path) as handle:
        handle.write(new)
    typer.echo(f"wrote {path}, version {Rubric.load(path, search=rubric.search).version}")
