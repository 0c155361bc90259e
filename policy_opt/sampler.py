"""Sampling turns for a batch of live episodes with one key-value cache kept across turns.

Rows share the columns of the cache; a row that has nothing for a column leaves a masked hole there and its
positions do not advance, so each row sees exactly its own ids at their own positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axiomrm.policy_opt.kv_cache import growing_cache, select_columns, select_rows
from axiomrm.policy_opt.logprobs import trunk_and_head


@dataclass(frozen=True)
class Generation:
    """One sampled turn."""

    token_ids: list[int]
    logprobs: list[float]
    """Of the sampled ids, at the sampling temperature."""
    stop_reason: Literal["stop", "length"]


class LiveRows(Protocol):
    """Episodes in flight on one sampler."""

    def turn(
        self, new_ids: Sequence[Sequence[int]], uniforms: Sequence[NDArray[np.float64]]
    ) -> list[Generation]:
        """Append ``new_ids`` to each row and sample its next turn, at most ``len(uniforms[row])`` tokens."""
        ...

    def fork(self, row: int) -> None:
        """Forget the row's past: the next ``new_ids`` carry its whole rewritten prompt."""
        ...

    def keep(self, rows: list[int]) -> None:
        """Drop the rows that are not listed; the rest renumber in this order."""
        ...


class Sampler(Protocol):
    """What rollouts need from a model."""

    temperature: float

    def open(self, n: int) -> LiveRows:
        """``n`` empty rows."""
        ...


class TransformersSampler:
    """Samples from a transformers model in this process; the weights are the trainer's own."""

    def __init__(
        self, model: Any, end_ids: frozenset[int], *, temperature: float = 1.0, greedy: bool = False
    ) -> None:
        self.model = model
        self.end_ids = end_ids
        self.temperature = temperature
        self.greedy = greedy
        """Arg-max instead of a draw; for evaluation only, its log-probs are no behaviour policy."""

    def open(self, n: int) -> "TransformersRows":
        """``n`` empty rows."""
        return TransformersRows(self, n)


class TransformersRows:
    """The live batch of a ``TransformersSampler``."""

    def __init__(self, sampler: TransformersSampler, n: int) -> None:
        self._sampler = sampler
        self._trunk, self._head = trunk_and_head(sampler.model)
        self._device = next(sampler.model.parameters()).device
        self._cache = growing_cache()
        self._mask = torch.zeros((n, 0), dtype=torch.long, device=self._device)
        self._position = torch.zeros(n, dtype=torch.long, device=self._device)
        self._pending: list[list[int]] = [[] for _ in range(n)]

    @torch.no_grad()
    def turn(
        self, new_ids: Sequence[Sequence[int]], uniforms: Sequence[NDArray[np.float64]]
    ) -> list[Generation]:
        """See ``LiveRows.turn``."""
        was_training = self._sampler.model.training
        self._sampler.model.eval()
        try:
            self._compact()
            logits = self._prefill([[*p, *new] for p, new in zip(self._pending, new_ids, strict=True)])
            generations = self._decode(logits, uniforms)
        finally:
            self._sampler.model.train(was_training)
        # The last sampled id of a row was never fed; it leads the next chunk.
        self._pending = [g.token_ids[-1:] for g in generations]
        return generations

    def _compact(self) -> None:
        """Close the holes: fewer columns, the same ids at the same positions."""
        used = int(self._mask.sum(1).max()) if self._mask.shape[1] else 0
        if used == self._mask.shape[1]:
            return
        # A stable sort on "is a hole" moves each row's own columns to the front, in order.
        order = torch.argsort(1 - self._mask, dim=1, stable=True)[:, :used]
        self._mask = self._mask.gather(1, order)
        select_columns(self._cache, order)

    def _prefill(self, chunks: list[list[int]]) -> Tensor:
        width = max(len(chunk) for chunk in chunks)
        ids = torch.zeros((len(chunks), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, chunk in enumerate(chunks):
            ids[row, : len(chunk)] = torch.tensor(chunk, dtype=torch.long)
            mask[row, : len(chunk)] = 1
        hidden = self._forward(ids.to(self._device), mask.to(self._device))
        last = torch.tensor([len(chunk) - 1 for chunk in chunks], device=self._device)
        return self._logits(hidden[torch.arange(len(chunks), device=self._device), last])

    def _decode(self, logits: Tensor, uniforms: Sequence[NDArray[np.float64]]) -> list[Generation]:
        n = len(uniforms)
        limits = [len(u) for u in uniforms]
        draws = np.zeros((max(limits), n))
        for row, u in enumerate(uniforms):
            draws[: len(u), row] = u
        ids: list[list[int]] = [[] for _ in range(n)]
        logps: list[list[float]] = [[] for _ in range(n)]
        live = [limit > 0 for limit in limits]
        stopped = [False] * n
        for k in range(max(limits)):
            chosen, logp = self._sample(logits, torch.from_numpy(draws[k]).to(self._device))
            for row, (token, value) in enumerate(zip(chosen.tolist(), logp.tolist(), strict=True)):
                if live[row]:
                    ids[row].append(token)
                    logps[row].append(value)
                    stopped[row] = token in self._sampler.end_ids
                    live[row] = not stopped[row] and len(ids[row]) < limits[row]
            if not any(live):
                break
            fed = torch.tensor(live, dtype=torch.long, device=self._device)[:, None]
            logits = self._logits(self._forward(chosen[:, None], fed)[:, -1])
        return [
            Generation(i, p, "stop" if s else "length") for i, p, s in zip(ids, logps, stopped, strict=True)
        ]

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

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._head(hidden).float() / self._sampler.temperature
        return logits

    def _sample(self, logits: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        logps = torch.log_softmax(logits, dim=-1)
        if self._sampler.greedy:
            chosen = logits.argmax(-1)
        else:
            cumulative = logps.double().exp().cumsum(-1)
            threshold = (uniform * cumulative[:, -1])[:, None]
            chosen = (
                torch.searchsorted(cumulative, threshold, right=True)
                .squeeze(1)
                .clamp(max=logits.shape[-1] - 1)
            )
        return chosen, logps.gather(1, chosen[:, None]).squeeze(1)

    def fork(self, row: int) -> None:
        """See ``LiveRows.fork``."""
        self._mask[row] = 0
        self._position[row] = 0
        self._pending[row] = []

    def keep(self, rows: list[int]) -> None:
        """See ``LiveRows.keep``."""
        select_rows(self._cache, rows)
        self._mask, self._position = self._mask[rows], self._position[rows]
        self._pending = [self._pending[row] for row in rows]
