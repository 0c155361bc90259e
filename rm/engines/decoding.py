"""Which token comes next: greedy, or drawn from a prompt's own random numbers."""

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import Sampling
from axiomrm.rm.engines.row_seeds import RowSeed

Stop = Literal["stop", "length"]
COLDEST = 1e-30
"""Temperatures below it, unlike 0 no number that fp32 divides by, are this one."""
NO_TOKEN = -1
"""Ends a prompt whose logits are not finite: it fails, nothing is made up for it."""
BLOCK = 256
"""Tokens of the vocabulary whose probabilities are summed before a draw is looked up among them."""


class Writer:
    """How the prompts of a call go on."""

    def __init__(self, sampling: Sampling, seeds: Sequence[RowSeed], end_ids: frozenset[int]) -> None:
        """``seeds``: of each prompt of the call."""
        self.most, self.temperature = sampling.max_new_tokens, sampling.temperature
        self.end_ids, self._seeds = end_ids, seeds

    def of(self, prompts: Sequence[int]) -> "Writer":
        """The same for some prompts of the call, in a new order."""
        sampling = Sampling(self.most, self.temperature)
        return Writer(sampling, [self._seeds[i] for i in prompts], self.end_ids)

    def draws(self, prompts: Sequence[int], device: torch.device) -> Tensor:
        """``(prompts, most)`` numbers in [0, 1)."""
        every = [_uniforms(self._seeds[i], self.most) for i in prompts]
        return torch.from_numpy(np.stack(every)).to(device)

    def pick(self, logits: Tensor, draws: Tensor) -> Tensor:
        """Greedy at 0; else the token at which the cumulative probability passes the prompt's draw.

        `NO_TOKEN` where the logits are no numbers.
        """
        top = logits.amax(dim=-1, keepdim=True)
        if self.temperature == 0:
            picked = logits.argmax(dim=-1)
        else:  # the largest at 0 and in fp32, or a small temperature would make infinities
            picked = drawn((logits.float() - top) / max(self.temperature, COLDEST), draws)
        return picked.masked_fill(~top[:, 0].isfinite(), NO_TOKEN)


def drawn(logits: Tensor, draws: Tensor) -> Tensor:
    """The token of ``logits`` ``(N, vocabulary)`` where the cumulative probability passes ``draws`` ``(N,)``.

    Summed in blocks, and only the block that holds the token one by one: a cumulative sum over the whole
    vocabulary costs more than the model's last layer on a CPU.
    """
    p = torch.softmax(logits.float(), dim=-1)
    p = pad(p, (0, -p.shape[-1] % BLOCK)).view(len(logits), -1, BLOCK)  # (N, blocks, BLOCK)
    before = p.sum(dim=-1, dtype=torch.float64).cumsum(dim=-1)
    target = (draws * before[:, -1])[:, None]
    block = torch.searchsorted(before, target, right=True).clamp(max=before.shape[-1] - 1)
    rows = torch.arange(len(p), device=p.device)
    inside = p[rows, block[:, 0]].double().cumsum(dim=-1)
    start = torch.where(block > 0, before.gather(1, (block - 1).clamp(min=0)), 0.0)
    at = torch.searchsorted(inside, target - start, right=True).clamp(max=BLOCK - 1)
    return (block * BLOCK + at)[:, 0].clamp(max=logits.shape[-1] - 1)


def ended(ids: list[int], end_ids: frozenset[int]) -> tuple[list[int], Stop] | Failed:
    """The ids before the first end token, and why they end."""
    at = next((i for i, token in enumerate(ids) if token in end_ids or token == NO_TOKEN), None)
    if at is None:
        return ids, "length"
    if ids[at] == NO_TOKEN:
        return Failed(kind="engine_error", detail="the model's logits are not finite")
    return ids[:at], "stop"


def _uniforms(seed: RowSeed, count: int) -> np.ndarray:
    ids = np.asarray(seed.ids, dtype=np.int64).tobytes()
    digest = hashlib.sha256(f"{seed.seed}|{seed.copies}|".encode() + ids).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big")).random(count)
