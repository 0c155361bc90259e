"""When the rest of an iteration's re-use is skipped (POLICY.md section 9)."""

import math
from collections.abc import Sequence

import numpy as np

from axiomrm.policy_opt.update import UpdateStats

KL = 3.0
"""Times the KL target that the KL to the start on fresh tokens may reach."""
ESS = 0.2
"""Least effective share of the drawn steps after correction."""
GRADIENT = 5.0
"""Times the median norm of the last gradients that a gradient may have."""
KNOWN = 10
"""Gradients from which on their median counts."""


def moved_too_far(stats: UpdateStats, grad_norms: Sequence[float], kl_target: float) -> bool:
    """Whether no rollout may be used again in this iteration after a pass that looked like this.

    Args:
        stats: of the pass.
        grad_norms: norms of the passes before it.
        kl_target: nats a token.
    """
    usual = float(np.median(grad_norms)) if len(grad_norms) >= KNOWN else math.inf
    return stats.fresh_kl > KL * kl_target or stats.ess_frac < ESS or stats.grad_norm > GRADIENT * usual
