"""What a writer returns, and helpers that several writers need."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from axiomrm.rubrics.convert.build import Imported, plain_number
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.model import Theorem
from axiomrm.rubrics.rubric import Rubric


class Written(NamedTuple):
    """One export before its losses are completed."""

    text: str
    order: tuple[str, ...]
    """Ids of the theorems, in the order in which reading back gives them."""
    losses: tuple[Loss, ...] = ()


class Read(NamedTuple):
    """One import."""

    rubrics: tuple[Imported, ...]
    report: LossReport


def as_json(value: Any) -> str:
    """Indented JSON with a line feed at the end."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def as_row(value: Any) -> str:
    """One line of JSONL."""
    return json.dumps(value, ensure_ascii=False) + "\n"


def signed_weight(theorem: Theorem) -> int | float:
    """Weight with the polarity as its sign."""
    return plain_number(theorem.weight if theorem.polarity == "reward" else -theorem.weight)


def ids(theorems: Sequence[Theorem]) -> tuple[str, ...]:
    """Their ids, in order."""
    return tuple(t.id for t in theorems)


def positive_weight(rubric: Rubric) -> float:
    """Total weight of the reward theorems."""
    return sum(t.weight for t in rubric.theorems if t.polarity == "reward")
