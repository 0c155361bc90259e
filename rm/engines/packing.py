"""Prompts as a trunk with branches: what several prompts begin with is computed once.

A family is a set of prompts that share the beginning of one chain of tokens, its trunk: the criteria, the
turns and the samples of one conversation. Each prompt leaves the trunk somewhere and goes on as a branch.
Branches stand side by side in a row; a branch token sees the trunk up to where its prompt left it, its own
ancestors in the row, and itself, and its position is its depth. So every prompt's last token sees exactly
what it would see alone. Last tokens are leaves at the end of the row, where ``logits_to_keep`` finds them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = tuple[int, ...]


class Family(NamedTuple):
    """Prompts of one trunk, in id order; a prompt that shares nothing is a family without a trunk."""

    trunk: Ids
    members: list[int]
    """Indices in the call."""


class Leaf(NamedTuple):
    """The last token of a prompt."""

    prompt: int
    """Its index in the call."""
    token: int
    path: list[int]
    """Its own inner tokens in the row, in order."""


@dataclass
class Row:
    """Branches that leave a trunk at one place: inner tokens in creation order, then a leaf a prompt."""

    family: int = 0
    base: int = 0
    """Trunk tokens that all of them begin with, and see."""
    ids: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """Chains of inner tokens: start, length, parent index (-1 = the trunk)."""
    leaves: list[Leaf] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Tokens in the row."""
        return len(self.ids) + len(self.leaves)

    def tokens(self) -> list[int]:
        """Token ids of the row."""
        return self.ids + [leaf.token for leaf in self.leaves]

    def positions(self) -> list[int]:
        """Depth of each token: its position in the prompts that hold it."""
        return self.depths + [self.base + len(leaf.path) for leaf in self.leaves]

    def own_mask(self) -> NDArray[np.bool_]:
        """``(size, size)``, row = query; True = sees."""
        own = np.eye(self.size, dtype=bool)
        for start, length, parent in self.runs:
            block = slice(start, start + length)
            if parent >= 0:
                own[block, :start] = own[parent, :start]
            own[block, block] = np.tri(length, dtype=bool)
        for j, leaf in enumerate(self.leaves, len(self.ids)):
            own[j, leaf.path] = True
        return own

    def add(self, index: int, sequence: Ids, shared: int) -> None:
        """Append a prompt that shares ``shared`` tokens behind the trunk with the last one."""
        inner = sequence[self.base : -1]
        path = self.leaves[-1].path[:shared] if shared else []
        start = len(self.ids)
        if len(inner) > shared:
            self.runs.append((start, len(inner) - shared, path[-1] if path else -1))
            self.ids += inner[shared:]
            self.depths += range(self.base + shared, self.base + len(inner))
            path = path + list(range(start, len(self.ids)))
        self.leaves.append(Leaf(index, sequence[-1], path))


def families(sequences: Sequence[Ids], *, share: bool = True, min_shared: float = 0.5) -> list[Family]:
    """Every sequence once, with those of its trunk.

    Args:
        sequences: non-empty id sequences, in any order.
        share: False: each stands alone.
        min_shared: a member has at least this part of itself in common with the trunk; a longer branch would
            be read again for each row that it shares with others.
    """
    found: list[Family] = []
    order = sorted(range(len(sequences)), key=lambda i: sequences[i])
    while order:
        chains = _chains(sequences, order, min_shared if share else 2.0)
        order = []
        for trunk, members in chains:
            far = {
                i
                for i in members
                if trunk and shared_length(trunk, sequences[i][:-1]) < min_shared * len(sequences[i][:-1])
            }
            near = [i for i in members if i not in far]
            found.append(Family(trunk if len(near) > 1 else (), near))
            order += [i for i in members if i in far]
    return found


def _chains(sequences: Sequence[Ids], order: Sequence[int], min_shared: float) -> list[Family]:
    """Runs of neighbours in id order that share enough of the shorter; trunk: the most that any two share."""
    found: list[Family] = []
    before: Ids = ()
    for index in order:
        inner = sequences[index][:-1]
        shared = shared_length(before, inner)
        if shared and shared >= min_shared * min(len(inner), len(before)):
            trunk, members = found[-1]
            found[-1] = Family(before[:shared] if shared > len(trunk) else trunk, [*members, index])
        else:
            found.append(Family((), [index]))
        before = inner
    return found


def rows_of(
    sequences: Sequence[Ids], family: Family, *, number: int, limit: int, leaves: int = 2**31
) -> list[Row]:
    """The branches of a family in rows.

    Args:
        sequences: all of the call.
        family: whose branches.
        number: what the rows call the family.
        limit: tokens of a row; a row holds at least one branch all the same.
        leaves: prompts of a row.
    """
    rows: list[Row] = []
    before: Ids = ()
    for index in family.members:
        sequence = sequences[index]
        base = shared_length(family.trunk, sequence[:-1])
        row = rows[-1] if rows and rows[-1].base == base else None
        shared = shared_length(before[base:], sequence[base:-1]) if row else 0
        if row is None or row.size + len(sequence) - base - shared > limit or len(row.leaves) == leaves:
            row, shared = Row(number, base), 0
            rows.append(row)
        row.add(index, sequence, shared)
        before = sequence[:-1]
    return rows


def shared_length(a: Ids, b: Ids) -> int:
    """Length of the longest common prefix."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def buckets(sizes: Sequence[int], *, max_tokens: int, max_square: int = 2**62) -> list[list[int]]:
    """Indices in batches of similar size: padded tokens and padded squares stay under their budgets."""
    batches: list[list[int]] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        batch = batches[-1] if batches else []
        n = len(batch) + 1
        longest = sizes[batch[0]] if batch else 0
        if batch and n * longest <= max_tokens and n * longest**2 <= max_square and sizes[i] * 2 > longest:
            batch.append(i)
        else:
            batches.append([i])
    return batches
