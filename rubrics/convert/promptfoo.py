"""promptfoo ``llm-rubric`` assertions (YAML or JSON configuration).

One rubric a test that has such assertions; those of ``defaultTest`` belong to each. ``not-llm-rubric`` is a
penalty, and a rubric with penalties has the scale ``signed``, whose ``Aggregate.base`` is promptfoo's
weighted mean. An ``assert-set`` is flattened: its weight is shared out in proportion, which leaves the mean
as it was. Provider, threshold and rubricPrompt cannot act here; they are kept as sources and reported.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from axiomrm.errors import DataError
from axiomrm.rubrics.convert.build import Criterion, Imported, build, plain_number, text_id, usable_id
from axiomrm.rubrics.convert.entry import Entry, entry_of, load
from axiomrm.rubrics.convert.loss import Loss, LossReport, shown
from axiomrm.rubrics.convert.written import Read, Written, as_json, ids
from axiomrm.rubrics.model import Source, Theorem
from axiomrm.rubrics.rubric import Rubric

_TYPES = {"llm-rubric": "reward", "not-llm-rubric": "penalty"}
_ANNOTATED = ("provider", "threshold", "rubricPrompt")
_VARIABLE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
_TASK_KEYS = ("vars", "description", "metadata")


def read(text: str, file: str, name: str) -> Read:
    """One rubric a test with ``llm-rubric`` assertions.

    Raises:
        DataError: not the format, or no such assertion.
    """
    losses: list[Loss] = []
    root = entry_of(load(text, file), file, "", losses)
    title = root.text("description", "")
    shared = _of_test(_default(root))
    own = [(t, _of_test(t)) for t in (root.entries("tests") if root.has("tests") else [])]
    root.drop_rest(("defaultTest",))
    found = [(t, c) for t, c in own if c] or ([(root, [])] if shared else [])
    if not found:
        raise DataError(f"{file}: no assertion of type llm-rubric in tests or defaultTest")
    out = []
    for number, (test, criteria) in enumerate(found, 1):
        context = {k: test.data[k] for k in _TASK_KEYS if k in test.data and test is not root}
        rubric = name if len(found) == 1 else f"{name}_{number}"
        out.append(Imported(_rubric(rubric, [*shared, *criteria], title), _task(test, root), context))
    return Read(tuple(out), LossReport(tuple(losses)))


def _rubric(name: str, criteria: list[Criterion], title: str) -> Any:
    taken: set[str] = set()
    unique = []
    for criterion in criteria:
        twice = criterion.id in taken
        unique.append(replace(criterion, id="", tags=(f"metric:{criterion.id}",)) if twice else criterion)
        taken |= {criterion.id} - {""}
    scale = "signed" if any(c.polarity == "penalty" for c in criteria) else "net"
    return build(name, unique, title=title, scale=scale)


def _task(test: Entry, root: Entry) -> str:
    value = test.data.get("description")
    return value if isinstance(value, str) and test is not root else ""


def _default(root: Entry) -> Entry:
    root.used.add("defaultTest")
    return entry_of(root.data.get("defaultTest") or {}, root.file, "defaultTest", root.losses)


def _of_test(test: Entry) -> list[Criterion]:
    found = list(_assertions(test)) if test.has("assert") else []
    total = sum(_weight(a) for a, _ in found)
    test.drop_rest(_TASK_KEYS)
    if found and not total:
        return []
    return [c for a, factor in found if (c := _criterion(a, factor)) is not None]


def _weight(assertion: Entry) -> float:
    value = assertion.number("weight", 1.0)
    if value < 0:
        raise assertion.error("weight", "a number >= 0")
    return value


def _assertions(parent: Entry, factor: float = 1.0) -> Iterator[tuple[Entry, float]]:
    """Assertions of known type and the factor of their weight."""
    for assertion in parent.entries("assert"):
        kind = assertion.text("type")
        if kind == "assert-set":
            inner = list(assertion.entries("assert"))
            total = sum(_weight(a) for a in inner)
            share = _weight(assertion) / total if total else 0.0
            assertion.lose("type", "approximated", "the set is flattened, its weight shared out")
            yield from _assertions(assertion, factor * share)
            assertion.drop_rest()
        elif kind in _TYPES:
            yield assertion, factor
        else:
            assertion.lose("type", "dropped", f"assertion of type {kind}")


def _criterion(entry: Entry, factor: float) -> Criterion | None:
    text = entry.text("value")
    weight = _weight(entry) * factor
    weight = weight if factor == 1 else round(weight, 12)
    polarity = _TYPES[entry.text("type")]
    metric = entry.text("metric", "")
    sources = []
    for key in _ANNOTATED:
        if entry.has(key):
            sources.append(Source(kind=f"promptfoo.{key}", ref=shown(entry.data[key], 200)))
            entry.drop(key, "kept as a source, it does not act")
    if _VARIABLE.search(text):
        entry.lose("value", "approximated", "{{…}} is not filled in; the judge reads it as it stands")
    entry.drop_rest()
    if not weight:
        entry.lose("", "dropped", "weight 0: the assertion cannot move a score")
        return None
    name = usable_id(metric)
    tags = (f"metric:{metric}",) if metric and not name else ()
    side: Any = polarity
    return Criterion(text, weight, side, id=name, tags=tags, sources=tuple(sources))


def write(rubric: Rubric) -> Written:
    """One test with all active theorems; prompts and providers are for the user to add."""
    tree: dict[str, Any] = {}
    if rubric.file.rubric.title:
        tree["description"] = rubric.file.rubric.title
    tree["tests"] = [{"assert": [_written(t) for t in rubric.theorems]}]
    return Written(as_json(tree), ids(rubric.theorems))


def _written(theorem: Theorem) -> dict[str, Any]:
    kind = "llm-rubric" if theorem.polarity == "reward" else "not-llm-rubric"
    out: dict[str, Any] = {"type": kind, "value": theorem.statement, "weight": plain_number(theorem.weight)}
    if theorem.id != text_id(theorem.statement):
        out["metric"] = theorem.id
    return out
