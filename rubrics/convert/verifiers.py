"""verifiers' rubric judge (TOML, JSON): ``criteria: [{name, text, weight, choices}]``, choices worst to best.

Its score, Σ weight·k/(n−1) ÷ Σ weight, is our ``net`` reward without penalties and axioms. It knows no
penalties: one with an ``inverse`` wording is written as a reward for the fault's absence, one without is
refused.
"""

from typing import Any

from axiomrm.errors import DataError
from axiomrm.rubrics.convert.build import (
    Criterion,
    Imported,
    Level,
    anchors_of,
    build,
    levels_of,
    loss,
    plain_number,
    usable_id,
)
from axiomrm.rubrics.convert.entry import Entry, entries_of, load, load_toml
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.written import Read, Written, as_json, ids
from axiomrm.rubrics.model import Anchor, Theorem
from axiomrm.rubrics.rubric import Rubric

BINARY = ("no", "yes")


def read(text: str, file: str, name: str) -> Read:
    """One rubric.

    Raises:
        DataError: not the format.
    """
    losses: list[Loss] = []
    tree = load_toml(text, file) if file.endswith(".toml") else load(text, file)
    path = ""
    if isinstance(tree, dict):
        losses += [Loss("", k, "dropped") for k in tree if k != "criteria"]
        tree, path = tree.get("criteria"), "criteria"
    criteria = [c for e in entries_of(tree, file, path, losses) if (c := _criterion(e)) is not None]
    if not criteria:
        raise DataError(f"{file}: no criterion with a positive weight")
    return Read((Imported(build(name, criteria)),), LossReport(tuple(losses)))


def _criterion(entry: Entry) -> Criterion | None:
    label, text, weight = entry.text("name"), entry.text("text"), entry.number("weight", 1.0)
    if weight < 0:
        raise entry.error("weight", "a number >= 0")
    choices = entry.texts("choices") or BINARY
    if len(choices) < 2 or len(set(choices)) < len(choices):
        raise entry.error("choices", "two or more different answers, worst first")
    anchors: tuple[Anchor, ...] = ()
    if choices != BINARY:
        levels = [Level(i / (len(choices) - 1), c) for i, c in enumerate(choices)]
        anchors = anchors_of(levels, entry, "choices")
    entry.drop_rest()
    if weight == 0:
        entry.lose("", "dropped", "weight 0: the criterion cannot move a score")
        return None
    name = usable_id(label)
    return Criterion(text, weight, anchors=anchors, id=name, tags=() if name else (f"name:{label}",))


def write(rubric: Rubric) -> Written:
    """All active theorems, as JSON.

    Raises:
        DataError: a penalty without ``inverse`` wording.
    """
    losses: list[Loss] = []
    criteria = [_written(t, losses) for t in rubric.theorems]
    return Written(as_json({"criteria": criteria}), ids(rubric.theorems), tuple(losses))


def _written(theorem: Theorem, losses: list[Loss]) -> dict[str, Any]:
    text = theorem.statement
    choices = [level.text for level in levels_of(theorem.scale.anchors)]
    if theorem.polarity == "penalty":
        if not theorem.inverse.strip():
            raise DataError(
                f"{theorem.id}: verifiers has no penalties; word the fault's absence as 'inverse'"
            )
        text, choices = theorem.inverse, choices[::-1] if theorem.scale.anchors else choices
        losses.append(
            loss(f"theorems/{theorem.id}", "polarity", "approximated", "a reward for the inverse wording")
        )
    return {"name": theorem.id, "text": text, "weight": plain_number(theorem.weight), "choices": choices}
