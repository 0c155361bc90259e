"""REINFORCE with a leave-one-out baseline (RLOO, arXiv:2402.14740) on the trajectory's return.

``A_i = R_i - mean of the other R_j of the group``; loss ``-mean_i min(rho_i A_i, clip(rho_i) A_i)`` with
the ratio ``rho_i = exp(sum_k log pi - log mu)`` of the whole sequence, as TRL 1.16 has it. With
``kl_place="reward"`` the return is ``R_i - kl_coefficient * sum_k (log mu - log ref)``, as in the paper;
with ``"loss"`` KL is the trainer's term, the same for every arm.

Deviations, numbered: (1) mu is the sampler's log-probs, never recomputed; (2) where a rewritten history cut
a trajectory into segments, each segment is a sequence; (3) a trajectory without a return, or alone with one
in its group, is not drawn (TRL keeps it with advantage 0).
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from axiomrm.policy_opt.advantages import group_advantages, zero_share
from axiomrm.policy_opt.algorithms.base import LossParts, OnPolicy, unmasked
from axiomrm.policy_opt.algorithms.grpo import drawn_with
from axiomrm.policy_opt.config import RLOOConfig
from axiomrm.policy_opt.packing import TokenBatch
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.replay.correction import LOG_RATIO_LIMIT
from axiomrm.policy_opt.step_returns import episode_return, trainable


def kl_of_sequence(record: TrajectoryRecord) -> float:
    """``sum_k log mu - log ref`` over the trajectory's action tokens (k1); 0 without a reference."""
    gaps = [
        float((step.behaviour_logprobs.astype(np.float64) - step.ref_logprobs).sum())
        for step in record.steps
        if step.ref_logprobs is not None
    ]
    return sum(gaps)


def sequence_surrogate(
    logp_N: Tensor, old_N: Tensor, advantage_N: Tensor, row_N: Tensor, *, clip: float
) -> Tensor:
    """Clipped ratio loss of each sequence, spread evenly over its tokens: their sum is the sequence's loss.

    Args:
        logp_N: current log-probs, with gradient.
        old_N: the sampler's.
        advantage_N: one value a sequence, on each of its tokens.
        row_N: the sequence of each token, in ``[0, rows)``.
        clip: greatest relative change of the ratio that still earns anything.
    """
    rows = int(row_N.max()) + 1
    zeros_R = torch.zeros(rows, dtype=logp_N.dtype, device=logp_N.device)
    gap_R = zeros_R.index_add(0, row_N, logp_N - old_N).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    length_R = zeros_R.index_add(0, row_N, torch.ones_like(logp_N))
    ratio_N = gap_R.exp()[row_N]
    clipped_N = ratio_N.clamp(1 - clip, 1 + clip)
    return -torch.min(ratio_N * advantage_N, clipped_N * advantage_N) / length_R[row_N]


class RLOO(OnPolicy):
    """See the module."""

    needs_reference = True

    def __init__(self, config: RLOOConfig) -> None:
        super().__init__(config.passes, config.minibatches, "constant")
        self.config = config
        self.uses_kl = config.kl_place == "loss"

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Advantages of this batch; nothing outlives the iteration."""
        records = trainable(fresh)
        returns = [self._return(record) for record in records]
        values = group_advantages(returns, [record.group_id for record in records])
        self._steps = drawn_with(records, values)
        return {
            "advantage/missing_share": float(np.isnan(values).mean()) if len(values) else float("nan"),
            "advantage/zero_share": zero_share(values),
        }

    def _return(self, record: TrajectoryRecord) -> float:
        value = episode_return(record, self.config.reward)
        return value if self.uses_kl else value - self.config.kl_coefficient * kl_of_sequence(record)

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """Clipped surrogate a sequence."""
        loss_N = sequence_surrogate(
            logp_N,
            batch.behaviour_N,
            batch.advantage_S[batch.step_N],
            batch.row_N,
            clip=self.config.clip,
        )
        return unmasked(loss_N, logp_N, batch)
