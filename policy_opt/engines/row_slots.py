"""Keys and values of live episodes, a slot each, and the attention of one pass over them.

The tokens of a pass stand side by side without padding. Every slot brings its next token, and these attend
together; a slot that brings more (a prompt, what an environment answered) has its other tokens attend by
themselves. Slots in use stand first, so that a pass reads one block.
"""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

COLUMNS = 64
"""Tokens for which a slot has room at first."""


class RowSlots:
    """The slots' keys and values, layer by layer as a model brings them."""

    def __init__(self, slots: int) -> None:
        self.lengths = [0] * slots
        """Tokens in each slot in use."""
        self.columns = COLUMNS
        """Tokens for which a slot has room."""
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def free(self, slot: int) -> None:
        """The last slot in use moves there."""
        last, length = len(self.lengths) - 1, self.lengths[-1]
        self.lengths[slot] = length
        self.lengths.pop()
        for held in self._layers.values():
            for states in held if slot < last else ():
                states[slot, :, :length] = states[last, :, :length]

    def make_room(self, columns: int) -> None:
        """Let every slot in use hold so many tokens."""
        if columns <= self.columns:
            return
        self.columns = max(columns, self.columns * 5 // 4)
        for layer, (keys, values) in self._layers.items():
            self._layers[layer] = (self._grown(keys), self._grown(values))

    def _grown(self, held: Tensor) -> Tensor:
        grown = self._empty(held)
        grown[:, :, : held.shape[2]] = held[: len(grown)]
        return grown

    def _empty(self, like: Tensor) -> Tensor:
        # Zeros: what is masked is still multiplied, if by 0, and a NaN would stay one.
        heads, width = like.shape[-3], like.shape[-1]
        return like.new_zeros(len(self.lengths), heads, self.columns, width)

    def write(
        self, layer: int, slots: Tensor, columns: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store ``(kv heads, N, width)`` at the slot and column of each token; gives the layer's states.

        They are ``(slots, kv heads, columns, width)``, more than are in use.
        """
        if layer not in self._layers:
            self._layers[layer] = (self._empty(k), self._empty(v))
        for held, fresh in zip(self._layers[layer], (k, v), strict=True):
            held[slots, :, columns] = fresh.transpose(0, 1)
        return self._layers[layer]


class Pass:
    """The tokens that go through the model together, and how they attend."""

    def __init__(self, slots: RowSlots, counts: Sequence[int], like: Tensor) -> None:
        """Plan a pass.

        Args:
            slots: of the rows; they count the new tokens when the pass is done.
            counts: new tokens of each slot in use, 0 or more.
            like: a tensor of the model, for type and device.
        """
        self._slots, lengths = slots, slots.lengths
        self.slots = [slot for slot, count in enumerate(counts) if count]
        """Those that bring tokens; their first ones stand first in the pass."""
        self._tails = {slot: counts[slot] - 1 for slot in self.slots if counts[slot] > 1}
        """How many more tokens a slot brings; they follow, slot by slot."""
        self._seen = {slot: lengths[slot] + counts[slot] for slot in self.slots}
        slots.make_room(max(self._seen.values()))
        at = [(slot, lengths[slot]) for slot in self.slots]
        at += [(slot, lengths[slot] + 1 + i) for slot, tail in self._tails.items() for i in range(tail)]
        self.at, self.columns = torch.tensor(at, device=like.device).T
        """Slot and column, which is the position, of each token."""
        self._idle = len(self.slots) < len(lengths)
        """Whether some slots bring nothing."""
        self._first = max(lengths[slot] for slot in self.slots) + 1
        unseen = torch.arange(self._first, device=like.device) > self.columns[: len(self.slots), None]
        self._together = _added(unseen, like)[:, None, None] if bool(unseen.any()) else None
        most = max(self._tails.values(), default=0)
        seen = max((self._seen[slot] for slot in self._tails), default=0)
        later = torch.ones(most, seen, dtype=torch.bool, device=like.device).triu(1 + seen - most)
        self._later = _added(later, like)
        """Its lower right corner serves each tail: the last token sees all, the one before it one less."""

    def order(self, tokens: Sequence[Sequence[int]]) -> list[int]:
        """The new tokens of each slot in use, as they stand in the pass."""
        first = [tokens[slot][0] for slot in self.slots]
        return first + [token for slot in self._tails for token in tokens[slot][1:]]

    def last(self) -> list[int]:
        """Where the last token of each slot that brings tokens stands in the pass."""
        ends = dict(zip(self._tails, accumulate(self._tails.values()), strict=True))
        return [
            len(self.slots) + ends[slot] - 1 if slot in ends else place
            for place, slot in enumerate(self.slots)
        ]

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """One layer's attention: ``(heads, N, width)`` queries over ``(kv heads, N, width)``."""
        keys, values = self._slots.write(layer, self.at, self.columns, k, v)
        q = q.view(k.shape[0], -1, *q.shape[1:])  # heads that share keys are neighbours
        start = len(self.slots)
        used = self.at[:start] if self._idle else slice(0, start)
        k, v = keys[used, :, : self._first], values[used, :, : self._first]
        first = q[:, :, :start].permute(2, 0, 1, 3)  # (slots, kv heads, group, width): one place, one mask
        out = scaled_dot_product_attention(first, k, v, attn_mask=self._together, scale=scale)
        parts = [out.flatten(1, 2)]
        for slot, tail in self._tails.items():
            seen = self._seen[slot]
            k, v = (held[slot, :, None, :seen].expand(-1, q.shape[1], -1, -1) for held in (keys, values))
            mask = self._later[-tail:, -seen:]
            out = scaled_dot_product_attention(
                q[:, :, start : start + tail], k, v, attn_mask=mask, scale=scale
            )
            parts.append(out.permute(2, 0, 1, 3).flatten(1, 2))
            start += tail
        return torch.cat(parts).transpose(0, 1)

    def done(self) -> None:
        """The slots hold the new tokens."""
        for slot, seen in self._seen.items():
            self._slots.lengths[slot] = seen


def _added(unseen: Tensor, like: Tensor) -> Tensor:
    return torch.zeros(unseen.shape, dtype=like.dtype, device=like.device).masked_fill_(unseen, -torch.inf)
