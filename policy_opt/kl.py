"""KL to the frozen reference: gradient, metric and controller (POLICY.md section 9).

The gradient is the reverse-KL one, importance-weighted with the ratio itself (the taper depends on the sign
of the advantage, KL must not). k3 is a metric only: as a loss its gradient is that of KL(ref || policy),
and k1 as a loss has none in expectation (arXiv:2510.01555, arXiv:2512.21852).
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
RHO_CAP = 2.0


def k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """``log pi - log ref`` a token: unbiased, high variance, can be negative."""
    return (logp.float() - ref_logp.float()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """Half the squared log-ratio a token."""
    return 0.5 * k1(logp, ref_logp) ** 2


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """``ref/pi - 1 - log(ref/pi)`` a token: low variance, never negative."""
    log_ratio = -k1(logp, ref_logp)
    return torch.expm1(log_ratio) - log_ratio


def kl_surrogate(logp: Tensor, ref_logp: Tensor, rho: Tensor) -> Tensor:
    """A per-token loss whose gradient is the importance-weighted reverse-KL gradient.

    Args:
        logp: current log-probs, with gradient.
        ref_logp: log-probs of the reference.
        rho: ratio current / behaviour of the token's step, capped at 2 here.
    """
    weight = rho.detach().clamp(max=RHO_CAP) * k1(logp, ref_logp).detach()
    return weight * logp


@dataclass
class KLController:
    """Adapts the coefficient once an iteration towards a target in nats per *token*.

    A coefficient of 0 means no KL term: it is measured and stays 0. Any other is kept within the bounds from
    the first update on.
    """

    beta: float = 0.02
    target_nats_per_token: float = 0.1
    decay: float = 0.8
    lowest: float = 1e-4
    highest: float = 1.0
    ema: float = float("nan")
    at_clamp: int = 0
    """Iterations in a row at a bound."""

    def update(self, fresh_kl: float) -> None:
        """Take in the mean k3 over fresh action tokens; NaN (nothing fresh) changes nothing."""
        if fresh_kl != fresh_kl:
            return
        self.ema = fresh_kl if self.ema != self.ema else self.decay * self.ema + (1 - self.decay) * fresh_kl
        if self.beta == 0.0:
            return
        self.beta = min(max(self.beta * (1.0 + 0.1 * self.error), self.lowest), self.highest)
        self.at_clamp = self.at_clamp + 1 if self.beta in (self.lowest, self.highest) else 0

    @property
    def error(self) -> float:
        """How far the running KL is from its target, as a share of it within ±0.2; NaN before the first."""
        return (
            min(max(self.ema / self.target_nats_per_token - 1.0, -0.2), 0.2)
            if self.ema == self.ema
            else self.ema
        )

    def metrics(self) -> dict[str, float]:
        """For the log; the error is absent until it is known."""
        known = {"kl/error": self.error} if self.ema == self.ema else {}
        return {"kl/beta": self.beta, "kl/at_clamp": float(self.at_clamp), **known}

    def state_dict(self) -> dict[str, Any]:
        """Plain values for the checkpoint."""
        return {"beta": self.beta, "ema": self.ema, "at_clamp": self.at_clamp}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.beta, self.ema, self.at_clamp = state["beta"], state["ema"], state["at_clamp"]
