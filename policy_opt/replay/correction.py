"""Importance correction of replayed steps: taper and one-sided trust mask (POLICY.md section 7).

TOPR's taper (arXiv:2503.14286) with a mask that drops only samples that would push further in the direction
the policy has already gone; a two-sided gate would drop the ones that pull back. The step (turn) is the
sequence: its ratio is exact for the action given its state. Second-moment bound after M2PO
    (arXiv:2510.01161).

Deviations, numbered: (1) above 64 action tokens the ratio is per token, biased but robust; (2) the limits
widen for short actions, where a fixed 0.2 would be PPO's clip.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Correction = Literal["taper", "ratio", "none"]
LOG_RATIO_LIMIT = 20.0
TOKEN_LEVEL_ABOVE = 64


@dataclass(frozen=True)
class StepRatios:
    """Ratios of the current to the behaviour policy. ``_N`` action tokens, ``_S`` steps; no gradient."""

    rho_N: Tensor
    """The step's ratio on each of its tokens; the token's own above 64 action tokens."""
    rho_S: Tensor
    m1_S: Tensor
    """Mean log-ratio of the step's tokens."""
    m2_S: Tensor
    """Mean squared log-ratio."""
    length_S: Tensor


def step_ratios(logp_N: Tensor, behaviour_N: Tensor, step_N: Tensor, n_steps: int) -> StepRatios:
    """Ratios over action tokens only, log-ratios clamped at ±20, fp32.

    Args:
        logp_N: current log-probs of the sampled ids.
        behaviour_N: the sampler's log-probs at generation time.
        step_N: int64, which step a token belongs to, in ``[0, n_steps)``.
        n_steps: number of steps S; each has at least one token.
    """
    log_ratio_N = (logp_N.detach().float() - behaviour_N.float()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    zeros_S = torch.zeros(n_steps, device=log_ratio_N.device)
    length_S = zeros_S.index_add(0, step_N, torch.ones_like(log_ratio_N))
    total_S = zeros_S.index_add(0, step_N, log_ratio_N)
    square_S = zeros_S.index_add(0, step_N, log_ratio_N**2)
    rho_S = total_S.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    by_token_N = (length_S > TOKEN_LEVEL_ABOVE)[step_N]
    rho_N = torch.where(by_token_N, log_ratio_N.exp(), rho_S[step_N])
    return StepRatios(rho_N, rho_S, total_S / length_S, square_S / length_S, length_S)


def correction_weights(rho_N: Tensor, advantage_N: Tensor, kind: Correction) -> Tensor:
    """Weight of each token's policy-gradient term.

    ``taper``: 1 for A >= 0, min(rho, 1) for A < 0. ``ratio``: min(rho, 2) for A >= 0 instead. ``none``: 1.
    """
    if kind == "none":
        return torch.ones_like(rho_N)
    positive_N = torch.ones_like(rho_N) if kind == "taper" else rho_N.clamp(max=2.0)
    return torch.where(advantage_N >= 0, positive_N, rho_N.clamp(max=1.0))


def reweighted(behaviour_N: Tensor, alpha: float) -> Tensor:
    """``alpha * mu + 1 - alpha`` a token, mu its probability when it was sampled (arXiv:2505.12929).

    Args:
        behaviour_N: the sampler's log-probs.
        alpha: 0 weighs all tokens alike, 1 by their probability.
    """
    return alpha * behaviour_N.float().exp() + (1 - alpha)


def trust_mask(ratios: StepRatios, advantage_S: Tensor) -> Tensor:
    """True = the step stays. Drops only what would push further away from the behaviour policy."""
    n_S = ratios.length_S
    up_S = (0.4 / n_S.sqrt()).clamp(min=0.2)
    down_S = (0.7 / n_S.sqrt()).clamp(min=0.2)
    second_S = (0.5 / n_S).clamp(min=0.05)
    wide_S = ratios.m2_S > second_S
    too_high = (advantage_S > 0) & ((ratios.m1_S > up_S) | ((ratios.m1_S > 0) & wide_S))
    too_low = (advantage_S < 0) & ((ratios.m1_S < -down_S) | ((ratios.m1_S < 0) & wide_S))
    return ~(too_high | too_low)


def ess_fraction(weights: Tensor) -> float:
    """``(sum w)^2 / (N * sum w^2)`` in (0, 1]; NaN without weights."""
    if weights.numel() == 0:
        return float("nan")
    w = weights.double()
    return float(w.sum() ** 2 / (w.numel() * (w**2).sum().clamp(min=1e-12)))
