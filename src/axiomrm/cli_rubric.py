"""``axiomrm rubric …``: lint, test, show, diff, lock, convert, improve, new.

Exit codes: 0 clean, 1 findings of level error (or cases that come out wrong), 2 user error, also if one of
several files cannot be read: the others are checked all the same.
"""

import codecs
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from axiomrm import cli_rubric_convert, cli_rubric_test
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError, DataError, RubricError
from axiomrm.rubrics import Finding, Personal, Rubric
from axiomrm.rubrics.diff import diff as compare
from axiomrm.rubrics.diff import e180_bump
from axiomrm.rubrics.findings import errors_of, sort_findings
from axiomrm.rubrics.fix import fix as mend
from axiomrm.rubrics.imports import library_names
from axiomrm.rubrics.lint import lint_file, sarif
from axiomrm.rubrics.lint_ids import RUBRIC_ID
from axiomrm.rubrics.load import find
from axiomrm.rubrics.lock import unreadable_lock, write_lock
from axiomrm.rubrics.show import show_text
from axiomrm.rubrics.starter import starter

app = typer.Typer(help="Write, check and try rubrics.", no_args_is_help=True, add_completion=False)
app.command("test")(cli_rubric_test.test)
app.command("convert")(cli_rubric_convert.convert)
app.command("improve")(cli_rubric_convert.improve)

RubricPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--rubric-path",
        help="folder for imports, before the library; may be repeated",
        exists=True,
        file_okay=False,
    ),
]


@app.command()
def lint(
    files: Annotated[list[str], typer.Argument(help="rubric files, or names of library rubrics")],
    rubric_path: RubricPath = None,
    base: Annotated[str | None, typer.Option(help="older version: check the version bump (E180)")] = None,
    scores: Annotated[Path | None, typer.Option(help="scored rows: W170 to W174")] = None,
    fix: Annotated[bool, typer.Option("--fix", help="mend quoting and mistyped keys in place")] = False,
    format: Annotated[str, typer.Option(help="text, json or sarif")] = "text",
) -> None:
    """Check rubrics; exit 1 if a finding has level error, 2 if a file cannot be read."""
    if format not in ("text", "json", "sarif"):
        raise ConfigError(f"--format {format!r}: text, json or sarif")
    older = None if base is None else _load(base, rubric_path, "--base: ")
    found: list[Finding] = []
    unread: list[Finding] = []
    sources: dict[str, str] = {}
    for name in files:
        try:
            if fix:
                _mend(find(name, rubric_path or ()))
            rubric, findings, texts = lint_file(name, search=rubric_path or ())
        except RubricError as error:
            unread.append(Finding("E108", str(error).removeprefix(f"{name}: "), file=name))
            continue
        sources.update(texts)
        found += findings
        if rubric is not None and older is not None:
            found += e180_bump(older, rubric)
        if rubric is not None and scores is not None:
            found += _scored(rubric, scores)
    _print(sort_findings([*found, *unread]), sources, format, len(files))
    raise typer.Exit(2 if unread else 1 if errors_of(found) else 0)


def _mend(path: Path) -> None:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RubricError(f"{path}: {error.strerror or error}") from error
    mark = "\ufeff" if data.startswith(codecs.BOM_UTF8) else ""
    try:
        before = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return  # what is not UTF-8 cannot be written back as it was; the linter names the place
    after, mended = mend(before, str(path))
    if not mended:
        return
    target = path.resolve()  # behind a link
    try:
        mode = target.stat().st_mode
        with atomic_file(target) as handle:
            handle.write(mark + after)
        target.chmod(mode)
    except OSError as error:
        raise RubricError(f"{path}: cannot be mended in place: {error.strerror}") from error
    for finding in mended:
        typer.echo(f"mended {finding.file}:{finding.line}: {finding.message}", err=True)


def _scored(rubric: Rubric, scores: Path) -> Sequence[Finding]:
    from axiomrm.rubrics.improve import score_findings

    return score_findings(rubric, scores)


def _print(found: Sequence[Finding], sources: Mapping[str, str], form: str, files: int) -> None:
    if form == "sarif":
        typer.echo(sarif(found))
    elif form == "json":
        typer.echo(json.dumps([f.as_dict() for f in found], indent=2, ensure_ascii=False))
    else:
        for finding in found:
            typer.echo(finding.text(sources.get(finding.file)) + "\n")
        errors = len(errors_of(found))
        typer.echo(f"{files} rubrics, {errors} errors, {len(found) - errors} warnings", err=True)
        typer.echo("E150: word list only; classifiers come with the privacy extra", err=True)


def _load(name: str, rubric_path: Sequence[Path] | None, option: str = "", *, locked: bool = True) -> Rubric:
    """A rubric without errors; otherwise its findings are printed and the exit code is 1."""
    try:
        return Rubric.load(name, search=tuple(rubric_path or ()), locked=locked)
    except RubricError as error:
        if not error.findings:
            raise RubricError(f"{option}{error}") from error
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from error


