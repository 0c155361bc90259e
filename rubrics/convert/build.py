"""Foreign criteria → one ``atr/1`` document, all drafts under a premise."""

import hashlib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from axiomrm.rubrics.convert.entry import Entry
from axiomrm.rubrics.convert.loss import Loss
from axiomrm.rubrics.lint_ids import ITEM_ID
from axiomrm.rubrics.model import Anchor, Polarity, RubricFile, Source

PREMISE = "ax.imported"
PREMISE_TEXT = "Taken over from another format; which axiom each criterion serves is still to be said."
DERIVATION = "taken over from another format, its reason was not written down"
VERSION = "1.0.0"
_MAX_ANCHORS = 7


@dataclass(frozen=True)
class Criterion:
    """One criterion of a foreign rubric, in our terms."""

    statement: str
    weight: float = 1.0
    """Positive; the sign is in ``polarity``."""
    polarity: Polarity = "reward"
    anchors: tuple[Anchor, ...] = ()
    id: str = ""
    """Empty: made from the statement."""
    inverse: str = ""
    tags: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Imported:
    """One rubric that was read from a foreign file."""

    model: RubricFile
    task_id: str = ""
    """The prompt that it belongs to; empty: any."""
    context: dict[str, Any] = field(default_factory=dict)
    """What the record says about the task (prompt, tags …), which no rubric holds."""


class Level(NamedTuple):
    """One level of a foreign scale."""

    value: float
    text: str


