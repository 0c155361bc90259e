"""A policy with low-rank adapters: its reference, its checkpoints, its cold start."""

from pathlib import Path
from typing import Any

import peft
import pytest
import torch

from axiomrm.errors import ConfigError
from axiomrm.policy_opt import checkpoint
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.reference import has_fresh_adapters, starting_policy

IDS = torch.tensor([[2, 3, 9, 4, 9, 1]])


def adapted(toy: Any, **options: Any) -> Any:
    torch.manual_seed(3)
    targets = ["q_proj", "v_proj", "down_proj"]
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=targets, **options)
    return peft.get_peft_model(toy.warm(), config)  # type: ignore[no-untyped-call,unused-ignore]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found


def disturb(model: Any) -> None:
    with torch.no_grad():
        for p in model.parameters():
            if p.requires_grad:
                p.add_(torch.full_like(p, 0.1))


def test_the_reference_of_fresh_adapters_is_the_model_without_them_and_no_copy(toy: Any) -> None:
    model = adapted(toy)
    before, start = logits(model), starting_policy(model)
    disturb(model)
    with start() as reference:
        assert reference is model and torch.equal(logits(reference), before)
    assert not torch.equal(logits(model), before)
    assert any(p.requires_grad for p in model.parameters())


@pytest.mark.parametrize("options", [{"init_lora_weights": False}, {"modules_to_save": ["norm"]}])
def test_adapters_that_change_something_or_are_not_all_that_is_trained_are_copied(
    toy: Any, options: dict[str, Any]
) -> None:
    model = adapted(toy, **options)
    assert not has_fresh_adapters(model)
    before, start = logits(model), starting_policy(model)
    disturb(model)
    with start() as reference:
        assert torch.equal(logits(reference), before)


def config(iterations: int) -> PolicyConfig:
    return PolicyConfig(
        iterations=iterations, tasks_per_iteration=2, group_size=4, learning_rate=1e-2,
        rollout=RolloutConfig(max_turn_tokens=4),
    )  # fmt: skip


def test_a_run_of_adapters_keeps_them_alone_and_resumes_to_the_same_weights(toy: Any, tmp_path: Path) -> None:
    base = {k: v.clone() for k, v in toy.warm().state_dict().items()}
    whole = toy.trainer(tmp_path / "a", config(3), model=adapted(toy))
    rows = whole.run()
    assert rows[0]["kl/k3_fresh_nats_per_token"] == pytest.approx(0.0, abs=1e-9)
    assert rows[-1]["kl/k3_fresh_nats_per_token"] > 1e-5
    for name, value in whole.model.unload().state_dict().items():
        assert torch.equal(value, base[name]), name
    toy.trainer(tmp_path / "b", config(2), model=adapted(toy)).run()
    resumed = toy.trainer(tmp_path / "b", config(3), model=adapted(toy))
    resumed.run()
    stored, _ = checkpoint.load(checkpoint.latest(tmp_path / "b") or tmp_path)
    expected, _ = checkpoint.load(checkpoint.latest(tmp_path / "a") or tmp_path)
    assert stored["model"] and all(".lora_" in name for name in stored["model"])
    for name, value in expected["model"].items():
        assert torch.equal(value, stored["model"][name]), name


def test_weights_of_other_adapters_are_refused(toy: Any) -> None:
    weights = checkpoint.trained_weights(adapted(toy))
    weights.pop(sorted(weights)[0])
    with pytest.raises(ConfigError, match="1 differ"):
        checkpoint.load_trained(adapted(toy), weights)
