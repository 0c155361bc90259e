"""Writing on after many prompts at once.

The rows stay as the prefill left them: prompts of one conversation go on side by side over one trunk, one
new token each a pass, so nothing that they share is copied or read twice.
"""

import hashlib
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from axiomrm.rm.engines.base import Sampling
from axiomrm.rm.engines.forward import Forward, Step
from axiomrm.rm.engines.row_seeds import RowSeed

Stop = Literal["stop", "length"]


@torch.inference_mode()
def decode(
    forward: Forward, step: Step, sampling: Sampling, seeds: dict[int, RowSeed], end_ids: frozenset[int]
) -> dict[int, tuple[list[int], Stop]]:
    """For each prompt of ``step`` its new ids, without the end token, and why it stopped."""
    device = step.logits.device
    draws = torch.from_numpy(_draws(step, sampling.max_new_tokens, seeds)).to(device)
    ends = torch.as_tensor(sorted(end_ids), device=device)
    done = torch.tensor([[leaf is None for leaf in row] for row in step.leaves], device=device)
    written: list[Tensor] = []
    while True:
        token = _pick(step.logits, draws[..., len(written)], sampling.temperature)
        written.append(token)
        done = done | torch.isin(token, ends)
        if len(written) == sampling.max_new_tokens or bool(done.all()):
            break
        step = forward.next(step, token, len(written) - 1)
    ids = torch.stack(written, dim=-1).tolist()
    return {
        leaf.prompt: _ended(ids[b][n], end_ids)
        for b, row in enumerate(step.leaves)
        for n, leaf in enumerate(row)
        if leaf is not None
    }


def _ended(ids: list[int], end_ids: frozenset[int]) -> tuple[list[int], Stop]:
    at = next((i for i, token in enumerate(ids) if token in end_ids), None)
    return (ids, "length") if at is None else (ids[:at], "stop")


def _pick(logits: Tensor, draws: Tensor, temperature: float) -> Tensor:
    """Greedy at 0; else the token at which the cumulative probability passes the prompt's draw."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    cumulative = torch.softmax(logits.double() / temperature, dim=-1).cumsum(dim=-1)
    at = torch.searchsorted(cumulative, (draws * cumulative[..., -1])[..., None].contiguous(), right=True)
    return at[..., 0].clamp(max=logits.shape[-1] - 1)


def _draws(step: Step, count: int, seeds: dict[int, RowSeed]) -> np.ndarray:
    """``(B, N, count)`` numbers in [0, 1); 0 for padding."""
    draws = np.zeros((len(step.leaves), len(step.leaves[0]), count))
    for b, row in enumerate(step.leaves):
        for n, leaf in enumerate(row):
            if leaf is not None:
                draws[b, n] = _uniforms(seeds[leaf.prompt], count)
    return draws


def _uniforms(seed: RowSeed, count: int) -> np.ndarray:
    ids = np.asarray(seed.ids, dtype=np.int64).tobytes()
    digest = hashlib.sha256(f"{seed.seed}|{seed.copies}|".encode() + ids).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big")).random(count)
