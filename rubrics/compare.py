"""Two judge calls in swapped order → a winner; a verdict that follows the place is no win."""

from dataclasses import dataclass
from typing import Literal

Answer = Literal["A", "B", "T"]
"""The *place* that the judge named: first, second, or tie."""


@dataclass(frozen=True)
class Comparison:
    """Result of both orders."""

    winner: str | None
    """Name of a candidate, ``"tie"``, or ``None``: a call has no answer."""
    consistent: bool | None
    """Whether both orders said the same; ``None``: not known."""


def named(order: tuple[str, str], answer: Answer | None) -> str | None:
    """The candidate behind a place."""
    if answer is None:
        return None
    return "tie" if answer == "T" else order[0 if answer == "A" else 1]


def compare_orders(
    first: tuple[tuple[str, str], Answer | None], second: tuple[tuple[str, str], Answer | None]
) -> Comparison:
    """Combine two calls.

    Args:
        first: (who stood at place A and B, answer); ``None``: the call failed.
        second: the same for the other order.

    Returns:
        A winner only if both calls name the same candidate; any disagreement is an inconsistent tie.
    """
    a, b = named(*first), named(*second)
    if a is None or b is None:
        return Comparison(None, None)
    return Comparison(a if a == b else "tie", a == b)
