"""Aggregation, and parity with TRL's own loss code on the same tensors."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch

from axiomrm.policy_opt.losses import aggregate, cispo_loss, clipped_surrogate, step_weights


def test_token_mean_counts_every_token_once() -> None:
    weights = step_weights([2, 1], [0, 1], "token")
    losses = torch.tensor([1.0, 2.0, 3.0])
    assert aggregate(
        losses, torch.tensor(weights).repeat_interleave(torch.tensor([2, 1]))
    ).item() == pytest.approx(2.0)


def test_constant_by_hand() -> None:
    # (1 + 2 + 3) / (2 trajectories * C 2)
    weights = step_weights([2, 1], [0, 1], "constant", 2.0)
    losses = torch.tensor([1.0, 2.0, 3.0])
    assert aggregate(
        losses, torch.tensor(weights).repeat_interleave(torch.tensor([2, 1]))
    ).item() == pytest.approx(1.5)


def test_step_and_trajectory_means_by_hand() -> None:
    sizes, owners = [2, 1, 1], [0, 0, 1]
    losses = torch.tensor([1.0, 3.0, 5.0, 7.0])
    repeat = torch.tensor(sizes)
    step = torch.tensor(step_weights(sizes, owners, "step")).repeat_interleave(repeat)
    trajectory = torch.tensor(step_weights(sizes, owners, "trajectory")).repeat_interleave(repeat)
    assert aggregate(losses, step).item() == pytest.approx((2 + 5 + 7) / 3)
    assert aggregate(losses, trajectory).item() == pytest.approx((3 + 7) / 2)


MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    old = -torch.rand(3, 4, generator=generator) - 0.2
    new = old + 0.4 * torch.randn(3, 4, generator=generator)
    return new, old, torch.tensor([1.3, -0.7, 0.4])


def trl_loss(loss_type: str, new: torch.Tensor, old: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """TRL 1.16's ``GRPOTrainer._compute_loss`` with everything around the loss switched off."""
    trl = pytest.importorskip("trl")
    trainer = MagicMock()
    trainer._get_per_token_logps_and_entropies.return_value = (new, torch.zeros_like(new), None)
    trainer.args = SimpleNamespace(delta=None, use_bias_correction_kl=False)
    trainer.accelerator.num_processes = 1
    trainer.accelerator.gather.side_effect = lambda tensor: tensor
    settings: dict[str, Any] = dict(
        beta=0.0, epsilon_low=0.2, epsilon_high=2.0 if loss_type == "cispo" else 0.2, loss_type=loss_type,
        importance_sampling_level="token", off_policy_mask_threshold=None, top_entropy_quantile=1.0,
        use_vllm=False, aux_loss_enabled=False,
        current_gradient_accumulation_steps=1, _entropy_bonus_enabled=False,
        max_completion_length=10, model=SimpleNamespace(training=False),
    )  # fmt: skip
    for name, value in settings.items():
        setattr(trainer, name, value)
    inputs: dict[str, Any] = {
        "prompt_ids": torch.zeros(3, 1, dtype=torch.long),
        "prompt_mask": torch.ones(3, 1, dtype=torch.long),
        "completion_ids": torch.zeros(3, 4, dtype=torch.long),
        "completion_mask": MASK,
        "advantages": advantages,
        "old_per_token_logps": old,
        "num_items_in_batch": MASK.sum(),
    }
    loss: torch.Tensor = trl.GRPOTrainer._compute_loss(trainer, None, inputs)
    return loss


@pytest.mark.parametrize(
    ("loss_type", "kind", "constant"),
    [
        ("grpo", "trajectory", 1.0),
        ("bnpo", "token", 1.0),
        ("dapo", "token", 1.0),
        ("dr_grpo", "constant", 10.0),
        ("cispo", "token", 1.0),
    ],
)
def test_value_and_gradient_equal_trl(loss_type: str, kind: str, constant: float) -> None:
    new, old, advantages = tensors()
    theirs_in, ours_in = new.clone().requires_grad_(), new.clone().requires_grad_()
    theirs = trl_loss(loss_type, theirs_in, old, advantages)
    where = MASK.bool()
    advantage_N = advantages[:, None].expand(3, 4)[where]
    if loss_type == "cispo":
        loss_N = cispo_loss(ours_in[where], old[where], advantage_N, cap=2.0)
    else:
        loss_N = clipped_surrogate(ours_in[where], old[where], advantage_N)
    sizes = MASK.sum(1)
    weights = step_weights(sizes.tolist(), [0, 1, 2], kind, constant)  # type: ignore[arg-type]  # parametrised
    ours = aggregate(loss_N, torch.tensor(weights).repeat_interleave(sizes))
    torch.testing.assert_close(ours, theirs)
    (theirs_g,) = torch.autograd.grad(theirs, theirs_in)
    (ours_g,) = torch.autograd.grad(ours, ours_in)
    torch.testing.assert_close(ours_g, theirs_g)
    assert ours_g.abs().sum() > 0
