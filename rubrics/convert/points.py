"""Criteria with points, as HealthBench and RubricHub write them: ``{criterion, points, tags}``."""

from collections.abc import Sequence
from typing import Any

from axiomrm.rubrics.convert.build import Criterion, signed
from axiomrm.rubrics.convert.entry import Entry
from axiomrm.rubrics.convert.written import signed_weight
from axiomrm.rubrics.model import Source, Theorem


def read_points(entry: Entry, sources: Sequence[Source] = ()) -> Criterion | None:
    """One criterion; ``None``: 0 points."""
    statement = entry.text("criterion")
    weight = signed(entry, "points")
    tags: tuple[str, ...] = ()
    if isinstance(entry.data.get("tags"), list):
        tags = entry.texts("tags")
    entry.drop_rest()
    return Criterion(statement, *weight, tags=tags, sources=tuple(sources)) if weight is not None else None


def write_points(theorem: Theorem) -> dict[str, Any]:
    """One theorem; the sign of the points is its polarity."""
    return {"criterion": theorem.statement, "points": signed_weight(theorem), "tags": list(theorem.tags)}