def text_id(statement: str) -> str:
    """``c_`` and 8 hex digits of the text's SHA-256, for formats without ids."""
    normal = unicodedata.normalize("NFC", statement)
    return "c_" + hashlib.sha256(normal.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def usable_id(name: str) -> str:
    """``name`` if it is a legal item id, else empty."""
    return name if ITEM_ID.fullmatch(name) and name != PREMISE else ""


def slug(name: str) -> str:
    """A legal rubric id made from a name; a legal one stays as it is."""
    out = re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_") or "rubric"
    return out if out[0].isalpha() else f"r_{out}"


def free_name(name: str, taken: set[str]) -> str:
    """``name``, or with the first number from 2 that makes it free; it is taken then."""
    own, number = name, 1
    while own in taken:
        number += 1
        own = f"{name}_{number}"
    taken.add(own)
    return own


def build(
    name: str,
    criteria: Sequence[Criterion],
    *,
    title: str = "",
    guidelines: str = "",
    scale: str = "net",
    changelog: Sequence[dict[str, str]] = (),
) -> RubricFile:
    """One document; its items are drafts until someone has read them.

    Args:
        name: id of the rubric.
        criteria: in order; equal ids get a number mixed into their hash.
        title: as in the header.
        guidelines: as in the header.
        scale: of the policy.
        changelog: rows of the changelog.
    """
    header: dict[str, Any] = {"id": name, "version": VERSION}
    header.update({k: v for k, v in (("title", title), ("guidelines", guidelines)) if v})
    tree: dict[str, Any] = {"schema": "atr/1", "rubric": header}
    tree["axioms"] = [{"id": PREMISE, "statement": PREMISE_TEXT, "type": "premise"}]
    tree["theorems"] = [_theorem(i, c) for i, c in zip(_ids(criteria), criteria, strict=True)]
    if scale != "net":
        tree["policy"] = {"scale": scale}
    if changelog:
        tree["changelog"] = list(changelog)
    return RubricFile.parse(tree)


def _ids(criteria: Sequence[Criterion]) -> list[str]:
    taken: set[str] = set()
    out = []
    for criterion in criteria:
        name, number = criterion.id or text_id(criterion.statement), 1
        while name in taken:
            number += 1
            name = text_id(f"{criterion.statement}#{number}")
        taken.add(name)
        out.append(name)
    return out


def _theorem(name: str, criterion: Criterion) -> dict[str, Any]:
    out: dict[str, Any] = {"id": name, "derived_from": [PREMISE], "derivation": DERIVATION}
    out["statement"] = criterion.statement
    if criterion.anchors:
        out["scale"] = {"kind": "ordinal", "anchors": [a.model_dump() for a in criterion.anchors]}
    out["weight"] = criterion.weight
    if criterion.polarity != "reward":
        out["polarity"] = criterion.polarity
    if criterion.inverse:
        out["inverse"] = criterion.inverse
    if criterion.tags:
        out["tags"] = list(criterion.tags)
    if criterion.sources:
        out["sources"] = [s.model_dump(exclude_defaults=True) for s in criterion.sources]
    return {**out, "status": "draft"}


def activated(model: RubricFile) -> RubricFile:
    """The document with its imported drafts set to score."""
    theorems = tuple(
        t.model_copy(update={"status": "active"}) if t.status == "draft" else t for t in model.theorems
    )
    return model.model_copy(update={"theorems": theorems})


def signed(entry: Entry, key: str, default: float | None = None) -> tuple[float, Polarity] | None:
    """A signed weight → weight and polarity; ``None`` for 0, which is reported: it cannot move a score."""
    value = entry.number(key) if default is None else entry.number(key, default)
    if value == 0:
        entry.lose("", "dropped", f"{key} 0: the criterion cannot move a score")
        return None
    return abs(value), "reward" if value > 0 else "penalty"


def anchors_of(
    levels: Sequence[Level], entry: Entry, name: str, *, rescale: bool = False
) -> tuple[Anchor, ...]:
    """Levels → anchors that rise strictly from 0 to 1; every change is reported.

    Args:
        levels: in any order.
        entry: where they stand.
        name: field for the report.
        rescale: the foreign values are in a unit of their own, so bringing them to [0, 1] loses nothing.

    Returns:
        2 to 7 anchors, or none if fewer than two different values are left.
    """
    merged: dict[float, list[str]] = {}
    for level in sorted(levels, key=lambda level: level.value):
        merged.setdefault(level.value, []).append(
            level.text if level.text.strip() else f"level {level.value:g}"
        )
    if len(merged) < len(levels):
        entry.lose(name, "approximated", "levels of one value are merged")
    if len(merged) < 2:
        entry.lose(name, "dropped", "a scale needs two levels; yes or no instead")
        return ()
    values = list(merged)
    if len(values) > _MAX_ANCHORS:
        keep = {round(i * (len(values) - 1) / (_MAX_ANCHORS - 1)) for i in range(_MAX_ANCHORS)}
        values = [v for i, v in enumerate(values) if i in keep]
        entry.lose(name, "approximated", f"{len(merged)} levels, {_MAX_ANCHORS} are kept")
    low, high = values[0], values[-1]
    if (low, high) != (0.0, 1.0) and not rescale:
        entry.lose(name, "approximated", f"values {low:g}…{high:g} are stretched to 0…1")
    texts = _different([" / ".join(dict.fromkeys(merged[v])) for v in values], entry, name)
    span = high - low
    return tuple(
        Anchor(value=v if (low, high) == (0, 1) else _short((v - low) / span), text=t)
        for v, t in zip(values, texts, strict=True)
    )


def _short(value: float) -> float:
    """Without the dust of binary fractions: (0.3 − 0.1) / 0.4 is 0.5."""
    return round(value, 12)


def _different(texts: list[str], entry: Entry, name: str) -> list[str]:
    if len(set(texts)) == len(texts):
        return texts
    entry.lose(name, "approximated", "levels of one text are numbered")
    return [f"{t} ({i})" if texts.count(t) > 1 else t for i, t in enumerate(texts, 1)]


def levels_of(anchors: Sequence[Anchor]) -> tuple[Level, ...]:
    """Anchors as levels; without anchors ``no`` and ``yes``."""
    return tuple(Level(a.value, a.text) for a in anchors) or (Level(0.0, "no"), Level(1.0, "yes"))


def plain_number(value: float) -> int | float:
    """Without a needless ``.0``."""
    return int(value) if value == int(value) else value


def loss(path: str, name: str, kind: str, detail: str = "") -> Loss:
    """A loss of an export."""
    assert kind in ("dropped", "approximated", "inferred")
    return Loss(path, name, kind, detail)  # type: ignore[arg-type]
