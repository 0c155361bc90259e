"""Tree packing: a recording is read once and all its questions branch off it, in one row.

A token sees its ancestors and itself, and its position is its depth, so every row reads exactly as it would
alone: a branch for turn t sees the recording up to the end of turn t. Needs full causal attention and
explicit positions; elsewhere each row is packed alone and padded.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axiomrm.rm.engines.packing import shared_length
from axiomrm.rm.training.row_set import IGNORED, JudgeRow


@dataclass
class TreeRow:
    """Tokens of one or several rows; what they begin with stands once."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    """The token itself where it is trained, else -100; a trained token always follows its parent directly."""
    weights: list[float] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    """Chains of tokens: start, length, parent index (-1 = root)."""
    rows: int = 0
    path: list[int] = field(default_factory=list)
    """Indices of the last row's tokens."""

    @property
    def size(self) -> int:
        """Tokens."""
        return len(self.ids)

    def add(self, row: JudgeRow, shared: int) -> None:
        """Append ``row``, whose first ``shared`` tokens are those of the last row."""
        start, path = self.size, self.path[:shared]
        fresh = row.input_ids[shared:]
        self.ids += fresh
        self.positions += range(shared, len(row.input_ids))
        trained = row.completion_mask[shared:]
        self.labels += [token if on else IGNORED for token, on in zip(fresh, trained, strict=True)]
        weights = [row.weight * on for on in trained]
        for item in row.items:
            weights[item.at - shared] *= row.label_weight
        self.weights += weights
        self.runs.append((start, len(fresh), path[-1] if path else -1))
        self.path = path + list(range(start, self.size))
        self.rows += 1

    def mask(self) -> NDArray[np.bool_]:
        """``(size, size)``, row = query; True = sees."""
        seen = np.zeros((self.size, self.size), dtype=bool)
        for start, length, parent in self.runs:
            block = slice(start, start + length)
            if parent >= 0:
                seen[block, :start] = seen[parent, :start]
            seen[block, block] = np.tri(length, dtype=bool)
        return seen


def tree_rows(rows: Sequence[JudgeRow], *, max_tokens: int, min_shared: float = 0.1) -> list[TreeRow]:
    """Rows of one unit share trees.

    Args:
        rows: every one lands in exactly one tree.
        max_tokens: a tree takes no further row beyond this size (a single row may exceed it).
        min_shared: a row joins only if it shares this part of itself with the row before it in id order;
            dense attention over strangers would cost more than it saves.
    """
    units: dict[str, list[JudgeRow]] = {}
    for i, row in enumerate(rows):
        units.setdefault(row.unit or f"\0{i}", []).append(row)
    packed: list[TreeRow] = []
    for several in units.values():
        tree: TreeRow | None = None
        before: JudgeRow | None = None
        for row in sorted(several, key=lambda row: row.input_ids):
            shared = _shared(before, row) if before else 0
            fresh = len(row.input_ids) - shared
            if tree is None or shared < min_shared * (shared + fresh) or tree.size + fresh > max_tokens:
                tree, shared = TreeRow(), 0
                packed.append(tree)
            tree.add(row, shared)
            before = row
    return packed


def single_rows(rows: Iterable[JudgeRow]) -> list[TreeRow]:
    """Each row alone."""
    alone = []
    for row in rows:
        tree = TreeRow()
        tree.add(row, 0)
        alone.append(tree)
    return alone


def _shared(a: JudgeRow, b: JudgeRow) -> int:
    # Trained tokens are never shared, nor the token before the first of them: the loss reads token i + 1
    # from the hidden state at i, so both must stand side by side.
    return min(shared_length(a.input_ids, b.input_ids), a.start - 1, b.start - 1)


def batches(rows: Sequence[TreeRow], *, max_tokens: int, seed: int, window: int = 16) -> list[list[TreeRow]]:
    """Shuffled batches of similar length; ``rows x longest`` stays within ``max_tokens``.

    Args:
        rows: every one lands in exactly one batch.
        max_tokens: padded tokens a batch; a longer row is a batch of its own.
        seed: of the shuffle.
        window: batches whose rows are sorted by length together; 1 would be no sorting, more mixes less.
    """
    order = list(rows)
    random.Random(seed).shuffle(order)
    made: list[list[TreeRow]] = []
    for chunk in _chunks(order, window * max_tokens):
        batch: list[TreeRow] = []
        for row in sorted(chunk, key=lambda row: -row.size):
            if batch and (len(batch) + 1) * batch[0].size > max_tokens:
                made.append(batch)
                batch = []
            batch.append(row)
        made.append(batch)
    return made


def _chunks(rows: Sequence[TreeRow], tokens: int) -> list[list[TreeRow]]:
    chunks: list[list[TreeRow]] = []
    filled = tokens
    for row in rows:
        if filled + row.size > tokens:
            chunks.append([])
            filled = 0
        chunks[-1].append(row)
        filled += row.size
    return chunks


def collate(batch: Sequence[TreeRow], pad_id: int, *, packed: bool = True) -> dict[str, Tensor]:
    """Model inputs, padded on the left so that the answers of plain rows line up.

    Args:
        batch: rows; without ``packed`` each must be a single row.
        pad_id: fills up; may equal the end token, since labels come from lengths and never from ids.
        packed: whether the attention mask is the tree's (``(B, 1, N, N)`` bool) or the plain ``(B, N)`` one.

    Returns:
        ``input_ids``, ``position_ids``, ``labels`` (-100 = ignored) and ``label_weights``, each ``(B, N)``,
        and ``attention_mask``.
    """
    n = max(row.size for row in batch)
    ids = np.full((len(batch), n), pad_id, dtype=np.int64)
    positions = np.zeros((len(batch), n), dtype=np.int64)
    labels = np.full((len(batch), n), IGNORED, dtype=np.int64)
    weights = np.zeros((len(batch), n), dtype=np.float32)
    seen = np.zeros((len(batch), n, n) if packed else (len(batch), n), dtype=bool)
    if packed:  # a padded query sees itself, since a softmax must see something
        seen[:] = np.eye(n, dtype=bool)
    for b, row in enumerate(batch):
        pad = n - row.size
        ids[b, pad:], positions[b, pad:] = row.ids, row.positions
        labels[b, pad:], weights[b, pad:] = row.labels, row.weights
        if packed:
            seen[b, pad:, pad:] = row.mask()
        else:
            seen[b, pad:] = True
    mask = torch.from_numpy(seen)
    return {
        "input_ids": torch.from_numpy(ids),
        "position_ids": torch.from_numpy(positions),
        "attention_mask": mask[:, None] if packed else mask.long(),
        "labels": torch.from_numpy(labels),
        "label_weights": torch.from_numpy(weights),
    }