@app.command()
def show(
    rubric: Annotated[str, typer.Argument(help="file or library name")],
    features: Annotated[
        list[str] | None, typer.Option("--features", "-f", help="k=v, may be repeated")
    ] = None,
    slots: Annotated[list[str] | None, typer.Option("--slot", help="slot=value of one user")] = None,
    share: Annotated[float, typer.Option(help="personal share λ, with --slot")] = 0.0,
    rubric_path: RubricPath = None,
) -> None:
    """What applies to a task: criteria, weights, gates."""
    loaded = _load(rubric, rubric_path)
    values = {k: _typed(loaded, k, v) for k, v in _pairs(features, "--features")}
    known = sorted({slot for template in loaded.templates for slot in template.reads})
    given = {k: _plain(v) for k, v in _pairs(slots, "--slot")}
    if unknown := [slot for slot in given if slot not in known]:
        raise ConfigError(
            f"--slot {unknown[0]!r}: no template reads it; read are: {', '.join(known) or 'none'}"
        )
    budget = loaded.policy.personal_budget
    if not 0 <= share <= budget or (share and not given):
        raise ConfigError(f"--share {share!r}: needs --slot and lies in [0, {budget}], the rubric's budget")
    personal = Personal(given, share) if given else None
    typer.echo(show_text(loaded.bind(values, personal)))


def _pairs(words: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    for word in (part for text in words or () for part in text.split(",")):
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option} {word!r}: write name=value")
        if key.strip() in (name for name, _ in out):
            raise ConfigError(f"{option} {word!r}: {key.strip()!r} is given twice")
        out.append((key.strip(), value.strip()))
    return out


def _typed(rubric: Rubric, name: str, text: str) -> Any:
    spec = rubric.features.get(name)
    if spec is None:
        raise DataError(f"no feature {name!r}; declared: {', '.join(rubric.features) or 'none'}")
    return text if spec.type == "enum" else _plain(text)


def _plain(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


@app.command()
def diff(
    old: Annotated[str, typer.Argument(help="older version")],
    new: Annotated[str, typer.Argument(help="newer version")],
    check: Annotated[bool, typer.Option("--check", help="exit 1 if the version bump is too small")] = False,
    rubric_path: RubricPath = None,
) -> None:
    """Compare meaning, not lines; says which stored verdicts can be used again."""
    result = compare(_load(old, rubric_path), _load(new, rubric_path))
    for change in result.changes:
        typer.echo(change.text)
    same = "same hash" if result.same_hash else "different hash"
    typer.echo(f"class {result.level}, {same}; {result.old} → {result.new}, needed {result.needed}")
    if result.stale:
        typer.echo(f"judge again: {', '.join(result.stale)}; all other stored verdicts can be re-aggregated")
    elif not result.same_hash:
        typer.echo("all stored verdicts can be re-aggregated")
    if not result.comparable:
        typer.echo("rewards of the two versions are not comparable")
    raise typer.Exit(1 if check and not result.bump_fits else 0)


@app.command()
def lock(
    rubric: Annotated[str, typer.Argument(help="rubric file")],
    rubric_path: RubricPath = None,
) -> None:
    """Write rubrics.lock beside the rubric: versions and hashes of its imports.

    A lock that is out of date is brought up to date; entries of other rubrics in the folder stay.
    """
    path = find(rubric, rubric_path or ())
    loaded = _load(str(path), rubric_path, locked=False)
    if problem := unreadable_lock(path.resolve().parent):
        typer.echo(f"{problem}; it held nothing that could be kept", err=True)
    typer.echo(f"wrote {write_lock(loaded)}")


@app.command()
def new(target: Annotated[str, typer.Argument(help="name, or file to write")]) -> None:
    """Start a rubric: a small file that loads and lints clean."""
    path = Path(target if Path(target).suffix in (".yaml", ".yml") else f"{target}.yaml")
    if not RUBRIC_ID.fullmatch(path.stem):
        raise ConfigError(f"{path.stem!r} is no rubric id: lower case letters, digits and _, e.g. my_rubric")
    if path.exists():
        raise ConfigError(f"{path} is already there; choose another name")
    if not path.parent.is_dir():
        raise ConfigError(f"{path.parent}: no such folder")
    path.write_text(starter(path.stem), encoding="utf-8")
    typer.echo(f"wrote {path}; next: axiomrm rubric lint {path}")


@app.command("list")
def list_() -> None:
    """Names of the library rubrics."""
    for name in library_names():
        rubric = Rubric.load(name)
        typer.echo(f"{name:20} {rubric.version:8} {rubric.file.rubric.title}")
