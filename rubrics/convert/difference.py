"""The losses of an export, found by reading the result back and comparing field by field.

No field can be forgotten here: whatever the format does not give back as it was is a loss, so an empty report
means that the import of the export has the same hash.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from axiomrm.rubrics.convert.build import DERIVATION, PREMISE, VERSION
from axiomrm.rubrics.convert.loss import Kind, Loss, shown
from axiomrm.rubrics.model import Policy, RubricFile, Theorem
from axiomrm.rubrics.rubric import Rubric, walk

_SKIPPED = {"status", "lint_allow"}
"""Only active items are exported; what is silenced for our linter means nothing elsewhere."""
_UNHASHED = {"derivation", "sources", "tags"}


def difference(
    original: Rubric, back: RubricFile, order: Sequence[str], told: Sequence[Loss]
) -> Iterator[Loss]:
    """Losses that the writer did not tell itself.

    Args:
        original: what was exported.
        back: the export, read back, with its drafts activated.
        order: ids of the exported theorems, as they stand in ``back.theorems``.
        told: losses that the writer reported; the same place and field is not reported twice.
    """
    known = {(loss.path, loss.field) for loss in told} | {(loss.path, "*") for loss in told if not loss.field}
    for loss in _all(original, back, order):
        if (loss.path, loss.field) not in known and (loss.path, "*") not in known:
            yield loss


def _all(original: Rubric, back: RubricFile, order: Sequence[str]) -> Iterator[Loss]:
    yield from _header(original, back)
    for section in ("features", "turn_features", "facets"):
        for name in getattr(original, section):
            yield Loss(f"{section}/{name}", "", "dropped", "the format has no conditions")
    returned = dict(zip(order, back.theorems, strict=False))
    kept = {axiom.id: axiom for axiom in back.axioms}
    for axiom in original.axioms:
        if kept.get(axiom.id) != axiom:
            what = "premise" if axiom.type == "premise" else f"{axiom.type} gate"
            yield Loss(f"axioms/{axiom.id}", "", "dropped", f"the format has no axioms: {what}")
    for theorem in original.theorems:
        if theorem.id not in returned:
            yield Loss(f"theorems/{theorem.id}", "", "dropped", "not written")
        else:
            yield from _fields(theorem, returned[theorem.id])
    for template in original.templates:
        yield Loss(f"personal_templates/{template.id}", "", "dropped", "the format reads no profile")
    for _, section, _, item in walk(original):
        if item.status != "active":
            yield Loss(
                f"{section}/{item.id}", "", "dropped", f"status {item.status}: only active items are written"
            )


def _header(original: Rubric, back: RubricFile) -> Iterator[Loss]:
    header, other = original.file.rubric, back.rubric
    if header.id != other.id:
        yield Loss("rubric", "id", "approximated", f"{header.id} becomes {other.id}")
    if header.version != VERSION:
        yield Loss("rubric", "version", "dropped", header.version)
    if header.imports:
        yield Loss("rubric", "imports", "approximated", f"items of {', '.join(header.imports)} are copied")
    if original.guidelines != other.guidelines:
        yield _changed("rubric", "guidelines", original.guidelines, other.guidelines, "")
    for name in ("title", "languages", "license"):
        value = getattr(header, name)
        if value and value != getattr(other, name):
            yield _changed("rubric", name, value, getattr(other, name), type(value)())
    for name, info in Policy.model_fields.items():
        value, now = getattr(original.policy, name), getattr(back.policy, name)
        if value != now:
            yield _changed("policy", name, value, now, info.default)
    if original.file.changelog and original.file.changelog != back.changelog:
        yield Loss("changelog", "", "dropped", f"{len(original.file.changelog)} entries")


def _fields(theorem: Theorem, back: Theorem) -> Iterator[Loss]:
    path = f"theorems/{theorem.id}"
    for name, info in Theorem.model_fields.items():
        value, now = getattr(theorem, name), getattr(back, name)
        if name in _SKIPPED or value == now or (name in _UNHASHED and not value):
            continue
        if name in ("tags", "sources"):
            missing = tuple(v for v in value if v not in now)
            if missing:
                yield Loss(path, name, "dropped", _short(missing))
        elif name == "derived_from":
            yield Loss(path, name, "dropped", f"{', '.join(value)}; reads back as {PREMISE}")
        elif name == "derivation":
            if value != DERIVATION:
                yield Loss(path, name, "dropped", shown(value))
        else:
            yield _changed(path, name, value, now, info.default)


def _changed(path: str, name: str, value: Any, now: Any, default: Any) -> Loss:
    kind: Kind = "dropped" if now == default else "approximated"
    detail = _short(value) if kind == "dropped" else f"{_short(value)} becomes {_short(now)}"
    return Loss(path, name, kind, detail)


def _short(value: Any) -> str:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_defaults=True) or value.model_dump()
    if isinstance(value, tuple):
        value = [v.model_dump(exclude_defaults=True) if isinstance(v, BaseModel) else v for v in value]
    return value if isinstance(value, str) and len(value) <= 60 else shown(value)
