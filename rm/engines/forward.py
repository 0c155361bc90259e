"""The forward passes over shared prompts: trunks first, then branches that see them, then single tokens.

All tokens of a pass stand in one row without padding, and :mod:`axiomrm.rm.engines.branching` says who sees
whom. Models that do not take their attention from transformers' interface go through ``plain`` instead.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import torch
from torch import Tensor

from axiomrm.rm.engines.branching import Attending, Layers, OfTrunk, Own, Reading, attending, configs_of
from axiomrm.rm.engines.linears import PackedLinears
from axiomrm.rm.engines.packing import Ids, Leaf, Row
from axiomrm.rm.engines.slots import Writing


class Read(NamedTuple):
    """What a pass over rows left."""

    leaves: list[Leaf]
    """The last tokens of the prompts, in the order of the rows."""
    bases: list[int]
    """Trunk tokens that each prompt begins with."""
    logits: Tensor
    """``(leaves, vocabulary)``: of the token after each leaf."""
    columns: list[list[int]]
    """Each prompt's own tokens among those of the pass, its leaf last."""
    fresh: Layers
    """Keys and values of the pass's tokens; empty where they were not to be kept."""


class Forward:
    """One model's forward passes; rows are built by :mod:`axiomrm.rm.engines.packing`."""

    def __init__(self, model: Any, *, packed_bytes: int = 0) -> None:
        """``packed_bytes``: what packed copies of the linear layers may take, for writing."""
        self.model = model
        self.fed = 0
        """Prompt tokens since the start; written tokens are not among them."""
        self._configs = configs_of(model)
        self._linears = PackedLinears(model, packed_bytes)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return torch.device(self.model.device)

    @torch.inference_mode()
    def trunks(self, sequences: Sequence[Ids]) -> list[Layers]:
        """Keys and values of the sequences, each on its own."""
        self.fed += sum(map(len, sequences))
        ends = list(accumulate(map(len, sequences)))
        spans = list(zip([0, *ends], ends, strict=False))
        how = Reading([Own(a, b, None) for a, b in spans], [], keep=True)
        tokens = [token for ids in sequences for token in ids]
        positions = [at for ids in sequences for at in range(len(ids))]
        self._call(tokens, positions, [len(tokens) - 1], how)
        fresh = how.kept or []
        return [[(k[:, a:b], v[:, a:b]) for k, v in fresh] for a, b in spans]

    @torch.inference_mode()
    def read(self, rows: Sequence[Row], trunks: Sequence[Layers | None], *, keep: bool) -> Read:
        """One pass over rows of branches, each with its trunk; neighbours of one trunk meet it together.

        Args:
            rows: of any sizes.
            trunks: of each row; ``None``: its prompts share nothing.
            keep: whether keys and values are wanted.
        """
        self.fed += sum(row.size for row in rows)
        starts = [0, *accumulate(row.size for row in rows)]
        own = [Own(a, a + row.size, self._own(row)) for a, row in zip(starts, rows, strict=False)]
        how = Reading(own, list(self._of_trunks(rows, starts, trunks)), keep=keep)
        tokens = [token for row in rows for token in row.tokens()]
        positions = [at for row in rows for at in row.positions()]
        columns = [
            [*(start + at for at in leaf.path), start + len(row.ids) + n]
            for start, row in zip(starts, rows, strict=False)
            for n, leaf in enumerate(row.leaves)
        ]
        logits = self._call(tokens, positions, [own[-1] for own in columns], how)
        leaves = [leaf for row in rows for leaf in row.leaves]
        bases = [row.base for row in rows for _ in row.leaves]
        return Read(leaves, bases, logits, columns, how.kept or [])

    def forget_weights(self) -> None:
        """Weights may have changed: multiply with what they are now, and hold no copies of what they were."""
        self._linears.forget()

    @torch.inference_mode()
    def next(self, tokens: Tensor, positions: Tensor, how: Writing) -> Tensor:
        """Feed one token for each slot in use; gives ``(slots, vocabulary)``."""
        with self._linears.in_use():
            return self._call(tokens, positions, None, how)

    def _own(self, row: Row) -> Tensor | None:
        """Who sees whom in a row, additive; ``None``: causal, as in a row of one prompt."""
        if len(row.leaves) == 1:
            return None
        unseen = torch.from_numpy(~row.own_mask()).to(self.device)
        mask = torch.zeros(unseen.shape, dtype=self.model.dtype, device=self.device)
        return mask.masked_fill_(unseen, -torch.inf)

    def _of_trunks(
        self, rows: Sequence[Row], starts: Sequence[int], trunks: Sequence[Layers | None]
    ) -> Iterator[OfTrunk]:
        for _, places in groupby(range(len(rows)), key=lambda i: (id(trunks[i]), rows[i].base)):
            here = list(places)
            trunk = trunks[here[0]]
            if trunk is not None:
                yield OfTrunk(starts[here[0]], starts[here[-1] + 1], trunk, rows[here[0]].base)

    def _call(self, tokens: Any, positions: Any, keep: list[int] | None, how: Attending) -> Tensor:
        """``(kept, vocabulary)`` logits; ``keep`` ``None``: of all tokens."""
        every = {} if keep is None else {"logits_to_keep": torch.as_tensor(keep, device=self.device)}
        with attending(self._configs, how):
            out = self.model(
                input_ids=torch.as_tensor(tokens, device=self.device)[None],
                position_ids=torch.as_tensor(positions, device=self.device)[None],
                attention_mask=None,
                use_cache=False,
                **every,
            )
        return out.logits[0]  # type: ignore[no-any-return]  # transformers is not checked
