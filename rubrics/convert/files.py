"""Conversion of files: planned first, written only if the plan is accepted."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError, DataError, RubricError
from axiomrm.rubrics.convert.build import Imported, slug
from axiomrm.rubrics.convert.formats import FORMATS, export_rubric, format_of, import_rubrics
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.written import as_row
from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.lint_ids import RUBRIC_ID
from axiomrm.rubrics.model import RubricFile
from axiomrm.rubrics.rubric import Rubric
from axiomrm.rubrics.yaml_write import to_yaml

ATR = "atr"
TASKS = "tasks.jsonl"
_YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Plan:
    """What a conversion would write."""

    files: tuple[tuple[Path, str], ...]
    """Path and text, in order."""
    report: LossReport
    models: tuple[RubricFile, ...] = ()
    """The rubrics in our schema, imported ones as they would be written."""
    read: tuple[Path, ...] = ()
    """Files that it was made from, with what they import."""

    def __post_init__(self) -> None:
        assert len(dict(self.files)) == len(self.files), "two files of one path: one would be written over"

    def write(self) -> None:
        """Write every file, each whole or not at all."""
        for path, text in self.files:
            with atomic_file(path) as handle:
                handle.write(text)

    def findings(self) -> Iterator[Finding]:
        """What the linter says about the imported rubrics.

        Raises:
            RubricError: one of them has findings that keep it from being loaded.
        """
        for model in self.models:
            yield from Rubric.from_model(model).lint()


def plan(
    source: Path,
    target: Path,
    *,
    source_format: str,
    target_format: str,
    activate: bool = False,
    criterion: str | None = None,
    search: Sequence[Path] = (),
) -> Plan:
    """Plan a conversion; nothing is written.

    Args:
        source: file; a folder of rubrics for a target format that holds one a line.
        target: file; a folder if there are several rubrics, which also keeps the tasks in ``tasks.jsonl``.
        source_format: ``atr`` or a key of ``FORMATS``.
        target_format: the same; one of the two may be ``atr``, between two others ``atr`` is the way through.
        activate: imported items score.
        criterion: export this theorem only.
        search: folders for imports of the rubrics.

    Raises:
        ConfigError: formats or paths that do not fit.
        DataError: the source cannot be read, or the target cannot say it.
    """
    for name in (source_format, target_format):
        if name != ATR:
            format_of(name)
    if source_format == target_format:
        raise ConfigError(f"--from and --to are both {source_format!r}; nothing to convert")
    if target_format == ATR:
        return replace(_to_atr(source, target, source_format, activate), read=(source,))
    found = _rubrics(source, source_format, search)
    read = tuple(path for rubric, _ in found.rubrics for path in rubric.files)
    return replace(_to_foreign(found, target, target_format, criterion), read=(source, source / TASKS, *read))


@dataclass(frozen=True)
class _Source:
    rubrics: tuple[tuple[Rubric, dict[str, Any]], ...]
    """With the task's context."""
    report: LossReport


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or f"not UTF-8: {error}"
        raise DataError(f"{path}: {reason}") from error


def _to_atr(source: Path, target: Path, form: str, activate: bool) -> Plan:
    single = target.suffix in (*_YAML, ".json")
    if single and not RUBRIC_ID.fullmatch(target.stem):
        raise ConfigError(f"{target}: a rubric's file is named by its id: lower case letters, digits and _")
    name = target.stem if single else slug(source.stem)
    result = import_rubrics(_text(source), form, name=name, file=str(source), activate=activate)
    if not single:
        return _folder(target, result.rubrics, result.report)
    if len(result.rubrics) != 1:
        count = len(result.rubrics)
        raise ConfigError(f"{source} holds {count} rubrics and {target} takes one; name a folder instead")
    one = result.rubrics[0]
    # A file must bear its rubric's id; the id of the format, if it has one, gives way to the name asked for.
    losses = list(_id_given(one, target.stem))
    losses += [
        Loss(one.task_id, key, "dropped", f"about the task; a folder as target keeps it in {TASKS}")
        for key in one.context
    ]
    header = one.model.rubric.model_copy(update={"id": target.stem})
    model = one.model.model_copy(update={"rubric": header})
    text = _atr_text(model, target.suffix)
    return Plan(((target, text),), result.report + LossReport(tuple(losses)), (model,))


