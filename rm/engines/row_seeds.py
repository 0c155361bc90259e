"""Which random numbers a prompt draws from: its own, whatever else stands in the batch."""

from collections.abc import Sequence
from typing import NamedTuple

Ids = tuple[int, ...]


class RowSeed(NamedTuple):
    """What a prompt's random numbers depend on."""

    seed: int
    ids: Ids
    copies: int
    """How often the prompt stood before it in the call."""


def row_seeds(prompts: Sequence[Ids], seed: int) -> list[RowSeed]:
    """The seed of each prompt; two copies of a prompt are two samples."""
    count: dict[Ids, int] = {}
    seeds = []
    for ids in prompts:
        seeds.append(RowSeed(seed, ids, count.get(ids, 0)))
        count[ids] = count.get(ids, 0) + 1
    return seeds
