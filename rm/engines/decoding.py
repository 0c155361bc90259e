"""Decoding many prompts together after a packed prefill.

The packed forward leaves keys and values of the tree; each prompt's own path is gathered from it, so that
prompts of different rows continue in one batch without any prefix having been computed twice.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from axiomrm.rm.engines.base import Sampling
from axiomrm.rm.engines.packing import Ids, Pack

Seed = tuple[int, Ids, int]


@dataclass
class Prefilled:
    """Prompts ready to continue, in the order of the call."""

    logits: Tensor
    """``(B, vocabulary)``: of the first new token."""
    cache: Any
    mask: Tensor
    """``(B, T)``: 1 = a token of the prompt, 0 = padding on the left."""
    lengths: Tensor
    """``(B,)``: tokens of each prompt."""


def merge_prefilled(parts: Sequence[tuple[list[Pack], Tensor, Any]], count: int) -> Prefilled:
    """Per-prompt logits and caches out of packed forwards.

    Args:
        parts: for each forward its rows, the right-aligned logits of their last tokens, and its cache.
        count: prompts of the call.
    """
    where = _places(parts)
    longest = max(len(columns) for _, _, _, columns in where.values())
    first = parts[0][1]
    logits = torch.empty(count, first.shape[-1], dtype=first.dtype, device=first.device)
    mask = torch.zeros(count, longest, dtype=torch.long, device=first.device)
    for i, (part, row, end, columns) in where.items():
        logits[i] = parts[part][1][row, end]
        mask[i, longest - len(columns) :] = 1
    cache = _gathered(parts, where, longest, count)
    return Prefilled(logits, cache, mask, mask.sum(dim=1))


def _places(parts: Sequence[tuple[list[Pack], Tensor, Any]]) -> dict[int, tuple[int, int, int, list[int]]]:
    """Prompt index to its forward, row, column of its logits, and columns of its tokens in the cache."""
    where: dict[int, tuple[int, int, int, list[int]]] = {}
    for p, (packs, logits, _) in enumerate(parts):
        n = max(row.size for row in packs)
        for b, row in enumerate(packs):
            pad = n - row.size
            for j, ((index, _, _), path) in enumerate(zip(row.ends, row.paths, strict=True)):
                columns = [pad + k for k in path] + [pad + len(row.ids) + j]
                where[index] = (p, b, logits.shape[1] - len(row.ends) + j, columns)
    return where


def _gathered(
    parts: Sequence[tuple[list[Pack], Tensor, Any]],
    where: dict[int, tuple[int, int, int, list[int]]],
    longest: int,
    count: int,
) -> Any:
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer in range(len(parts[0][2].layers)):
        first = parts[0][2].layers[layer].keys
        shape = (count, first.shape[1], longest, first.shape[3])
        keys, values = first.new_zeros(shape), first.new_zeros(shape)
        for i, (p, row, _, columns) in where.items():
            source = parts[p][2].layers[layer]
            at = torch.as_tensor(columns, device=first.device)
            keys[i, :, longest - len(columns) :] = source.keys[row].index_select(1, at)
            values[i, :, longest - len(columns) :] = source.values[row].index_select(1, at)
        cache.update(keys, values, layer)
    return cache


@torch.inference_mode()
def decode(
    model: Any, prefilled: Prefilled, sampling: Sampling, seeds: Sequence[Seed], end_ids: frozenset[int]
) -> list[tuple[list[int], Literal["stop", "length"]]]:
    """New ids of each prompt, without the end token, and why it stopped."""
    logits, cache, mask = prefilled.logits, prefilled.cache, prefilled.mask
    draws = torch.from_numpy(np.stack([_uniforms(seed, sampling.max_new_tokens) for seed in seeds])).to(
        logits.device
    )
    ends = torch.as_tensor(sorted(end_ids), device=logits.device)
    done = torch.zeros(len(seeds), dtype=torch.bool, device=logits.device)
    steps: list[Tensor] = []
    for step in range(sampling.max_new_tokens):
        token = _pick(logits, draws[:, step], sampling.temperature)
        steps.append(token)
        done = done | torch.isin(token, ends)
        if bool(done.all()) or step + 1 == sampling.max_new_tokens:
            break
        mask = torch.cat([mask, mask.new_ones(len(seeds), 1)], dim=1)
        out = model(
            input_ids=token[:, None],
            attention_mask=mask,
            position_ids=(prefilled.lengths + step)[:, None],
            past_key_values=cache,
            use_cache=True,
        )
        logits, cache = out.logits[:, -1], out.past_key_values
    return [_ended(row, end_ids) for row in torch.stack(steps, dim=1).tolist()]


def _ended(ids: list[int], end_ids: frozenset[int]) -> tuple[list[int], Literal["stop", "length"]]:
    at = next((i for i, token in enumerate(ids) if token in end_ids), None)
    return (ids, "length") if at is None else (ids[:at], "stop")


def _pick(logits: Tensor, draws: Tensor, temperature: float) -> Tensor:
    """Greedy at 0; else the token at which the cumulative probability passes the row's draw."""
    if temperature == 0:
        return logits.argmax(dim=-1)
    cumulative = torch.softmax(logits.double() / temperature, dim=-1).cumsum(dim=-1)
    at = torch.searchsorted(cumulative, (draws * cumulative[:, -1])[:, None].contiguous(), right=True)
    return at[:, 0].clamp(max=logits.shape[-1] - 1)


def _uniforms(seed: Seed, count: int) -> np.ndarray:
    number, ids, copies = seed
    digest = hashlib.sha256(
        f"{number}|{copies}|".encode() + np.asarray(ids, dtype=np.int64).tobytes()
    ).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big")).random(count)


def row_seeds(prompts: Sequence[Ids], seed: int) -> list[Seed]:
    """``(seed, prompt, copies of it before)``: what a row's random numbers depend on."""
    count: dict[Ids, int] = {}
    seeds = []
    for ids in prompts:
        seeds.append((seed, ids, count.get(ids, 0)))
        count[ids] = count.get(ids, 0) + 1
    return seeds
