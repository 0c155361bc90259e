"""A key-value cache that grows in place: transformers' own copies everything for each generated token."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """One layer of keys and values in a buffer with spare room."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.used = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append ``(batch, heads, new, dim)`` states and return views of everything."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        total = self.used + key_states.shape[-2]
        self._keys = self._room(self._keys, key_states, total)
        self._values = self._room(self._values, value_states, total)
        self._keys[..., self.used : total, :] = key_states
        self._values[..., self.used : total, :] = value_states
        self.used = total
        self.keys, self.values = self._keys[..., :total, :], self._values[..., :total, :]
        return self.keys, self.values

    def _room(self, buffer: Tensor | None, states: Tensor, total: int) -> Tensor:
        if buffer is not None and buffer.shape[-2] >= total:
            return buffer
        shape = list(states.shape)
        shape[-2] = max(256, 2 * total)
        grown = states.new_empty(shape)
        if buffer is not None:
            grown[..., : self.used, :] = buffer[..., : self.used, :]
        return grown

    def get_seq_length(self) -> int:
        """Columns in use."""
        return self.used

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows only."""
        if self._keys is not None and self._values is not None:
            self._keys, self._values = self._keys[indices], self._values[indices]
            self.keys, self.values = self._keys[..., : self.used, :], self._values[..., : self.used, :]

    def select_columns(self, order: Tensor) -> None:
        """Keep columns ``order`` (batch, kept) of each row, in that order."""
        if self._keys is None or self._values is None:
            return
        heads, dim = self._keys.shape[1], self._keys.shape[3]
        index = order[:, None, :, None].expand(-1, heads, -1, dim)
        kept = order.shape[1]
        for buffer in (self._keys, self._values):
            buffer[..., :kept, :] = buffer[..., : self.used, :].gather(2, index)
        self.used = kept
        self.keys, self.values = self._keys[..., :kept, :], self._values[..., :kept, :]


def growing_cache() -> Any:
    """An empty cache for any decoder with full attention."""
    return Cache(layer_class_to_replicate=GrowingLayer)


def select_rows(cache: Any, rows: list[int]) -> None:
    """Drop every other row of the batch."""
    cache.batch_select_indices(torch.tensor(rows))


def select_columns(cache: Any, order: Tensor) -> None:
    """Keep columns ``order`` (batch, kept) of every layer."""
    for layer in cache.layers:
        layer.select_columns(order)
