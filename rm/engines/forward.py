"""The forward passes of a judge: trunks first, then rows of branches that see them, then single tokens.

A trunk pass is plain causal attention and leaves keys and values. A step feeds rows of branches over them
with a mask of its own. Sequences that share nothing are steps over no trunk, padded on the left.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from axiomrm.rm.engines.packing import Ids, Leaf, Row

ROOM = 64
"""Columns that a cache layer grows by at least."""
Layers = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, ``(families, heads, T, width)``."""


class GrowingLayer(DynamicLayer):  # type: ignore[misc]  # transformers is not checked
    """Keys and values that are appended in place, so that a token does not copy all before it."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any
    ) -> tuple[Tensor, Tensor]:
        """Append; returns everything so far."""
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
        if room.shape[2] < end or room.shape[0] != fresh.shape[0]:
            columns = end + (max(ROOM, end // 4) if start else 0)
            room = fresh.new_empty(*fresh.shape[:2], columns, fresh.shape[3])
            room[:, :, :start] = held
            self._room[which] = room
        room[:, :, start:end] = fresh
        return room[:, :, :end]

    def begin(self, keys: Tensor, values: Tensor) -> "GrowingLayer":
        """Start from these without copying them; the first update does."""
        self.lazy_initialization(keys, values)
        self._room = [keys, values]
        self.keys, self.values = keys, values
        return self


@dataclass
class Trunks:
    """Keys and values of the trunks of a batch, padded on the right."""

    layers: Layers
    length: int
    """Columns, padding included."""


@dataclass
class Step:
    """What a pass over rows left; ``N`` = most leaves of a row, right-aligned."""

    leaves: list[list[Leaf | None]]
    """``(B, N)``; ``None``: padding."""
    logits: Tensor
    """``(B, N, vocabulary)``: of the token after each leaf."""
    seen: Tensor
    """``(B, N, T)`` bool: which columns of the cache the token after each leaf sees."""
    cache: Any

    @property
    def indices(self) -> set[int]:
        """Prompts of the call that it holds."""
        return {leaf.prompt for row in self.leaves for leaf in row if leaf}

    def last_logits(self) -> Iterator[tuple[int, Tensor]]:
        """Each prompt's index with its ``(vocabulary,)``."""
        for b, row in enumerate(self.leaves):
            yield from ((leaf.prompt, self.logits[b, n]) for n, leaf in enumerate(row) if leaf)

    def renamed(self, indices: Sequence[int]) -> "Step":
        """The same with prompt i called ``indices[i]``."""
        leaves = [
            [leaf and leaf._replace(prompt=indices[leaf.prompt]) for leaf in row] for row in self.leaves
        ]
        return replace(self, leaves=leaves)


