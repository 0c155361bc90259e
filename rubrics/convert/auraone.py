"""AuraOne rubric-schema v1 (JSON): criteria with anchors in their own unit, provenance, a judge contract.

``judge_prompt_contract.instruction`` is our guidelines, ``label`` our title; provenance becomes a line of
the changelog. Ordinal anchors without numbers are ranked in their order.
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
    plain_number,
    slug,
    text_id,
    usable_id,
)
from axiomrm.rubrics.convert.entry import Entry, entry_of, load
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.verifiers import BINARY
from axiomrm.rubrics.convert.written import Read, Written, as_json, ids
from axiomrm.rubrics.model import Anchor, Theorem
from axiomrm.rubrics.rubric import Rubric

FORMAT = "auraone-rubric-v1"
INSTRUCTION = "Score each criterion from its anchors."
_SCALES = ("binary", "ordinal", "likert", "continuous")


def read(text: str, file: str, name: str) -> Read:
    """One rubric; its ``rubric_id`` is kept as the title if ``label`` is missing.

    Raises:
        DataError: not the format.
    """
    losses: list[Loss] = []
    entry = entry_of(load(text, file), file, "", losses)
    if entry.text("version") != FORMAT:
        raise entry.error("version", repr(FORMAT))
    own = entry.text("rubric_id")
    title = entry.text("label", "") or (own if slug(own) != own else "")
    contract = entry_of(entry.data.get("judge_prompt_contract", {}), file, "judge_prompt_contract", losses)
    guidelines = contract.text("instruction", "")
    if contract.data.get("output_format") == "json":
        contract.used |= {"output_format"}
    contract.drop_rest()
    entry.used |= {"judge_prompt_contract"}
    criteria = [_criterion(e) for e in entry.entries("criteria")]
    if not criteria:
        raise DataError(f"{file}: no criteria")
    changelog = _provenance(entry)
    _tie_break(entry)
    entry.drop_rest()
    guidelines = "" if guidelines == INSTRUCTION else guidelines
    model = build(slug(own), criteria, title=title, guidelines=guidelines, changelog=changelog)
    return Read((Imported(model),), LossReport(tuple(losses)))


def _provenance(entry: Entry) -> list[dict[str, str]]:
    entry.used.add("provenance")
    if not entry.has("provenance"):
        return []
    origin = entry_of(entry.data["provenance"], entry.file, "provenance", entry.losses)
    source, author, date = (origin.text(k, "") for k in ("source", "created_by", "created_at"))
    note = f"AuraOne rubric from {source or 'an unnamed source'}" + (f" by {author}" if author else "")
    if origin.data.get("synthetic") is True:
        note += ", synthetic"
    origin.used.add("synthetic")
    origin.drop_rest()
    return [{"version": "1.0.0", "date": date, "note": note}]


def _tie_break(entry: Entry) -> None:
    if entry.text("tie_break_rule", "none") != "none":
        entry.drop("tie_break_rule")


def _criterion(entry: Entry) -> Criterion:
    given, label = entry.text("criterion_id"), entry.text("label")
    described = entry.text("description", "")
    statement = described if described.strip() else label
    weight = entry.number("weight")
    if weight <= 0:
        raise entry.error("weight", "a number > 0")
    name = usable_id(given) or usable_id(given.lower().replace("-", "_"))
    if name != given:
        entry.lose("criterion_id", "inferred", f"{given} becomes {name or text_id(statement)}")
    tags = (f"label:{label}",) if label not in (given, statement) else ()
    anchors = _anchors(entry)
    _tie_break(entry)
    entry.drop_rest()
    return Criterion(statement, weight, anchors=anchors, id=name, tags=tags)


def _anchors(entry: Entry) -> tuple[Anchor, ...]:
    scale = entry.text("scale_type")
    if scale not in _SCALES:
        raise entry.error("scale_type", f"one of {', '.join(_SCALES)}")
    found = entry.entries("anchors")
    texts = [_anchor_text(a) for a in found]
    if len(found) < 2:
        raise entry.error("anchors", "a list of two or more anchors")
    values = [a.data.get("value") for a in found]
    if any(isinstance(v, bool) or not isinstance(v, int | float) for v in values):
        entry.lose("anchors", "inferred", "values that are no numbers are ranked in their order")
        values = list(range(len(values)))
    if scale == "continuous":
        entry.lose("scale_type", "approximated", "a continuous scale becomes the levels that have anchors")
    if scale == "binary" and tuple(texts) == BINARY and values == [0, 1]:
        return ()
    levels = [Level(float(v), t) for v, t in zip(values, texts, strict=True) if v is not None]
    return anchors_of(levels, entry, "anchors", rescale=True)


def _anchor_text(anchor: Entry) -> str:
    text, more = anchor.text("label"), anchor.text("description", "")
    return f"{text}: {more}" if more else text


def write(rubric: Rubric) -> Written:
    """All active theorems; penalties cannot be said.

    Raises:
        DataError: no reward theorem.
    """
    rewards = [t for t in rubric.theorems if t.polarity == "reward"]
    if not rewards:
        raise DataError(f"{rubric.id}: AuraOne rubrics hold rewards only, and this rubric has none")
    last = rubric.file.changelog[-1] if rubric.file.changelog else None
    tree = {
        "version": FORMAT,
        "rubric_id": rubric.id,
        "label": rubric.file.rubric.title or rubric.id,
        "tie_break_rule": "none",
        "judge_prompt_contract": {"instruction": rubric.guidelines or INSTRUCTION, "output_format": "json"},
        "provenance": {
            "source": f"{rubric.id}@{rubric.version}",
            "created_by": "axiomrm",
            "created_at": last.date if last is not None else "",
            "synthetic": False,
        },
        "criteria": [_written(t) for t in rewards],
    }
    return Written(as_json(tree), ids(rewards))


def _written(theorem: Theorem) -> dict[str, Any]:
    levels = levels_of(theorem.scale.anchors)
    return {
        "criterion_id": theorem.id,
        "label": theorem.id,
        "description": theorem.statement,
        "scale_type": "ordinal" if theorem.scale.anchors else "binary",
        "weight": plain_number(theorem.weight),
        "anchors": [{"value": plain_number(level.value), "label": level.text} for level in levels],
        "examples": [],
    }
