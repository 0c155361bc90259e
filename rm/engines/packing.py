"""Prompts as a tree of tokens: what several prompts begin with is computed once.

All suffixes of all turns of a trajectory share one row. A node is a token, it sees its ancestors and
itself, its position is its depth; so every prompt's last token sees exactly what it would see alone.
Last tokens are leaves and stand at the end of the row, where ``logits_to_keep`` finds them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ids = tuple[int, ...]


@dataclass
class Pack:
    """One row: inner tokens in creation order, then one last token for each prompt."""

    ids: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """Chains of inner tokens: start, length, parent index (-1 = root)."""
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    """One a prompt: its index in the call, its last token, the parent of that token (-1 = root)."""
    paths: list[list[int]] = field(default_factory=list)
    """Inner token indices of each prompt, in order; filled along with ``ends``."""

    @property
    def size(self) -> int:
        """Tokens in the row."""
        return len(self.ids) + len(self.ends)

    def tokens(self) -> list[int]:
        """Token ids of the row."""
        return self.ids + [token for _, token, _ in self.ends]

    def positions(self) -> list[int]:
        """Depth of each token: its position in the prompts that hold it."""
        return self.depths + [len(path) for path in self.paths]

    def mask(self) -> NDArray[np.bool_]:
        """``(size, size)``, row = query; True = sees."""
        seen = np.eye(self.size, dtype=bool)
        for start, length, parent in self.runs:
            block = slice(start, start + length)
            if parent >= 0:
                seen[block, :start] = seen[parent, :start]
            seen[block, block] = np.tri(length, dtype=bool)
        for j, (_, _, parent) in enumerate(self.ends, len(self.ids)):
            if parent >= 0:
                seen[j, : len(self.ids)] = seen[parent, : len(self.ids)]
        return seen


def pack(
    sequences: Sequence[Ids], *, max_branches: int, balance: float = math.inf, min_shared: float = 0.5
) -> list[Pack]:
    """Rows that hold every sequence once.

    A row of n tokens costs about ``n + n^2 / balance``. With a trunk of L tokens that every row repeats, the
    cost a sequence is smallest for rows of ``L + sqrt(balance L + L^2)`` tokens; that is where a row closes.

    Args:
        sequences: non-empty id sequences, in any order.
        max_branches: tokens that a row may hold beyond its longest sequence; 0 = no sharing.
        balance: work of the layers on one token over work of attention on one pair of tokens.
        min_shared: a sequence joins a row only if it shares this part of itself with the one before it in
            id order; dense attention over strangers would cost more than it saves.
    """
    packs: list[Pack] = []
    row = Pack()
    before: Ids = ()
    path: list[int] = []
    trunk = 0
    for index in sorted(range(len(sequences)), key=lambda i: sequences[i]):
        inner = sequences[index][:-1]
        shared = shared_length(before, inner)
        fresh = len(inner) - shared + 1
        trunk = max(trunk, len(inner))
        full = trunk + min(max_branches, math.sqrt(balance * trunk + trunk**2))
        if row.ends and (shared < min_shared * len(inner) or row.size + fresh > full):
            row, shared, path, trunk = Pack(), 0, [], len(inner)
        if not row.ends:
            packs.append(row)
        path = path[:shared]
        parent = path[-1] if path else -1
        start = len(row.ids)
        if len(inner) > shared:
            row.runs.append((start, len(inner) - shared, parent))
            row.ids += inner[shared:]
            row.depths += range(shared, len(inner))
            path = path + list(range(start, len(row.ids)))
        row.ends.append((index, sequences[index][-1], path[-1] if path else -1))
        row.paths.append(path)
        before = inner
    return packs


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


def buckets(sizes: Sequence[int], *, max_tokens: int, max_square: int) -> list[list[int]]:
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
