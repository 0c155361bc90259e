"""Settings under which one algorithm is another (POLICY.md section 15); parity with TRL is in test_trl_parity."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
import torch

from axiomrm.policy_opt.advantages import group_advantages
from axiomrm.policy_opt.algorithms.base import Algorithm
from axiomrm.policy_opt.algorithms.grpo import GRPO, grpo_advantages
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.config import GRPOConfig, ProcessReplayConfig
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.returns import local_returns, progress_delta
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.update import accumulate_gradient

NAN = float("nan")


def one_turn(name: str, outcome: float, local: float) -> TrajectoryRecord:
    step = StepRecord(
        traj_id=name, turn=0, segment=0, start=2, end=4, policy_version=0, r_local=local, progress=0.0,
        behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32),
    )  # fmt: skip
    return TrajectoryRecord(name, "task", "g", [np.arange(4, dtype=np.int32)], [step], 0, outcome=outcome)


def advantages(rows: Sequence[TrajectoryRecord], **options: Any) -> list[float]:
    one = ProcessReplay(ProcessReplayConfig(calibrate_beta=False, **options))
    one.ingest(rows, 0)
    return [one.advantage(r, s, one.snapshot) for r in rows for s in r.steps]


def test_leave_one_out_is_the_group_mean_stretched_by_m_over_m_minus_one() -> None:
    rewards, groups = [1.0, 0.25, 0.0, 0.5, 1.0], ["a"] * 3 + ["b"] * 2
    mean = grpo_advantages(rewards, groups, scale="none")
    stretch = np.array([3 / 2] * 3 + [2.0] * 2)
    np.testing.assert_allclose(group_advantages(rewards, groups), mean * stretch)


def test_missing_rewards_anywhere_are_deleted_samples() -> None:
    rewards = np.array([1.0, NAN, 0.25, 0.0, NAN])
    kept = ~np.isnan(rewards)
    for function in (group_advantages, grpo_advantages):
        got = function(rewards.tolist(), ["a"] * 5)
        np.testing.assert_allclose(got[kept], function(rewards[kept].tolist(), ["a"] * 3))
        assert np.isnan(got[~kept]).all()


def test_the_delta_return_telescopes_without_discount() -> None:
    progress, terminal = [0.125, 0.5, 0.25, 0.75], 1.0
    assert progress_delta(progress, terminal=terminal).sum() == terminal - progress[0]


@pytest.mark.parametrize("kind", ["immediate", "rtg", "delta"])
def test_with_one_turn_every_local_return_is_the_bandits(kind: Literal["immediate", "rtg", "delta"]) -> None:
    got = local_returns(kind, [0.75], [0.0], gamma=1.0, cost=0.0, tail=0.0, terminal=0.75)
    assert got.tolist() == [0.75]
    rows = [one_turn(n, r, r) for n, r in (("a", 1.0), ("b", 0.25), ("c", 0.0))]
    got_adv = advantages(rows, alpha=0.0, beta=1.0, local_return=kind, gamma=1.0)
    assert got_adv == pytest.approx(advantages(rows, alpha=0.0, beta=1.0))


@pytest.mark.parametrize("scale", ["none", "batch"])
def test_with_one_turn_and_the_outcome_as_its_reward_both_terms_are_one(scale: str) -> None:
    rows = [one_turn(n, r, r) for n, r in (("a", 1.0), ("b", 0.25), ("c", 0.0), ("d", 0.0))]
    process, outcome = (advantages(rows, alpha=a, beta=b, scale=scale) for a, b in ((0.0, 1.0), (1.0, 0.0)))
    assert process == pytest.approx(outcome) and max(process) > 0


def gradient(model: Any, algorithm: Algorithm, rows: Sequence[TrajectoryRecord]) -> torch.Tensor:
    algorithm.ingest(rows, 0)
    (minibatch,) = algorithm.plan(0, np.random.default_rng(0))
    model.zero_grad()
    accumulate_gradient(model, algorithm, minibatch, kl_beta=0.0, token_budget=10_000)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


def test_without_turn_rewards_and_replay_the_fresh_pass_is_grpos(toy: Any) -> None:
    model, tasks = toy.warm(), toy.tasks(2, 2, 3)
    sampler = TransformersSampler(model, toy.chat.end_ids)
    limits = RolloutLimits(max_turns=8, max_turn_tokens=4)
    requests = group_requests(tasks, 8, "x")
    episodes = collect(sampler, toy.chat, lambda: toy.env(2), requests, limits=limits, seed=0)
    rows = [e.record for e in episodes]
    for i, row in enumerate(rows):
        row.outcome = float(i % 3 == 0)
    ours = ProcessReplay(
        ProcessReplayConfig(beta=0.0, reuse=0, kappa=0.0, scale="none", aggregation="trajectory")
    )
    theirs = GRPO(GRPOConfig(scale="none"))
    # leave-one-out instead of the mean with self: 8/7; on policy the ratio's gradient is that of its logarithm
    torch.testing.assert_close(
        gradient(model, ours, rows), gradient(model, theirs, rows) * 8 / 7, atol=1e-7, rtol=1e-4
    )
