"""Aggregation: how per-token losses become one number (POLICY.md section 10).

Every kind is a fixed weight a token, computed over the whole accumulated batch before any split and before
the trust mask. The loss is then a plain weighted sum, so micro-batches, padding and order cannot change it.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

Aggregation = Literal["constant", "token", "step", "trajectory"]


def step_weights(
    length_S: Sequence[int], trajectory_S: Sequence[int], kind: Aggregation, constant: float = 1.0
) -> list[float]:
    """The weight of each action token of a step.

    Args:
        length_S: action tokens of each drawn step of the whole batch.
        trajectory_S: trajectory of each step (any labels).
        kind: ``constant`` = 1 / (N * C), the policy gradient; ``token`` = 1 / all tokens; ``step`` = mean
            over steps of token means; ``trajectory`` = mean over trajectories of token means.
        constant: C, the running mean of action tokens a trajectory.
    """
    n_trajectories = len(set(trajectory_S))
    if kind == "constant":
        return [1.0 / (n_trajectories * constant)] * len(length_S)
    if kind == "token":
        return [1.0 / sum(length_S)] * len(length_S)
    if kind == "step":
        return [1.0 / (len(length_S) * n) for n in length_S]
    tokens: dict[int, int] = {}
    for n, trajectory in zip(length_S, trajectory_S, strict=True):
        tokens[trajectory] = tokens.get(trajectory, 0) + n
    return [1.0 / (n_trajectories * tokens[trajectory]) for trajectory in trajectory_S]


def aggregate(loss_N: Tensor, weight_N: Tensor) -> Tensor:
    """Weighted sum over action tokens; weights from ``step_weights``."""
    return torch.sum(loss_N * weight_N)


def clipped_surrogate(
    logp_N: Tensor, old_N: Tensor, advantage_N: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2
) -> Tensor:
    """PPO's clipped ratio loss a token, as GRPO uses it (arXiv:2402.03300)."""
    ratio_N = (logp_N - old_N).clamp(-20.0, 20.0).exp()
    clipped_N = ratio_N.clamp(1 - clip_low, 1 + clip_high)
    return -torch.min(ratio_N * advantage_N, clipped_N * advantage_N)


def cispo_loss(logp_N: Tensor, old_N: Tensor, advantage_N: Tensor, *, cap: float) -> Tensor:
    """``-stopgrad(min(ratio, cap)) * A * log pi`` a token; ``cap`` is absolute, as in TRL."""
    ratio_N = (logp_N - old_N).clamp(-20.0, 20.0).exp().clamp(max=cap).detach()
    return -ratio_N * advantage_N * logp_N
