"""autorubric (YAML or JSON): signed weights, options with values, guidelines.

Read: a list of criteria, or ``{guidelines, criteria | sections | rubric}``, sections flattened. Written:
the mapping form with ``guidelines`` where there are some, else the list, as JSON (which is YAML too).

Equal scores: its normalised score is our ``net`` reward without axioms, abstentions under its FAIL being
our ``worst``. Its default, SKIP, also shrinks the denominator by skipped rewards while penalties stay; our
``skip`` keeps the ratio W⁻/W⁺ of the rubric, so the two differ where a criterion is skipped in a rubric
with penalties.
"""

from typing import Any

from axiomrm.errors import DataError
from axiomrm.rubrics.convert.build import (
    Criterion,
    Imported,
    Level,
    anchors_of,
    build,
    plain_number,
    signed,
    text_id,
    usable_id,
)
from axiomrm.rubrics.convert.entry import Entry, entries_of, entry_of, load
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.written import Read, Written, as_json, ids, signed_weight
from axiomrm.rubrics.model import Anchor, Theorem
from axiomrm.rubrics.rubric import Rubric

DEFAULT_WEIGHT = 10.0


def read(text: str, file: str, name: str) -> Read:
    """One rubric.

    Raises:
        DataError: not the format.
    """
    losses: list[Loss] = []
    tree = load(text, file)
    guidelines, value, path = _parts(tree, file, losses)
    entries: list[Entry] = []
    for entry in entries_of(value, file, path, losses):
        if "criteria" in entry.data:
            entries += entry.entries("criteria")
            entry.drop_rest()
        else:
            entries.append(entry)
    criteria = [c for entry in entries if (c := _criterion(entry)) is not None]
    if not criteria:
        raise DataError(f"{file}: no criterion with a weight other than 0")
    return Read((Imported(build(name, criteria, guidelines=guidelines)),), LossReport(tuple(losses)))


def _parts(tree: Any, file: str, losses: list[Loss]) -> tuple[str, Any, str]:
    """Guidelines, the list of criteria or sections, and its place."""
    guidelines, path = "", ""
    while not isinstance(tree, list):
        entry = entry_of(tree, file, path, losses)
        inner = entry.text("guidelines", "")
        if inner.strip() and guidelines.strip():
            raise DataError(f"{file}: guidelines stand beside and inside 'rubric'; give them once")
        guidelines = inner if inner.strip() else guidelines
        key = next((k for k in ("rubric", "sections", "criteria") if k in entry.data), "")
        if not key:
            raise DataError(
                f"{file}: {path or 'the file'}: a list, or one of rubric, sections, criteria is needed"
            )
        entry.used.add(key)
        entry.drop_rest()
        tree, path = entry.data[key], f"{path}/{key}" if path else key
    return guidelines, tree, path


def _criterion(entry: Entry) -> Criterion | None:
    statement = entry.text("requirement")
    weight = signed(entry, "weight", DEFAULT_WEIGHT)
    label = entry.text("name", "")
    anchors: tuple[Anchor, ...] = ()
    if entry.has("options"):
        options = entry.entries("options")
        scored = [o for o in options if not o.data.get("na")]
        levels = [Level(o.number("value"), o.text("label")) for o in scored]
        for level, option in zip(levels, scored, strict=True):
            if not 0 <= level.value <= 1:
                raise option.error("value", "in [0, 1]")
        anchors = anchors_of(levels, entry, "options")
    if entry.text("scale_type", "ordinal") != "ordinal":
        entry.lose("scale_type", "approximated", "nominal options become an order by their values")
    entry.drop("aggregation")
    entry.used.add("options")
    entry.drop_rest()
    if weight is None:
        return None
    name = usable_id(label)
    tags = (f"name:{label}",) if label and not name else ()
    return Criterion(statement, *weight, anchors=anchors, id=name, tags=tags)


def write(rubric: Rubric) -> Written:
    """All active theorems; what an axiom, a condition or a turn says has no place here."""
    criteria = [_written(t) for t in rubric.theorems]
    tree = {"guidelines": rubric.guidelines, "criteria": criteria} if rubric.guidelines.strip() else criteria
    return Written(as_json(tree), ids(rubric.theorems))


def _written(theorem: Theorem) -> dict[str, Any]:
    out: dict[str, Any] = {} if theorem.id == text_id(theorem.statement) else {"name": theorem.id}
    out.update(weight=signed_weight(theorem), requirement=theorem.statement)
    if theorem.scale.anchors:
        out["options"] = [{"label": a.text, "value": plain_number(a.value)} for a in theorem.scale.anchors]
        out["scale_type"] = "ordinal"
    return out
