"""Prometheus score rubrics (JSON or JSONL): one criterion, five descriptions of the scores 1 to 5.

Read: ``{criteria, score1_description …}``, the same under ``score_rubric`` (BiGGen), with the prefix
``orig_`` (Feedback Collection), and ``{description, scoring: {score_1 …}}``. A score k is our value (k −
1)/4.
"""

from typing import Any

from axiomrm.errors import DataError
from axiomrm.rubrics.convert.build import Criterion, Imported, Level, anchors_of, build, free_name, slug
from axiomrm.rubrics.convert.entry import Entry, entry_of, rows
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.written import Read, Written, as_json
from axiomrm.rubrics.model import Source
from axiomrm.rubrics.rubric import Rubric

SOURCE = "prometheus"
SCORES = (1, 2, 3, 4, 5)


def read(text: str, file: str, name: str) -> Read:
    """One rubric a record, with one ordinal theorem.

    Raises:
        DataError: not the format.
    """
    losses: list[Loss] = []
    records = list(rows(text, file))
    if len(records) == 1 and isinstance(records[0][1], list):
        records = [(str(i), v) for i, v in enumerate(records[0][1])]
    out: list[Imported] = []
    taken: set[str] = set()
    for number, (path, value) in enumerate(records, 1):
        record = entry_of(value, file, path, losses)
        task = value["id"] if isinstance(value.get("id"), str) and value["id"] else ""
        criterion, context = _criterion(record, task)
        own = slug(task) if task else (name if len(records) == 1 else f"{name}_{number}")
        own = free_name(own, taken)
        out.append(Imported(build(own, [criterion]), task, context))
    if not out:
        raise DataError(f"{file}: no score rubric")
    return Read(tuple(out), LossReport(tuple(losses)))


def _criterion(record: Entry, task: str) -> tuple[Criterion, dict[str, Any]]:
    inner, context = record, {}
    if isinstance(record.data.get("score_rubric"), dict):
        inner = entry_of(
            record.data["score_rubric"], record.file, f"{record.path}/score_rubric".lstrip("/"), record.losses
        )
        context = {k: v for k, v in record.data.items() if k not in ("score_rubric", "id")}
    prefix = "orig_" if "orig_criteria" in inner.data else ""
    if "scoring" in inner.data:
        scores = entry_of(
            inner.data["scoring"], record.file, f"{inner.path}/scoring".lstrip("/"), record.losses
        )
        statement, keys = inner.text("description"), [f"score_{k}" for k in SCORES]
    else:
        scores, statement = inner, inner.text(f"{prefix}criteria")
        keys = [f"{prefix}score{k}_description" for k in SCORES]
    levels = [Level(i / 4, scores.text(key)) for i, key in enumerate(keys)]
    anchors = anchors_of(levels, inner, "scores")
    known = {"description", "criteria", "orig_criteria", "scoring", "id", *keys}
    if inner is record:
        context = {k: v for k, v in inner.data.items() if k not in known}
    else:
        inner.drop_rest(known)
    sources = (Source(kind=SOURCE, ref=task),) if task else ()
    return Criterion(statement, anchors=anchors, sources=sources), context


def write(rubric: Rubric) -> Written:
    """The one active theorem.

    Raises:
        DataError: more or fewer than one theorem (choose it with ``criterion``), or not five anchors.
    """
    if len(rubric.theorems) != 1:
        names = ", ".join(t.id for t in rubric.theorems) or "none"
        raise DataError(
            f"{rubric.id}: Prometheus holds one criterion a file; choose one with --criterion ({names})"
        )
    theorem = rubric.theorems[0]
    anchors = theorem.scale.anchors
    if len(anchors) != len(SCORES):
        raise DataError(f"{theorem.id}: Prometheus needs five anchors, found {len(anchors)}")
    if theorem.polarity == "penalty":
        raise DataError(f"{theorem.id}: Prometheus has no penalties")
    refs = [s.ref for s in theorem.sources if s.kind == SOURCE]
    tree = {**({"id": refs[0]} if refs else {}), "criteria": theorem.statement}
    tree.update({f"score{k}_description": a.text for k, a in zip(SCORES, anchors, strict=True)})
    return Written(as_json(tree), (theorem.id,))
