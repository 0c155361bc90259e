"""Which random numbers a prompt draws from: its own, whatever else stands in the batch."""

import hashlib
from collections import Counter
from collections.abc import Hashable, Sequence
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
    return [RowSeed(seed, ids, copies) for ids, copies in zip(prompts, copies_before(prompts), strict=True)]


def copy_seed(seed: int, copies: int) -> int:
    """Seed of a copy where a server takes one number a request; the first copy has the run's own.

    Hashed, so that runs with neighbouring seeds share no sample.
    """
    if copies == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}\0copy {copies}".encode()).digest()[:4], "big")


def copies_before(entries: Sequence[Hashable]) -> list[int]:
    """How often each entry stands before its place.

    >>> copies_before("abaab")
    [0, 0, 1, 2, 1]
    """
    seen: Counter[Hashable] = Counter()
    found = []
    for entry in entries:
        found.append(seen[entry])
        seen[entry] += 1
    return found
