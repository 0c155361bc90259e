"""What a sampler in another engine gets equals what peft's own merge gives."""

import copy
from typing import Any

import pytest
import torch

from axiomrm.policy_opt.engines.publication import published_weights


@pytest.mark.parametrize("options", [{}, {"modules_to_save": ["norm"]}, {"use_dora": True}], ids=str)
def test_adapters_come_merged_and_the_model_keeps_them(toy: Any, options: dict[str, Any]) -> None:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    lora = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False, **options)
    model = get_peft_model(toy.model(), lora).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    got = dict(published_weights(model))
    merged = copy.deepcopy(model).merge_and_unload().state_dict()
    assert got.keys() == merged.keys()
    for name, value in merged.items():
        torch.testing.assert_close(got[name], value, atol=1e-6, rtol=1e-6)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    base = toy.model().state_dict()
    changed = {name for name, value in got.items() if not torch.allclose(value, base[name])}
    assert any("q_proj" in name for name in changed) and not any("k_proj" in name for name in changed)


def test_a_plain_model_is_published_as_it_is(toy: Any) -> None:
    model = toy.model()
    got = dict(published_weights(model))
    assert got.keys() == model.state_dict().keys() and "lm_head.weight" in got
    assert not any(value.requires_grad for value in got.values())
