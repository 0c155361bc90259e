import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from axiomrm.errors import DataError
from axiomrm.policy_opt.algorithms.ppo import PPO, ValueHead, token_rewards
from axiomrm.policy_opt.algorithms.torchrl_ppo import clipped_loss, generalised_advantages
from axiomrm.policy_opt.config import PolicyConfig, PPOConfig, RolloutConfig
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord

NAN = float("nan")


def record(name: str = "a", outcome: float = 1.0) -> TrajectoryRecord:
    steps = [
        StepRecord(
            traj_id=name, turn=t, segment=0, start=2 + 4 * t, end=4 + 4 * t, policy_version=0,
            behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32), r_local=0.25,
            ref_logprobs=np.array([-1.0, -0.25], dtype=np.float32),
        )
        for t in range(2)
    ]  # fmt: skip
    return TrajectoryRecord(name, "task", "g", [np.arange(8, dtype=np.int32)], steps, 0, outcome=outcome)


def test_rewards_stand_on_the_last_token_of_their_turn() -> None:
    got = token_rewards(record(), summed=True, kl_coefficient=0.0)
    assert got.tolist() == [0.0, 0.25, 0.0, 1.25]
    got = token_rewards(record(), summed=False, kl_coefficient=0.1)
    np.testing.assert_allclose(got, [-0.05, 0.0, -0.05, 1.0], atol=1e-7)


def test_advantages_of_ragged_episodes_by_hand() -> None:
    long, short = np.array([0.5, 0.25, 0.0], np.float32), np.array([0.5], np.float32)
    rewards = [np.array([0.0, 0.0, 1.0], np.float32), np.array([0.0], np.float32)]
    advantages, targets = generalised_advantages([long, short], rewards, gamma=1.0, lam=0.5)
    # errors: 0.25 - 0.5, 0 - 0.25, 1 - 0; a_2 = 1, a_1 = -0.25 + 0.5, a_0 = -0.25 + 0.125
    np.testing.assert_allclose(advantages[0], [-0.125, 0.25, 1.0])
    np.testing.assert_allclose(targets[0], [0.375, 0.5, 1.0])
    np.testing.assert_allclose(advantages[1], [-0.5])


def test_lambda_one_is_the_return_minus_the_value() -> None:
    rng = np.random.default_rng(0)
    value, reward = rng.normal(size=(2, 7)).astype(np.float32)
    advantages, _ = generalised_advantages([value], [reward], gamma=1.0, lam=1.0)
    np.testing.assert_allclose(advantages[0], reward[::-1].cumsum()[::-1] - value, rtol=1e-4, atol=1e-5)


def tensors(n: int = 6) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(n, generator=generator)
    rest = [torch.randn(n, generator=generator) for _ in range(4)]
    return (old + 0.5 * rest[0], old, *rest[1:])


def test_the_loss_is_the_clipped_objective_plus_half_the_squared_error() -> None:
    new, old, value, advantage, target = tensors()
    new.requires_grad_()
    policy, critic = clipped_loss(new, old, value, advantage, target, clip=0.2, value_coefficient=0.5)
    ratio = (new - old).exp()
    expected = -torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage)
    torch.testing.assert_close(policy, expected)
    torch.testing.assert_close(critic, 0.5 * (value - target) ** 2)
    ours, theirs = (torch.autograd.grad(x.sum(), new, retain_graph=True)[0] for x in (policy, expected))
    torch.testing.assert_close(ours, theirs)


def test_logprobs_instead_of_logits_change_nothing_in_torchrls_loss() -> None:
    from tensordict import TensorDict
    from tensordict.nn import ProbabilisticTensorDictModule as Probabilistic
    from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModule
    from torchrl.objectives import ClipPPOLoss

    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 5, generator=generator).requires_grad_()
    action = torch.randint(5, (6,), generator=generator)
    _, old, value, advantage, target = tensors()
    actor = ProbabilisticTensorDictSequential(
        TensorDictModule(lambda x: x, in_keys=["in"], out_keys=["logits"]),
        Probabilistic(["logits"], ["action"], distribution_class=torch.distributions.Categorical),
    )
    critic = TensorDictModule(lambda x: x, in_keys=["value"], out_keys=["state_value"])
    loss = ClipPPOLoss(
        actor, critic, clip_epsilon=0.2, entropy_bonus=False, critic_coeff=0.5, loss_critic_type="l2",
        reduction="none", functional=False,
    )  # fmt: skip
    data = {
        "in": logits, "value": value[:, None], "action": action, "action_log_prob": old,
        "advantage": advantage[:, None], "value_target": target[:, None],
    }  # fmt: skip
    theirs = loss(TensorDict(data, batch_size=[6]))["loss_objective"].squeeze(-1)
    logp = logits.log_softmax(-1).gather(1, action[:, None]).squeeze(1)
    ours, _ = clipped_loss(logp, old, value, advantage, target, clip=0.2, value_coefficient=0.5)
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(x.sum(), logits, retain_graph=True)[0] for x in (ours, theirs)]
    torch.testing.assert_close(*gradients)


def test_a_trajectory_without_a_return_is_not_drawn_and_a_step_without_a_value_is_an_error() -> None:
    algorithm = PPO(PPOConfig())
    values = {("a", t): np.zeros(2, np.float32) for t in range(2)}
    algorithm.take_values(values)
    algorithm.ingest([record("a"), record("b", NAN)], 0)
    (minibatch, *_) = algorithm.plan(0, np.random.default_rng(0))
    assert {item.record.traj_id for item in minibatch.steps} == {"a"}
    with pytest.raises(DataError, match="'c', turn 0: no value"):
        algorithm.ingest([record("c")], 0)


def test_the_head_starts_at_zero_and_can_leave_the_trunk_alone() -> None:
    head, hidden = ValueHead(3), torch.ones(2, 3, requires_grad=True)
    assert head(hidden).tolist() == [0.0, 0.0]
    head.linear.weight.data.fill_(1.0)
    head.detached = True
    head(hidden).sum().backward()
    assert hidden.grad is None and head.linear.weight.grad is not None
    head.detached = False
    head(hidden).sum().backward()
    assert hidden.grad is not None


def config(**options: Any) -> PolicyConfig:
    defaults: dict[str, Any] = {
        "iterations": 2, "tasks_per_iteration": 2, "group_size": 4, "learning_rate": 3e-3,
        "algorithm": PPOConfig(passes=2, value_only_iterations=1), "rollout": RolloutConfig(max_turn_tokens=4),
    }  # fmt: skip
    return PolicyConfig(**(defaults | options))


def test_first_only_the_head_learns_then_both(toy: Any, tmp_path: Path) -> None:
    trainer = toy.trainer(tmp_path, config(iterations=1))
    start = [p.clone() for p in trainer.model.parameters()]
    (row,) = trainer.run()
    assert all(torch.equal(a, b) for a, b in zip(start, trainer.model.parameters(), strict=True))
    assert trainer.algorithm.critic.linear.weight.abs().sum() > 0
    assert row["critic/value_mean"] == 0.0 and math.isnan(row["policy/grad_norm"])
    again = toy.trainer(tmp_path, config(iterations=2))
    rows = again.run()
    assert rows[1]["critic/value_mean"] != 0.0 and rows[1]["policy/grad_norm"] > 0
    whole = toy.trainer(tmp_path / "whole", config(iterations=2))
    whole.run()
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert whole.algorithm.state_dict() == again.algorithm.state_dict()
