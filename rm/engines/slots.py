"""Keys and values of the prompts that are being written, a slot each.

A slot holds a prompt's own tokens; what it shares with others stays in its trunk. The slots in use stand
first, so that a step reads one block; a prompt that ends gives its slot to the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from axiomrm.rm.engines.branching import Layers, attend, attend_all, merged


class Slots:
    """Room for the own tokens of so many prompts."""

    def __init__(self, slots: int, columns: int, like: Layers) -> None:
        """``columns``: tokens of a slot; ``like``: layers of the model, for shapes, type and device."""
        self.used, self.columns = 0, columns
        self.keys, self.values = (
            [t.new_zeros(slots, t.shape[0], columns, t.shape[-1]) for t in tensors]
            for tensors in zip(*like, strict=True)
        )
        self.lengths = torch.zeros(slots, dtype=torch.long, device=like[0][0].device)
        """Tokens in each slot."""

    def take(self, fresh: Layers, columns: Sequence[Sequence[int]]) -> None:
        """Copy tokens of a pass: for each new slot its columns of ``fresh``, in order."""
        first, last = self.used, self.used + len(columns)
        longest = max(map(len, columns))
        padded = [[*own, *[0] * (longest - len(own))] for own in columns]
        device = self.lengths.device
        at = torch.as_tensor(padded, device=device)  # (n, longest)
        for held, which in ((self.keys, 0), (self.values, 1)):
            for layer, pair in zip(held, fresh, strict=True):
                layer[first:last, :, :longest] = pair[which][:, at].transpose(0, 1)
                layer[first:last, :, longest:] = 0  # masked, but a NaN left there would not be
        self.lengths[first:last] = torch.as_tensor([len(own) for own in columns], device=device)
        self.used = last

    def give_back(self, slot: int) -> None:
        """Free a slot; the last one in use moves there."""
        self.used -= 1
        length = int(self.lengths[self.used])
        for held in (self.keys, self.values):
            for layer in held:
                layer[slot, :, :length] = layer[self.used, :, :length]
        self.lengths[slot] = self.lengths[self.used]


@dataclass
class OnTrunk:
    """Slots whose prompts share a trunk."""

    trunk: Layers
    slots: Tensor | None
    """``None``: all that are in use."""
    mask: Tensor | None
    """``(slots, T)``, added to the scores, where some left the trunk before its end."""


class Writing:
    """How the next token of every slot in use attends: to its trunk, its own tokens and itself."""

    def __init__(self, slots: Slots, trunks: Sequence[OnTrunk]) -> None:
        """Lengths count the next token when the step is done."""
        self.slots, self.trunks = slots, trunks
        self.lengths = slots.lengths[: slots.used]
        self.rows = torch.arange(slots.used, device=self.lengths.device)
        self.columns = int(self.lengths.max()) + 1
        behind = torch.arange(self.columns, device=self.lengths.device) > self.lengths[:, None]
        mask = torch.zeros(behind.shape, dtype=slots.keys[0].dtype, device=behind.device)
        self.mask = mask.masked_fill_(behind, -torch.inf)[:, None, None]  # (N, 1, 1, T)
        self.whole = not bool(behind.any())

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """One layer's attention, ``N`` = slots in use."""
        keys, values = self.slots.keys[layer], self.slots.values[layer]
        keys[self.rows, :, self.lengths] = k.transpose(0, 1)
        values[self.rows, :, self.lengths] = v.transpose(0, 1)
        used = slice(0, self.slots.used)
        out, total = self._own(q, keys[used, :, : self.columns], values[used, :, : self.columns], scale)
        for on in self.trunks:
            if on.slots is None:
                return merged(attend(q, *on.trunk[layer], scale, mask=on.mask), (out, total))
            seen = attend(q[:, on.slots], *on.trunk[layer], scale, mask=on.mask)
            out[:, on.slots] = merged(seen, (out[:, on.slots], total[:, on.slots]))
        return out

    def _own(self, q: Tensor, keys: Tensor, values: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        heads, n, width = q.shape
        group = heads // keys.shape[1]
        grouped = q.view(keys.shape[1], group, n, width).permute(2, 0, 1, 3)  # (N, kv heads, group, width)
        mask = None if self.whole else self.mask
        out, total = attend_all(grouped, keys, values, scale, mask=mask)
        return out.permute(1, 2, 0, 3).reshape(heads, n, -1), total.permute(1, 2, 0).reshape(heads, n)
