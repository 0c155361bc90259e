"""HealthBench (JSONL, arXiv:2505.08775): ``{prompt, prompt_id, rubrics: [{criterion, points, tags}]}``.

One rubric a prompt. Its score, Σ points of met criteria ÷ Σ positive points, is our ``net`` value before
clipping (``Aggregate.unclipped``); HealthBench clips the mean over prompts, we clip each prompt.

Export: a hard axiom costs as much as all rewards give, a soft one what its gravest cap takes away, both
worded as the fault. Met and cap do not compose as a gate does, which is reported.
"""

from typing import Any

from axiomrm.errors import DataError
from axiomrm.rubrics.convert.build import Imported, build, loss, plain_number, slug
from axiomrm.rubrics.convert.entry import Entry, entry_of, rows
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.points import read_points, write_points
from axiomrm.rubrics.convert.written import Read, Written, as_row, ids, positive_weight
from axiomrm.rubrics.model import Axiom, Source
from axiomrm.rubrics.rubric import Rubric

SOURCE = "healthbench"


def read(text: str, file: str, name: str) -> Read:
    """One rubric a line; the prompt and everything else about the task goes to its ``context``.

    Raises:
        DataError: not the format.
    """
    losses: list[Loss] = []
    out = []
    taken: set[str] = set()
    for path, value in rows(text, file):
        imported = _record(entry_of(value, file, path, losses))
        if imported.model.rubric.id in taken:
            raise DataError(f"{file}: {path}: prompt_id {imported.task_id!r} stands twice")
        taken.add(imported.model.rubric.id)
        out.append(imported)
    return Read(tuple(out), LossReport(tuple(losses)))


def _record(entry: Entry) -> Imported:
    task = entry.text("prompt_id")
    source = Source(kind=SOURCE, ref=task)
    found = [read_points(e, (source,)) for e in entry.entries("rubrics")]
    criteria = [c for c in found if c is not None]
    if not criteria:
        raise DataError(f"{entry.file}: {entry.path}: prompt {task!r} has no criterion with points")
    if all(c.polarity == "penalty" for c in criteria):
        entry.lose(
            "rubrics", "approximated", "no positive points: HealthBench gives no score, we give 1 − penalties"
        )
    context = {k: v for k, v in entry.data.items() if k not in ("rubrics", "prompt_id")}
    return Imported(build(slug(task), criteria), task, context)


def task_of(rubric: Rubric) -> str:
    """The ``prompt_id`` that the rubric was imported from, else its id."""
    refs = {s.ref for t in rubric.theorems for s in t.sources if s.kind == SOURCE}
    return refs.pop() if len(refs) == 1 else rubric.id


def write(rubric: Rubric) -> Written:
    """One line; an empty prompt, which only the task knows."""
    rubrics = [write_points(t) for t in rubric.theorems]
    losses: list[Loss] = []
    total = positive_weight(rubric)
    for axiom in rubric.axioms:
        if axiom.type != "premise":
            rubrics.append(_gate(axiom, total, losses))
    row: dict[str, Any] = {"prompt": [], "prompt_id": task_of(rubric), "rubrics": rubrics}
    return Written(as_row({**row, "example_tags": []}), ids(rubric.theorems), tuple(losses))


def _gate(axiom: Axiom, total: float, losses: list[Loss]) -> dict[str, Any]:
    lowest = min(axiom.caps.values()) if axiom.caps else axiom.cap
    share = 1 - lowest if axiom.type == "soft" and lowest is not None else 1.0
    points = -(round(share * total, 6) or 1.0)
    detail = f"the {axiom.type} gate becomes {plain_number(points)} points"
    losses.append(loss(f"axioms/{axiom.id}", "", "approximated", detail))
    text = f"Breaks this rule: {axiom.statement}"
    return {"criterion": text, "points": plain_number(points), "tags": [f"axiom:{axiom.id}"]}
