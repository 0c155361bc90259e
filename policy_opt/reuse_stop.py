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


def moved_too_far(seen: Sequence[UpdateStats], grad_norms: Sequence[float], kl_target: float) -> bool:
    """Whether no rollout may be used again in this iteration after optimizer steps that looked like this.

    Args:
        seen: the whole first pass, or the last step of a later one: of several steps the median gradient
            counts, because a single small minibatch has a large one now and then.
        grad_norms: norms of the steps before these.
        kl_target: nats a token.
    """
    if not seen:
        return False
    whole = UpdateStats()
    for stats in seen:
        whole.add(stats)
    usual = float(np.median(grad_norms)) if len(grad_norms) >= KNOWN else math.inf
    norm = float(np.median([stats.grad_norm for stats in seen]))
    return whole.fresh_kl > KL * kl_target or whole.ess_frac < ESS or norm > GRADIENT * usual
