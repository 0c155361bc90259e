"""Attention over trunk and branch, drawing, and packed layers, each against the plain sum it stands for."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from axiomrm.rm.engines import branching, linears
from axiomrm.rm.engines.base import LabelReading, Prompt, Sampling
from axiomrm.rm.engines.branching import CELLS, attend, in_blocks, merged
from axiomrm.rm.engines.decoding import drawn
from axiomrm.rm.engines.linears import PackedLinears
from axiomrm.rm.engines.transformers import TransformersEngine
from axiomrm.rm.labels import LabelTable

TABLE = LabelTable("verdict[gamu]=", (11, 12, 13), {"Y": 30, "N": 31, "X": 32})


def worked_out(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, seen: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax attention in fp64, head by head; ``seen`` ``(N, T)``."""
    group = len(q) // len(k)
    k, v = (t.double().repeat_interleave(group, 0) for t in (k, v))
    scores = (scale * q.double() @ k.transpose(1, 2)).masked_fill(~seen, -math.inf)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def tensors(n: int, keys: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(n)
    return torch.randn(6, n, 8) * 3, torch.randn(2, keys, 8), torch.randn(2, keys, 8)


@pytest.mark.parametrize("n", [1, 7, 200, 700])  # 128 and more: blocks of products; 512 queries a block
@pytest.mark.parametrize("kind", ["all", "causal", "mask"])
def test_attention_and_its_log_sum_exp(n: int, kind: str) -> None:
    q, k, v = tensors(n, n if kind == "causal" else 23)
    seen = torch.ones(n, k.shape[1], dtype=torch.bool)
    if kind == "causal":
        seen = seen.tril()
    if kind == "mask":
        seen = torch.rand(seen.shape) < 0.5
        seen[:, 0] = True
    mask = torch.zeros(seen.shape).masked_fill(~seen, -math.inf) if kind == "mask" else None
    wanted = worked_out(q, k, v, 0.3, seen)
    for found in (
        attend(q, k, v, 0.3, mask=mask, causal=kind == "causal"),
        [
            t.flatten(0, 1)
            for t in in_blocks(
                q.view(2, 3, n, 8), k[:, None], v[:, None], 0.3, mask=mask, causal=kind == "causal"
            )
        ],
    ):
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=1e-5)


def test_plain_products_of_more_scores_than_are_held_at_once() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(1, 2, 3000, 4), torch.randn(1, 1, 3000, 4)
    assert q.shape[1] * 3000 * 3000 > CELLS
    found = in_blocks(q, k, k, 0.5, mask=None, causal=True)
    wanted = worked_out(q[0], k[0], k[0], 0.5, torch.ones(3000, 3000, dtype=torch.bool).tril())
    torch.testing.assert_close(found[0][0].double(), wanted[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[1][0].double(), wanted[1], rtol=0, atol=1e-5)


class OtherTorch:
    """torch without its private operations, as another version may be."""

    ops = SimpleNamespace(aten=SimpleNamespace(), mkldnn=SimpleNamespace())

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def test_a_torch_without_the_private_operations_attends_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = (torch.randn(4, n, 16) for n in (5, 9, 9))
    here = attend(q, k, v, 0.25)
    for module in (branching, linears):
        monkeypatch.setattr(module, "torch", OtherTorch())
    linears._here.cache_clear()
    try:
        assert not linears.onednn_serves(q)
        for mine, theirs in zip(attend(q, k, v, 0.25), here, strict=True):
            torch.testing.assert_close(mine, theirs)
    finally:
        linears._here.cache_clear()


def test_two_parts_merge_into_attention_over_both() -> None:
    q, k, v = tensors(5, 40)
    parts = [attend(q, k[:, at], v[:, at], 0.3) for at in (slice(0, 31), slice(31, 40))]
    whole, _ = worked_out(q, k, v, 0.3, torch.ones(5, 40, dtype=torch.bool))
    torch.testing.assert_close(merged(parts[0], parts[1]).double(), whole, rtol=0, atol=1e-5)


@pytest.mark.parametrize("vocabulary", [3, 256, 1000])
def test_a_draw_picks_the_token_at_which_the_cumulative_probability_passes_it(vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    logits = torch.randn(500, vocabulary) * 2
    draws = torch.rand(500, dtype=torch.float64)
    draws[0] = 0.0
    cumulative = torch.softmax(logits.double(), -1).cumsum(-1)
    found = drawn(logits, draws)
    for row, token in enumerate(found.tolist()):
        below = float(cumulative[row, token - 1]) if token else 0.0
        assert below - 1e-6 <= float(draws[row]) <= float(cumulative[row, token]) + 1e-6


def test_impossible_tokens_are_never_drawn() -> None:
    logits = torch.full((2, 600), -math.inf)
    logits[:, 400] = 0.0
    assert drawn(logits, torch.tensor([0.0, 1 - 1e-16], dtype=torch.float64)).tolist() == [400, 400]


def test_packed_layers_multiply_alike_follow_their_weights_and_leave_nothing_behind(
    make_model: Callable[..., Any],
) -> None:
    model = make_model()
    packed, ids = PackedLinears(model, 10**9), torch.tensor([[50, 60, 70]])
    for factor in (1.0, 2.0):
        with torch.inference_mode():
            model.lm_head.weight.mul_(factor)
            plain = model(input_ids=ids).logits
            with packed.in_use():
                assert "forward" in model.lm_head.__dict__
                found = model(input_ids=ids).logits
        torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-4)
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_a_model_larger_than_its_allowance_gets_no_copies(make_model: Callable[..., Any]) -> None:
    model = make_model()
    with PackedLinears(model, 1000).in_use():
        assert "forward" not in model.lm_head.__dict__


def test_the_model_attends_as_before_when_the_engine_is_done(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model, ids = make_model(), torch.tensor([[50, 60, 70]])
    name, before = model.config._attn_implementation, model(input_ids=ids).logits
    engine = TransformersEngine(model, tiny_tokenizer)
    prompts = [Prompt((50, 60, 70, 80), (i, 9), (), "gamu") for i in (90, 91)]
    engine.generate(prompts, Sampling(max_new_tokens=3))
    assert model.config._attn_implementation == name
    assert torch.equal(model(input_ids=ids).logits, before)


def test_attention_with_a_soft_cap_takes_the_plain_path(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model("Gemma2", layer_types=["full_attention"] * 2, attn_logit_softcapping=0.5, head_dim=8)
    engine = TransformersEngine(model, tiny_tokenizer)
    assert not engine.capabilities.prefix_reuse
    prompts = [Prompt((50, 60, 70, 80), (i, 9), (), "gamu") for i in (90, 91)]
    for prompt, reading in zip(prompts, engine.label_logprobs(prompts, [TABLE] * 2), strict=True):
        assert isinstance(reading, LabelReading)
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt.ids + TABLE.lead_in_ids])).logits[0, -1]
        assert reading.logprobs["Y"] == pytest.approx(float(logits.log_softmax(-1)[30]), abs=1e-4)