class Forward:
    """One model's forward passes; rows and trunks are built by :mod:`axiomrm.rm.engines.packing`."""

    def __init__(self, model: Any) -> None:
        """Keep the model and the names of its arguments."""
        self.model = model
        self.fed = 0
        """Prompt tokens without padding, since the start; written tokens are not among them."""
        self._accepts = frozenset(inspect.signature(model.forward).parameters)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(self.model.device)

    @torch.inference_mode()
    def trunks(self, sequences: Sequence[Ids]) -> Trunks:
        """Keys and values of the sequences, each on its own."""
        n = max(len(ids) for ids in sequences)
        self.fed += sum(len(ids) for ids in sequences)
        tokens = np.zeros((len(sequences), n), dtype=np.int64)
        for b, ids in enumerate(sequences):
            tokens[b, : len(ids)] = ids
        positions = np.tile(np.arange(n), (len(sequences), 1))
        # Padding stands on the right, behind all that attends: causality is mask enough.
        cache = self._call(tokens, positions, None, keep=1, cache=_empty()).past_key_values
        return Trunks([(layer.keys, layer.values) for layer in cache.layers], n)

    @torch.inference_mode()
    def step(self, rows: Sequence[Row], trunks: Trunks | None, *, keep_cache: bool) -> Step:
        """One pass over rows of branches; a row's ``family`` is its place in ``trunks``."""
        n, before = max(row.size for row in rows), trunks.length if trunks else 0
        self.fed += sum(row.size for row in rows)
        tokens = np.zeros((len(rows), n), dtype=np.int64)
        positions = np.zeros((len(rows), n), dtype=np.int64)
        seen = np.zeros((len(rows), n, before + n), dtype=bool)
        seen[:, :, before:] = np.eye(n, dtype=bool)
        for b, row in enumerate(rows):
            pad = n - row.size
            tokens[b, pad:], positions[b, pad:] = row.tokens(), row.positions()
            own = row.mask(before)
            seen[b, pad:, :before], seen[b, pad:, before + pad :] = own[:, :before], own[:, before:]
        keep = max(len(row.leaves) for row in rows)
        alone = trunks is None and keep == 1
        mask = torch.from_numpy(seen[:, -1] if alone else seen).to(self.device)
        cache = _fanned(trunks, [row.family for row in rows]) if trunks else _empty()
        out = self._call(tokens, positions, mask, keep=keep, cache=cache if trunks or keep_cache else None)
        leaves: list[list[Leaf | None]] = [[*[None] * (keep - len(row.leaves)), *row.leaves] for row in rows]
        last = torch.from_numpy(seen[:, -keep:]).to(self.device)
        return Step(leaves, out.logits[:, -keep:], last, getattr(out, "past_key_values", None))

    @torch.inference_mode()
    def next(self, step: Step, tokens: Tensor, written: int) -> Step:
        """Feed one token after each leaf; ``tokens`` ``(B, N)``, ``written`` tokens stand before it."""
        rows, n = tokens.shape
        here = torch.eye(n, dtype=torch.bool, device=self.device).expand(rows, n, n)
        seen = torch.cat([step.seen, here], dim=2)
        depths = [[leaf.base + len(leaf.path) + 1 if leaf else 0 for leaf in row] for row in step.leaves]
        positions = np.asarray(depths) + written
        mask = seen[:, -1] if n == 1 else seen
        out = self._call(tokens, positions, mask, keep=n, cache=step.cache)
        return Step(step.leaves, out.logits[:, -n:], seen, out.past_key_values)

    def _call(self, tokens: Any, positions: Any, mask: Tensor | None, *, keep: int, cache: Any) -> Any:
        """``mask`` ``(B, T)`` = padding only, ``(B, queries, T)`` = who sees whom, ``None`` = causal."""
        dtype, device = self.model.dtype, self.device
        if mask is not None and mask.dim() == 3:
            # An additive mask: eager attention adds it, sdpa takes it as it is.
            blocked = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=device)
            mask = torch.where(mask, torch.zeros((), dtype=dtype, device=device), blocked)[:, None]
        options = {
            "position_ids": torch.as_tensor(positions, device=device),
            "logits_to_keep": keep,
            # Without a configuration a cache's layers keep every token, also where attention slides.
            **({} if cache is None else {"past_key_values": cache}),
        }
        return self.model(
            input_ids=torch.as_tensor(tokens, device=device),
            attention_mask=mask if mask is None or mask.dim() == 4 else mask.long(),
            use_cache=cache is not None,
            **{name: value for name, value in options.items() if name in self._accepts},
        )


def _empty() -> Any:
    return Cache(layer_class_to_replicate=GrowingLayer)


def _fanned(trunks: Trunks, families: Sequence[int]) -> Any:
    """The trunks' keys and values, one row for each entry of ``families``."""
    every = torch.as_tensor(families, device=trunks.layers[0][0].device)

    def fan(held: Tensor) -> Tensor:
        if len(held) == 1:
            return held.expand(len(families), -1, -1, -1)
        return held if list(families) == list(range(len(held))) else held.index_select(0, every)

    return Cache(layers=[GrowingLayer().begin(fan(keys), fan(values)) for keys, values in trunks.layers])
