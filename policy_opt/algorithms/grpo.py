"""Group-relative policy optimisation (arXiv:2402.03300) on the trajectory's return: the outcome-only control.

``A = (R - mean of the group) / (std + 1e-4)`` (Bessel-corrected, as TRL; ``scale="none"`` is Dr. GRPO,
arXiv:2503.20783) on every action token of the trajectory, PPO's clipped surrogate against the sampler's own
log-probs, ``passes`` (mu) optimizer passes over each batch. ``reward="summed"`` adds the turn rewards to R.

Deviations, numbered: (1) old log-probs are the sampler's, never recomputed; (2) KL is the trainer's
importance-weighted reverse-KL term, the same for every arm, not a k3 loss; (3) a trajectory without a return,
or alone with one in its group, is not drawn (TRL keeps it with advantage 0).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from axiomrm.policy_opt.advantages import zero_share
from axiomrm.policy_opt.algorithms.base import LossParts, OnPolicy, unmasked
from axiomrm.policy_opt.config import GRPOConfig
from axiomrm.policy_opt.losses import clipped_surrogate
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.step_returns import episode_return, mean_action_tokens, trainable

FloatArray = NDArray[np.float64]
STD_FLOOR = 1e-4


def grpo_advantages(returns: Sequence[float], groups: Sequence[str], *, scale: str = "group") -> FloatArray:
    """Return minus group mean (self included), over the group's std unless ``scale="none"``.

    Returns:
        One a return; NaN where the return is missing or alone in its group.
    """
    values = np.asarray(returns, dtype=np.float64)
    out = np.full(len(values), np.nan)
    for group in set(groups):
        rows = [i for i, g in enumerate(groups) if g == group and not np.isnan(values[i])]
        if len(rows) > 1:
            centred = values[rows] - values[rows].mean()
            out[rows] = centred / (values[rows].std(ddof=1) + STD_FLOOR) if scale == "group" else centred
    return out


class GRPO(OnPolicy):
    """See the module."""

    uses_kl = True
    needs_reference = True

    def __init__(self, config: GRPOConfig) -> None:
        super().__init__(config.passes, config.minibatches, config.aggregation)
        self.config = config

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Advantages of this batch; nothing outlives the iteration."""
        records = trainable(fresh)
        returns = [episode_return(record, self.config.reward) for record in records]
        values = grpo_advantages(returns, [record.group_id for record in records], scale=self.config.scale)
        self._steps = drawn_with(records, values)
        self._constant = mean_action_tokens(records)
        return {
            "advantage/missing_share": float(np.isnan(values).mean()) if len(values) else float("nan"),
            "advantage/zero_share": zero_share(values),
        }

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """Clipped surrogate a token."""
        return token_surrogate(logp_N, batch, self.config.clip_low, self.config.clip_high)


def drawn_with(
    records: Sequence[TrajectoryRecord], advantages: Sequence[float] | FloatArray
) -> list[DrawnStep]:
    """Every step of a trajectory with the trajectory's advantage; NaN = not drawn."""
    return [
        DrawnStep(record, step, float(value))
        for record, value in zip(records, advantages, strict=True)
        if not np.isnan(value)
        for step in record.steps
    ]


def token_surrogate(logp_N: Tensor, batch: TokenBatch, clip_low: float, clip_high: float) -> LossParts:
    """PPO's clipped ratio loss of each token with its step's advantage."""
    loss_N = clipped_surrogate(
        logp_N,
        batch.behaviour_N,
        batch.advantage_S[batch.step_N],
        clip_low=clip_low,
        clip_high=clip_high,
    )
    return unmasked(loss_N, logp_N, batch)