def _id_given(one: Imported, stem: str) -> Iterator[Loss]:
    if one.model.rubric.id != stem:
        yield Loss(
            "", "rubric id", "approximated", f"{one.model.rubric.id} becomes {stem}, as the file is named"
        )


def _atr_text(model: RubricFile, suffix: str) -> str:
    if suffix == ".json":
        return json.dumps(model.plain(), indent=2, ensure_ascii=False) + "\n"
    return to_yaml(model.plain())


def _folder(target: Path, rubrics: Sequence[Imported], report: LossReport) -> Plan:
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target} is a file; name a folder, or a file that ends in .yaml")
    files = [(target / f"{r.model.rubric.id}.yaml", to_yaml(r.model.plain())) for r in rubrics]
    tasks = [
        {"rubric": r.model.rubric.id, "task_id": r.task_id, **r.context}
        for r in rubrics
        if r.task_id or r.context
    ]
    if tasks:
        files.append((target / TASKS, "".join(map(as_row, tasks))))
    return Plan(tuple(files), report, tuple(r.model for r in rubrics))


def _rubrics(source: Path, form: str, search: Sequence[Path]) -> _Source:
    if form != ATR:
        result = import_rubrics(_text(source), form, name=slug(source.stem), file=str(source), activate=True)
        loaded = tuple((Rubric.from_model(r.model), r.context) for r in result.rubrics)
        return _Source(loaded, result.report)
    if not source.is_dir():
        return _Source(((Rubric.load(str(source), search=tuple(search)), {}),), LossReport())
    paths = sorted(p for p in source.iterdir() if p.suffix in _YAML)
    if not paths:
        raise DataError(f"{source}: no rubric (*.yaml) in this folder")
    contexts = _contexts(source / TASKS)
    rubrics = _all_of(paths, search)
    order = {name: i for i, name in enumerate(contexts)}
    rubrics.sort(key=lambda r: order.get(r.id, len(order)))
    return _Source(tuple((r, contexts.get(r.id, {})) for r in rubrics), LossReport())


def _all_of(paths: Sequence[Path], search: Sequence[Path]) -> list[Rubric]:
    """Each rubric; those that cannot be read are named together."""
    rubrics: list[Rubric] = []
    wrong: list[RubricError] = []
    for path in paths:
        try:
            rubrics.append(Rubric.load(path, search=tuple(search)))
        except RubricError as error:
            wrong.append(error)
    if wrong:
        raise RubricError("\n".join(map(str, wrong)), tuple(f for error in wrong for f in error.findings))
    return rubrics


def _contexts(path: Path) -> dict[str, dict[str, Any]]:
    if not path.is_file():
        return {}
    out = {}
    for number, line in enumerate(_text(path).rstrip("\n").split("\n"), 1):
        try:
            row = json.loads(line)
            name = row.pop("rubric")
            row.pop("task_id", None)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise DataError(f"{path}:{number}: not a task with 'rubric': {line[:80]!r}") from error
        out[name] = row
    return out


def _to_foreign(found: _Source, target: Path, form: str, criterion: str | None) -> Plan:
    many = FORMATS[form].lines
    if len(found.rubrics) > 1 and not many:
        lines = ", ".join(k for k, v in FORMATS.items() if v.lines)
        raise ConfigError(
            f"{form} holds one rubric a file, the source has {len(found.rubrics)}; accepted: {lines}"
        )
    if target.suffix == ".toml":
        raise ConfigError(
            f"{target}: TOML is read, not written; name a .json file, which verifiers takes too"
        )
    texts, report = [], found.report
    for rubric, context in found.rubrics:
        text, losses = export_rubric(rubric, form, criterion=criterion)
        texts.append(_with_context(text, context) if many else text)
        prefix = f"{rubric.id}/" if len(found.rubrics) > 1 else ""
        report += LossReport(tuple(Loss(prefix + x.path, x.field, x.kind, x.detail) for x in losses.losses))
    if len(texts) > 1:
        texts = [re.sub(r"\n(?=.)", "", t) if t.startswith("{\n") else t for t in texts]
    return Plan(((target, "".join(texts)),), report)


def _with_context(text: str, context: dict[str, Any]) -> str:
    """The row with the task's own keys in the places that the writer could only leave empty."""
    row = json.loads(text)
    kept = {k: v for k, v in context.items() if not row.get(k)}
    if not kept:
        return as_row(row) if not text.startswith("{\n") else text
    return as_row({**row, **kept})
