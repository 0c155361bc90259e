"""Plain padded batches, for models whose attention is their own affair: nothing is shared.

Prompts stand in rows padded on the left, and writing goes on from the model's cache until the last row ends.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.budget import Budget
from axiomrm.rm.engines.decoding import NO_TOKEN, Stop, Writer, ended
from axiomrm.rm.engines.growing_cache import growing_cache
from axiomrm.rm.engines.model_facts import steady_length
from axiomrm.rm.engines.packing import Ids


class Batch(NamedTuple):
    """Prompts in padded rows, and what a pass over them left."""

    prompts: list[int]
    logits: Tensor
    """``(B, vocabulary)``: of the token after each prompt."""
    seen: Tensor
    """``(B, T)`` bool: columns that are not padding."""
    positions: Tensor
    """``(B,)``: of the next token."""
    cache: Any


class Plain:
    """One model's forward passes over padded rows."""

    def __init__(self, model: Any) -> None:
        """Keep the model and the names of its arguments."""
        self.model = model
        self.fed = 0
        """Prompt tokens without padding, since the start; written tokens are not among them."""
        # An adapter's wrapper hands on what its own signature does not name.
        inner = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._accepts = frozenset(inspect.signature(inner.forward).parameters)
        self._steady = steady_length(model)

    def batches(self, sequences: Sequence[Ids], budget: Budget, column: int, *, new: int) -> Iterator[Batch]:
        """Every prompt once, longest first, in batches within the budget.

        Args:
            sequences: the prompts.
            budget: of a batch.
            column: bytes of keys and values for a token.
            new: tokens that will be written after each; 0: no cache is kept.
        """
        queue = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
        while queue:
            longest = len(sequences[queue[0]])
            most = min(
                budget.batch_tokens // longest,
                budget.mask_cells // longest**2,
                budget.decode_rows if new else len(queue),
                budget.cache_bytes // ((longest + new) * column) if new else len(queue),
            )
            if self._steady is not None and longest + new > self._steady:
                most = 1  # a neighbour's length would change how its positions are written
            near = sum(2 * len(sequences[i]) > longest for i in queue[: max(1, most)])
            batch, queue = queue[:near], queue[near:]
            yield self._first(batch, [sequences[i] for i in batch], keep_cache=new > 0)

    def write(self, batch: Batch, writer: Writer) -> Iterator[tuple[int, tuple[list[int], Stop] | Failed]]:
        """Each prompt of the batch with its new ids and why it stopped."""
        if not hasattr(batch.cache, "layers"):
            raise RuntimeError(f"{type(self.model).__name__} keeps no keys and values: use direct mode")
        draws = writer.draws(batch.prompts, self.model.device)
        ends = torch.as_tensor(sorted(writer.end_ids), device=draws.device)
        done = torch.zeros(len(batch.prompts), dtype=torch.bool, device=draws.device)
        written: list[Tensor] = []
        while True:
            written.append(writer.pick(batch.logits, draws[:, len(written)]))
            done |= torch.isin(written[-1], ends) | (written[-1] == NO_TOKEN)
            if len(written) == writer.most or bool(done.all()):
                break
            batch = self._next(batch, written[-1].clamp(min=0))
        for prompt, ids in zip(batch.prompts, torch.stack(written, dim=-1).tolist(), strict=True):
            yield prompt, ended(ids, writer.end_ids)

    @torch.inference_mode()
    def _first(self, prompts: list[int], sequences: Sequence[Ids], *, keep_cache: bool) -> Batch:
        n = max(map(len, sequences))
        self.fed += sum(map(len, sequences))
        tokens = np.zeros((len(sequences), n), dtype=np.int64)
        positions, seen = tokens.copy(), np.zeros(tokens.shape, dtype=bool)
        for b, ids in enumerate(sequences):
            own = slice(n - len(ids), n)
            tokens[b, own], positions[b, own], seen[b, own] = ids, range(len(ids)), True
        mask = torch.from_numpy(seen).to(self.model.device)
        cache = growing_cache() if keep_cache else None
        out = self._call(torch.from_numpy(tokens), torch.from_numpy(positions), mask, cache)
        following = torch.as_tensor([len(ids) for ids in sequences], device=self.model.device)
        return Batch(prompts, out.logits[:, -1], mask, following, getattr(out, "past_key_values", None))

    @torch.inference_mode()
    def _next(self, batch: Batch, tokens: Tensor) -> Batch:
        seen = torch.cat([batch.seen, torch.ones_like(batch.seen[:, :1])], dim=1)
        out = self._call(tokens[:, None], batch.positions[:, None], seen, batch.cache)
        return Batch(batch.prompts, out.logits[:, -1], seen, batch.positions + 1, out.past_key_values)

    def _call(self, tokens: Tensor, positions: Tensor, mask: Tensor, cache: Any) -> Any:
        device = self.model.device
        options = {
            "position_ids": positions.to(device),
            "logits_to_keep": 1,
            **({} if cache is None else {"past_key_values": cache}),
        }
        return self.model(
            input_ids=tokens.to(device),
            attention_mask=mask.long(),
            use_cache=cache is not None,
            **{name: value for name, value in options.items() if name in self._accepts},
        )
