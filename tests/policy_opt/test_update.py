"""The gradient does not depend on how a minibatch is cut, padded or ordered."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from axiomrm.errors import DataError
from axiomrm.policy_opt.admission import admission_check
from axiomrm.policy_opt.algorithms.base import Algorithm, Minibatch
from axiomrm.policy_opt.algorithms.grpo import GRPO
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.config import GRPOConfig, ProcessReplayConfig
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.logprobs import selected_logprobs
from axiomrm.policy_opt.monitoring.diagnostics import update_diagnostics
from axiomrm.policy_opt.monitoring.metrics import update_metrics
from axiomrm.policy_opt.packing import DrawnStep, action_mask, extends, micro_batches
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.update import accumulate_gradient, attach_reference, optimizer_step


def drawn_steps(toy: Any, model: Any) -> list[DrawnStep]:
    sampler = TransformersSampler(model, toy.chat.end_ids)
    limits = RolloutLimits(max_turns=8, max_turn_tokens=4)
    tasks = toy.tasks(2, 3, 3)
    episodes = collect(
        sampler, toy.chat, lambda: toy.env(3), group_requests(tasks, 4, "x"), limits=limits, seed=0
    )
    rng = np.random.default_rng(0)
    return [DrawnStep(e.record, s, float(rng.normal())) for e in episodes for s in e.record.steps]


def gradient(model: Any, algorithm: Algorithm, steps: Sequence[DrawnStep], budget: int) -> torch.Tensor:
    model.zero_grad()
    minibatch = Minibatch(steps, False, "constant", 7.0)
    accumulate_gradient(model, algorithm, minibatch, kl_beta=0.1, token_budget=budget)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()


@pytest.mark.parametrize("algorithm", [ProcessReplay(ProcessReplayConfig()), GRPO(GRPOConfig())])
def test_split_and_order_do_not_change_the_gradient(toy: Any, algorithm: Algorithm) -> None:
    model = toy.warm()
    steps = drawn_steps(toy, model)
    attach_reference(toy.model(seed=3), [s.record for s in steps], token_budget=4096)
    whole = gradient(model, algorithm, steps, 100_000)
    assert whole.abs().max() > 1e-3
    for other in (gradient(model, algorithm, steps, 1), gradient(model, algorithm, steps[::-1], 60)):
        torch.testing.assert_close(other, whole, atol=1e-6, rtol=1e-4)


def test_one_packed_row_equals_one_row_a_turn(toy: Any) -> None:
    model = toy.warm()
    steps = drawn_steps(toy, model)
    packed = gradient(model, ProcessReplay(ProcessReplayConfig()), steps, 4096)
    model.zero_grad()
    n = len({s.record.traj_id for s in steps})
    loss = torch.zeros(())
    for item in steps:
        ids = torch.tensor(item.record.segments[0][: item.step.end]).long()[None]
        columns = torch.arange(item.step.start, item.step.end)
        rows = torch.zeros_like(columns)
        out = selected_logprobs(model, ids, torch.ones_like(ids), rows, columns, 1.0)
        loss = loss - item.advantage * out.logp_N.sum() / (n * 7.0)
    loss.backward()  # type: ignore[no-untyped-call]  # torch
    per_turn = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(packed, per_turn, atol=1e-5, rtol=1e-4)


def test_kl_pulls_on_steps_whose_policy_term_is_zero(toy: Any) -> None:
    model = toy.warm()
    steps = [DrawnStep(s.record, s.step, 0.0) for s in drawn_steps(toy, model)]
    attach_reference(model, [s.record for s in steps], token_budget=4096)
    assert gradient(model, ProcessReplay(ProcessReplayConfig()), steps, 4096).abs().max() < 1e-6
    attach_reference(toy.model(seed=3), [s.record for s in steps], token_budget=4096)
    assert gradient(model, ProcessReplay(ProcessReplayConfig()), steps, 4096).abs().max() > 1e-4


def test_a_batch_never_exceeds_its_token_budget_unless_one_row_does(toy: Any) -> None:
    steps = drawn_steps(toy, toy.warm())
    batches = micro_batches(steps, [1.0] * len(steps), token_budget=40)
    assert all(b.input_ids_RL.numel() <= 40 or b.input_ids_RL.shape[0] == 1 for b in batches)
    assert sorted(id(s) for b in batches for s in b.steps) == sorted(id(s) for s in steps)


def test_the_mask_comes_from_spans_not_from_ids() -> None:
    assert action_mask(5, [(0, 3)]) == [1, 1, 1, 0, 0]
    assert extends([1, 2, 3], [1, 2]) and not extends([1, 9, 3], [1, 2]) and not extends([1], [1, 2])


@pytest.mark.parametrize("spoil", ["temperature", "ids", "weights"])
def test_admission_refuses_what_would_train_on_the_wrong_policy(toy: Any, spoil: str) -> None:
    model = toy.warm()
    steps = drawn_steps(toy, model)
    algorithm = ProcessReplay(ProcessReplayConfig())
    if spoil == "temperature":
        for s in steps:
            s.record.temperature = 0.7
    elif spoil == "ids":
        steps[0].record.segments[0][steps[0].step.start] = 15
    else:
        with torch.no_grad():
            next(model.parameters()).add_(0.05 * torch.randn_like(next(model.parameters())))
    before = [p.clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    with pytest.raises(DataError, match="likely causes"):
        optimizer_step(
            model, optimizer, algorithm, Minibatch(steps, False, "token"), kl_beta=0.0, grad_clip=1.0,
            token_budget=4096, admission=1e-3,
        )  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_admission_accepts_a_clean_batch_and_reports_its_gaps() -> None:
    seen = admission_check(np.array([-1.0, -2.0], np.float32), np.array([-1.0, -2.0005], np.float32))
    assert seen["mismatch/max_abs_nats"] == pytest.approx(5e-4, rel=1e-3)


def test_another_engine_is_judged_on_the_mean_not_on_the_worst_token() -> None:
    a = np.full(10_000, -1.0, np.float32)
    b = a.copy()
    b[0] -= 0.3
    admission_check(a, b, same_engine=False)
    with pytest.raises(DataError, match=r"mean abs 0\.2"):
        admission_check(
            np.array([-1.3, -0.9], np.float32), np.array([-1.0, -1.0], np.float32), same_engine=False
        )


def test_replayed_tokens_count_in_the_distance_to_their_sampler_and_not_in_the_admission(toy: Any) -> None:
    model = toy.warm()
    fresh = drawn_steps(toy, model)
    stale = [replace(item, fresh=False) for item in drawn_steps(toy, model)]
    for item in stale:
        item.step.behaviour_logprobs = item.step.behaviour_logprobs - np.float32(0.5)
    minibatch = Minibatch([*fresh, *stale], False, "constant", 7.0)
    stats = accumulate_gradient(model, GRPO(GRPOConfig()), minibatch, kl_beta=0.0, token_budget=200)
    # log pi is 0.5 above log mu on half of the tokens: k3 = exp(-0.5) - 1 + 0.5 there
    found = update_diagnostics([stats], [])
    expected = (np.exp(-0.5) - 0.5) / 2
    assert found["offpolicy/k3_behaviour_nats_per_token"] == pytest.approx(expected, rel=1e-3)
    assert update_metrics([stats], [])["offpolicy/admission_max"] < 1e-3
