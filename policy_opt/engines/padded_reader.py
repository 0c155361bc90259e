"""Reads the new tokens of live rows of any causal language model, with one padded key-value cache.

Rows share the columns of the cache; a row that has nothing for a column leaves a masked hole there and its
positions do not advance, so each row sees exactly its own ids at their own positions.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from axiomrm.policy_opt.logprobs import trunk_and_head
from axiomrm.rm.engines.growing_cache import growing_cache, select_columns, select_rows


class PaddedReader:
    """See ``packed_reader.PackedReader``; for models that do not read rows side by side."""

    together = True
    """A row's new ids cost a column of every row, so rows are given theirs at the same time."""

    def __init__(self, model: Any, slots: int) -> None:
        """``slots`` empty ones."""
        self._trunk, self._head = trunk_and_head(model)
        self._device = next(model.parameters()).device
        self._cache = growing_cache()
        self._mask = torch.zeros((slots, 0), dtype=torch.long, device=self._device)
        self._position = torch.zeros(slots, dtype=torch.long, device=self._device)
        self._kept = list(range(slots))
        """Where each slot in use stands in the cache."""

    def forget(self, slot: int) -> None:
        """Empty a slot."""
        self._mask[self._kept[slot]] = 0
        self._position[self._kept[slot]] = 0

    def free(self, slot: int) -> None:
        """The last slot in use moves there."""
        self._kept[slot] = self._kept[-1]
        self._kept.pop()

    def read(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """See ``PackedReader.read``."""
        self._drop_freed()
        ids = torch.zeros((len(tokens), max(map(len, tokens))), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for slot, own in enumerate(tokens):
            ids[slot, : len(own)] = torch.tensor(own, dtype=torch.long)
            mask[slot, : len(own)] = 1
        if ids.shape[1] > 1:
            self._compact()
        hidden = self._forward(ids.to(self._device), mask.to(self._device))
        fed = [slot for slot, own in enumerate(tokens) if own]
        return hidden[fed, [len(tokens[slot]) - 1 for slot in fed]]

    def logits(self, hidden: Tensor) -> Tensor:
        """``(N, vocabulary)`` of states ``(N, width)``."""
        return self._head(hidden)  # type: ignore[no-any-return]  # transformers is untyped here

    def _drop_freed(self) -> None:
        if len(self._kept) < len(self._mask):
            select_rows(self._cache, self._kept)
            self._mask, self._position = self._mask[self._kept], self._position[self._kept]
            self._kept = list(range(len(self._kept)))

    def _compact(self) -> None:
        """Close the holes: fewer columns, the same ids at the same positions."""
        used = int(self._mask.sum(1).max()) if self._mask.shape[1] else 0
        if used == self._mask.shape[1]:
            return
        # A stable sort on "is a hole" moves each row's own columns to the front, in order.
        order = torch.argsort(1 - self._mask, dim=1, stable=True)[:, :used]
        self._mask = self._mask.gather(1, order)
        select_columns(self._cache, order)

    def _forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        positions = (self._position[:, None] + mask.cumsum(1) - 1).clamp(min=0)
        self._mask = torch.cat([self._mask, mask], dim=1)
        self._position = self._position + mask.sum(1)
        out = self._trunk(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            use_cache=True,
        )
        return out.last_hidden_state  # type: ignore[no-any-return]  # transformers is untyped here
