"""The corrected off-policy gradient against the exact on-policy one, over every action of a bandit."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from axiomrm.policy_opt.algorithms.base import Algorithm
from axiomrm.policy_opt.algorithms.grpo import GRPO
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.algorithms.rloo import RLOO
from axiomrm.policy_opt.config import GRPOConfig, ProcessReplayConfig, RLOOConfig
from axiomrm.policy_opt.packing import DrawnStep, micro_batches
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord

THETA = torch.tensor([0.4, -0.3, 0.1, 0.8])
"""Logits of one token; an action is two of them, so the turn's ratio is a product."""
SHIFT = torch.tensor([-0.05, 0.05, 0.05, -0.05])
"""The behaviour policy likes what is bad here better, so that no cap is reached."""
VALUE = torch.tensor([1.0, -1.0, -0.5, 0.5])
"""Advantage of a pair is that of both its tokens: positive where the ratio is above 1, negative below."""


def pairs() -> list[tuple[int, int]]:
    return [(a, b) for a in range(4) for b in range(4)]


def advantage(pair: tuple[int, int], highest: float = math.inf) -> float:
    a, b = pair
    total = min(float(VALUE[a] + VALUE[b]), highest)
    gap = float(log_ratio(a) + log_ratio(b))
    return total if total * gap > 0 else 0.0


def log_ratio(a: int) -> torch.Tensor:
    return THETA.log_softmax(0)[a] - (THETA + SHIFT).log_softmax(0)[a]


def exact(theta: torch.Tensor, highest: float = math.inf) -> torch.Tensor:
    logp = theta.log_softmax(0)
    terms = [(logp[a] + logp[b]).exp() * advantage((a, b), highest) for a, b in pairs()]
    value = torch.stack(terms).sum()
    return torch.autograd.grad(value, theta)[0]


def expected(algorithm: Algorithm, theta: torch.Tensor, highest: float = math.inf) -> torch.Tensor:
    """Exact expectation over actions of the behaviour policy, through the algorithm's own loss."""
    mu, logp = (THETA + SHIFT).log_softmax(0), theta.log_softmax(0)
    steps = []
    for a, b in pairs():
        behaviour = np.array([mu[a], mu[b]], dtype=np.float32)
        step = StepRecord(f"{a}{b}", 0, 0, 1, 3, 0, behaviour)
        row = TrajectoryRecord(f"{a}{b}", "", "", [np.array([9, a, b], dtype=np.int32)], [step], 0)
        steps.append(DrawnStep(row, step, advantage((a, b), highest)))
    weights = [float((mu[a] + mu[b]).exp()) for a, b in pairs()]
    (batch,) = micro_batches(steps, weights, token_budget=1000)
    ids = batch.input_ids_RL[batch.row_N, batch.column_N]
    parts = algorithm.token_loss(logp[ids], batch)
    loss = (parts.loss_N * batch.weight_S[batch.step_N]).sum()
    return -torch.autograd.grad(loss, theta)[0]


def of(kind: str, **options: Any) -> Algorithm:
    if kind == "grpo":
        return GRPO(GRPOConfig(**options))
    return RLOO(RLOOConfig(**options)) if kind == "rloo" else ProcessReplay(ProcessReplayConfig(**options))


@pytest.mark.parametrize(
    "algorithm", [of("process", correction="ratio"), of("rloo", clip=0.5)], ids=["turn", "sequence"]
)
def test_the_turns_ratio_makes_the_stale_gradient_exact(algorithm: Algorithm) -> None:
    theta = THETA.clone().requires_grad_()
    assert max(abs(float(log_ratio(a) + log_ratio(b))) for a, b in pairs()) > 0.05
    torch.testing.assert_close(expected(algorithm, theta), exact(theta), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("algorithm", [of("process", correction="none"), of("grpo")], ids=["none", "token"])
def test_without_it_or_with_token_ratios_it_is_not(algorithm: Algorithm) -> None:
    theta = THETA.clone().requires_grad_()
    gap = (expected(algorithm, theta) - exact(theta)).norm() / exact(theta).norm()
    assert 1e-3 < gap < 0.5


def test_the_tapers_bias_is_on_positives_only() -> None:
    theta = THETA.clone().requires_grad_()
    taper, ratio = (expected(of("process", correction=c), theta) for c in ("taper", "ratio"))
    assert (taper - ratio).abs().max() > 1e-4
    negative = expected(of("process", correction="taper"), theta, highest=0.0)
    torch.testing.assert_close(negative, exact(theta, highest=0.0), atol=1e-6, rtol=1e-4)
