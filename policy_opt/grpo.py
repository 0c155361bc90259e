"""Group-relative policy optimisation (arXiv:2402.03300) on the trajectory's return: the outcome-only control.

``A = (R - mean of the group) / (std + 1e-4)`` (Bessel-corrected, as TRL) on every action token of the
trajectory, PPO's clipped surrogate against the sampler's own log-probs, ``passes`` optimizer passes over
each batch.

Deviations, numbered: (1) old log-probs are the sampler's, never recomputed; (2) KL is the trainer's
importance-weighted reverse-KL term, the same for every arm, not a k3 loss.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiomrm.policy_opt.algorithm import LossParts, Minibatch, split_by_trajectory
from axiomrm.policy_opt.config import GRPOConfig
from axiomrm.policy_opt.correction import step_ratios
from axiomrm.policy_opt.losses import clipped_surrogate
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import TrajectoryRecord, check_tokens
from axiomrm.policy_opt.step_returns import scorable

STD_FLOOR = 1e-4


def grpo_advantages(
    returns: Sequence[float], groups: Sequence[str], *, scale: str = "group"
) -> np.ndarray[Any, np.dtype[np.float64]]:
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


class GRPO:
    """See the module."""

    uses_kl = True

    def __init__(self, config: GRPOConfig) -> None:
        self.config = config
        self._steps: list[DrawnStep] = []
        self._tokens = 1.0

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Advantages of this batch; nothing outlives the iteration."""
        records = [record for record in fresh if scorable(record)]
        for record in records:
            check_tokens(record)
        returns = [self._return(record) for record in records]
        values = grpo_advantages(returns, [record.group_id for record in records], scale=self.config.scale)
        self._steps = [
            DrawnStep(record, step, float(value))
            for record, value in zip(records, values, strict=True)
            if not np.isnan(value)
            for step in record.steps
        ]
        self._tokens = float(np.mean([record.n_action_tokens for record in records])) if records else 1.0
        return {
            "advantage/missing_share": float(np.isnan(values).mean()) if len(values) else float("nan"),
            "advantage/zero_share": float((values == 0.0).mean()) if len(values) else float("nan"),
        }

    def _return(self, record: TrajectoryRecord) -> float:
        if self.config.reward == "outcome":
            return record.r_global
        return record.r_global + sum(step.r_local for step in record.steps)

    def plan(self, version: int, rng: np.random.Generator) -> Iterator[Minibatch]:
        """``passes`` passes over the fresh batch."""
        for number in range(self.config.passes):
            for chunk in split_by_trajectory(self._steps, self.config.minibatches, rng):
                for item in chunk:
                    item.step.uses += 1
                yield Minibatch(chunk, number > 0, self.config.aggregation, self._tokens)

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """Clipped surrogate a token."""
        ratios = step_ratios(logp_N, batch.behaviour_N, batch.step_N, len(batch.steps))
        loss_N = clipped_surrogate(
            logp_N,
            batch.behaviour_N,
            batch.advantage_S[batch.step_N],
            clip_low=self.config.clip_low,
            clip_high=self.config.clip_high,
        )
        keep_S = torch.ones_like(batch.advantage_S, dtype=torch.bool)
        return LossParts(loss_N, keep_S, torch.ones_like(batch.advantage_S), ratios)

    def finish(self, version: int) -> dict[str, float]:
        """Drop the batch."""
        self._steps = []
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Nothing outlives an iteration."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing outlives an iteration."""
