"""G-Eval metrics as DeepEval names their fields (JSON or YAML): one metric, or a list of them.

``criteria`` is the statement, ``evaluation_steps`` numbered guidelines, each ``score_range`` of ``rubric``
an anchor at its middle ÷ 10. A metric without ``rubric`` is scored from 0 to 10 without anchors; it becomes
yes or no.
"""

import re
from typing import Any

from axiomrm.errors import DataError
from axiomrm.rubrics.convert.build import (
    Criterion,
    Imported,
    Level,
    anchors_of,
    build,
    levels_of,
    plain_number,
    usable_id,
)
from axiomrm.rubrics.convert.entry import Entry, entries_of, load
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.verifiers import BINARY
from axiomrm.rubrics.convert.written import Read, Written, as_json, ids
from axiomrm.rubrics.model import Anchor, Theorem
from axiomrm.rubrics.rubric import Rubric

_KEPT = ("name", "criteria", "evaluation_steps", "rubric")
STEPS_ONLY = "Follows the evaluation steps of the guidelines."


def read(text: str, file: str, name: str) -> Read:
    """One rubric; a list of metrics becomes its theorems.

    Raises:
        DataError: not the format.
    """
    losses: list[Loss] = []
    tree = load(text, file)
    entries = entries_of(tree if isinstance(tree, list) else [tree], file, "", losses)
    if not isinstance(tree, list) and entries:
        entries[0].path = ""
    criteria = [_criterion(e) for e in entries]
    if not criteria:
        raise DataError(f"{file}: no metric")
    model = build(name, criteria, guidelines=_guidelines(entries))
    return Read((Imported(model),), LossReport(tuple(losses)))


def _guidelines(entries: list[Entry]) -> str:
    """The steps, numbered; under the metric's name where metrics have different ones."""
    blocks = {e.data.get("name", ""): _numbered(e.texts("evaluation_steps")) for e in entries}
    different = set(blocks.values()) - {""}
    if len(different) <= 1:
        return next(iter(different), "")
    return "\n\n".join(f"{name}:\n{steps}" for name, steps in blocks.items() if steps)


def _numbered(steps: tuple[str, ...]) -> str:
    return "\n".join(f"{i}. {' '.join(s.split())}" for i, s in enumerate(steps, 1))


def _criterion(entry: Entry) -> Criterion:
    label, told = entry.text("name", ""), entry.has("criteria")
    if not told and not any(step.strip() for step in entry.texts("evaluation_steps")):
        raise entry.error("criteria", "a text, or evaluation_steps beside it")
    statement = entry.text("criteria") if told else STEPS_ONLY
    if not told:
        entry.lose("criteria", "inferred", "only evaluation_steps: the statement points at them")
    anchors = _anchors(entry)
    entry.drop_rest(_KEPT)
    name = usable_id(label)
    tags = (f"name:{label}",) if label and not name else ()
    return Criterion(statement, anchors=anchors, id=name, tags=tags)


def _anchors(entry: Entry) -> tuple[Anchor, ...]:
    if not entry.data.get("rubric"):
        entry.lose("rubric", "approximated", "a score of 0 to 10 without anchors becomes yes or no")
        return ()
    levels, wide = [], False
    for row in entry.entries("rubric"):
        low, high = _range(row)
        wide = wide or low != high
        levels.append(Level((low + high) / 20, row.text("expected_outcome")))
    levels.sort()
    if len(levels) >= 2 and (levels[0].value, levels[-1].value) != (0, 1):
        wide = True
        # Stretching would move the inner anchors too; the ends of a scale of ours are 0 and 1 by definition.
        levels = [Level(0.0, levels[0].text), *levels[1:-1], Level(1.0, levels[-1].text)]
    if wide:
        entry.lose("rubric", "approximated", "each score range becomes its middle, the outer ones 0 and 1")
    if [tuple(level) for level in levels] == [(0.0, BINARY[0]), (1.0, BINARY[1])]:
        return ()
    return anchors_of(levels, entry, "rubric")


def _range(row: Entry) -> tuple[float, float]:
    value = row.data.get("score_range")
    numbers = (
        [v for v in value if isinstance(v, int) and not isinstance(v, bool)]
        if isinstance(value, list)
        else []
    )
    if len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1] <= 10:
        raise row.error("score_range", "two whole numbers from 0 to 10, rising")
    return numbers[0], numbers[1]


def write(rubric: Rubric) -> Written:
    """One metric, or a list where there are several theorems.

    Raises:
        DataError: two anchors of one theorem fall on one whole score.
    """
    steps = _steps(rubric.guidelines)
    rewards = [t for t in rubric.theorems if t.polarity == "reward"]
    if not rewards:
        raise DataError(f"{rubric.id}: G-Eval has no penalties, and this rubric has no reward")
    metrics = [_written(t, steps) for t in rewards]
    return Written(as_json(metrics[0] if len(metrics) == 1 else metrics), ids(rewards))


def _steps(guidelines: str) -> list[str]:
    lines = [line.strip() for line in guidelines.splitlines() if line.strip()]
    return [re.sub(r"^\d+\.\s+", "", line) for line in lines]


def _written(theorem: Theorem, steps: list[str]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for level in levels_of(theorem.scale.anchors):
        score = round(level.value * 10)
        rows.append({"score_range": [score, score], "expected_outcome": level.text})
    if len({r["score_range"][0] for r in rows}) < len(rows):
        values = ", ".join(f"{plain_number(a.value)}" for a in theorem.scale.anchors)
        raise DataError(
            f"{theorem.id}: G-Eval scores are whole numbers from 0 to 10; anchors {values} are too near"
        )
    out: dict[str, Any] = {"name": theorem.id, "criteria": theorem.statement}
    return {**out, **({"evaluation_steps": steps} if steps else {}), "rubric": rows}
