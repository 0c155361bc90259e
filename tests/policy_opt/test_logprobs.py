import math
from typing import Any

import pytest
import torch

from axiomrm.errors import ConfigError
from axiomrm.policy_opt.logprobs import logprobs_of_hidden, selected_logprobs, trunk_and_head


def test_temperature_by_hand() -> None:
    # logits (2, 0) at 0.5: (4, 0); log p = -log(1 + e^-4)
    got = logprobs_of_hidden(torch.tensor([[2.0, 0.0]]), torch.nn.Identity(), torch.tensor([0]), 0.5)
    assert got.logp_N.item() == pytest.approx(-0.01815, abs=1e-6)


def test_entropy_by_hand() -> None:
    got = logprobs_of_hidden(torch.zeros(1, 8), torch.nn.Identity(), torch.tensor([3]), 1.0)
    assert got.entropy_N.item() == pytest.approx(math.log(8))


def test_equals_a_full_softmax_whatever_the_padding_and_the_chunk(toy: Any) -> None:
    model = toy.model()
    ids = torch.randint(16, (3, 9), generator=torch.Generator().manual_seed(0))
    full = model(input_ids=ids).logits.log_softmax(-1)
    rows, columns = torch.tensor([2, 0, 1, 0]), torch.tensor([5, 1, 8, 7])
    expected = full[rows, columns - 1, ids[rows, columns]]
    padded = torch.cat([ids, torch.full((3, 4), 7)], 1)
    mask = torch.cat([torch.ones_like(ids), torch.zeros(3, 4, dtype=torch.long)], 1)
    got = selected_logprobs(model, padded, mask, rows, columns, 1.0)
    torch.testing.assert_close(got.logp_N, expected, atol=1e-5, rtol=1e-5)


def test_chunks_under_checkpointing_have_the_same_gradient() -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(4, 10, bias=False)
    hidden, targets = torch.randn(7, 4), torch.arange(7)
    grads = []
    for chunk in (100, 3):
        leaf = hidden.clone().requires_grad_()
        logprobs_of_hidden(leaf, head, targets, 1.0, chunk=chunk).logp_N.sum().backward()  # type: ignore[no-untyped-call]  # torch
        grads.append(leaf.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_a_model_that_bends_its_logits_after_the_head_is_refused(toy: Any) -> None:
    model = toy.model()
    model.config.final_logit_softcapping = 30.0
    with pytest.raises(ConfigError, match="final_logit_softcapping"):
        trunk_and_head(model)


def test_a_peft_model_splits_too(toy: Any) -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(toy.model(), peft.LoraConfig(target_modules=["q_proj"], r=2, lora_alpha=4))
    ids = torch.tensor([[2, 3, 8, 4]])
    got = selected_logprobs(model, ids, torch.ones_like(ids), torch.tensor([0]), torch.tensor([3]), 1.0)
    expected = model(input_ids=ids).logits.log_softmax(-1)[0, 2, 4]
    torch.testing.assert_close(got.logp_N[0], expected)
