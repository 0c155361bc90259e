"""Keys and values appended in place; transformers' own cache copies everything for each new token."""

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

SPARE = 64
"""Columns that a full layer grows by at least; else by a quarter."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is not checked
    """One layer, ``(batch, heads, columns, dim)``; ``keys`` and ``values`` are views of what is used."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append ``(batch, heads, new, dim)`` states; returns views of everything."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._room = [key_states[:, :, :0], value_states[:, :, :0]]
            self.keys, self.values = self._room
        self.keys = self._appended(0, self.keys, key_states)
        self.values = self._appended(1, self.values, value_states)
        return self.keys, self.values

    def _appended(self, which: int, held: Tensor, fresh: Tensor) -> Tensor:
        start, end = held.shape[2], held.shape[2] + fresh.shape[2]
        room = self._room[which]
        if room.shape[2] < end:
            columns = end + (max(SPARE, end // 4) if start else 0)
            room = fresh.new_empty(*fresh.shape[:2], columns, fresh.shape[3])
            room[:, :, :start] = held
            self._room[which] = room
        room[:, :, start:end] = fresh
        return room[:, :, :end]

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows only."""
        if self.is_initialized:
            used = self.keys.shape[2]
            self._room = [room[indices] for room in self._room]
            self.keys, self.values = (room[:, :, :used] for room in self._room)

    def select_columns(self, order: Tensor) -> None:
        """Keep columns ``order`` (batch, kept) of each row, in that order."""
        if self.is_initialized:
            index = order[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])
            held = (self.keys, self.values)
            self.keys, self.values = (
                self._moved(i, states.gather(2, index)) for i, states in enumerate(held)
            )

    def _moved(self, which: int, kept: Tensor) -> Tensor:
        self._room[which][:, :, : kept.shape[2]] = kept
        return self._room[which][:, :, : kept.shape[2]]


def growing_cache() -> Any:
    """An empty cache for any decoder; its layers keep every token, also where attention slides."""
    return Cache(layer_class_to_replicate=GrowingLayer)


def select_rows(cache: Any, rows: list[int]) -> None:
    """Drop every other row of the batch."""
    cache.batch_select_indices(torch.tensor(rows))


def select_columns(cache: Any, order: Tensor) -> None:
    """Keep columns ``order`` (batch, kept) of every layer."""
    for layer in cache.layers:
        layer.select_columns(order)
