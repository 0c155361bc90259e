"""Group-in-group policy optimisation (GiGPO, arXiv:2505.10978): episode groups and groups of equal states.

``A = A_E + omega * A_S``. Episode term: the trajectory's return against its task group. Step term: the
discounted return ``R_t = sum_{k>=t} gamma^(k-t) r_k`` against every step of the task group that was taken
in the same state (``info["state_key"]``), whichever trajectory or turn it belongs to; a step that is alone
with its state has step term 0. Both are ``(x - mean) / F`` with ``F = std + 1e-4`` (``scale="group"``) or 1
(``"none"``). Loss: PPO's clipped surrogate a token.

Deviations, numbered: (1) std is Bessel-corrected with TRL's 1e-4, as in our GRPO; (2) the episode term
counts each trajectory once, not once a step; (3) KL is the trainer's term, the same for every arm; (4) a
turn without a state key has step term 0; (5) a step with a missing term is not drawn.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from axiomrm.policy_opt.algorithms.base import LossParts, OnPolicy
from axiomrm.policy_opt.algorithms.grpo import grpo_advantages, token_surrogate
from axiomrm.policy_opt.config import GiGPOConfig
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.returns import return_to_go
from axiomrm.policy_opt.step_returns import EpisodeReward, episode_return, mean_action_tokens, trainable


def discounted_returns(record: TrajectoryRecord, reward: EpisodeReward, gamma: float) -> list[float]:
    """``R_t`` of each turn; the outcome is the last turn's reward, turn rewards count with ``summed``."""
    rewards = [step.r_local if reward == "summed" else 0.0 for step in record.steps]
    rewards[-1] += record.r_global
    return [float(value) for value in return_to_go(rewards, gamma=gamma)]


def step_advantages(
    returns: Sequence[float], states: Sequence[tuple[str, int] | None], *, scale: str = "group"
) -> list[float]:
    """Return against all steps taken in the same state of the same task group.

    Returns:
        One a step. 0 where nobody else was there, or where the state is not known; NaN where the return is
        missing.
    """
    names = [f"alone {i}" if state is None else repr(state) for i, state in enumerate(states)]
    values = grpo_advantages(returns, names, scale=scale)
    alone = np.isnan(values) & ~np.isnan(np.asarray(returns, dtype=np.float64))
    return [float(value) for value in np.where(alone, 0.0, values)]


class GiGPO(OnPolicy):
    """See the module."""

    uses_kl = True
    needs_reference = True

    def __init__(self, config: GiGPOConfig) -> None:
        super().__init__(config.passes, config.minibatches, config.aggregation)
        self.config = config

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Both terms of this batch; nothing outlives the iteration."""
        records = trainable(fresh)
        pairs = [(record, step) for record in records for step in record.steps]
        episode = self._episode_terms(records)
        step = self._step_terms(records)
        self._steps = []
        for (record, item), own in zip(pairs, step, strict=True):
            value = episode[record.traj_id] + self.config.omega * own
            if not np.isnan(value):
                self._steps.append(DrawnStep(record, item, value))
        self._constant = mean_action_tokens(records)
        known = [own for own in step if not np.isnan(own)]
        return {
            "advantage/missing_share": 1.0 - len(self._steps) / len(pairs) if pairs else float("nan"),
            "advantage/step_term_share": float(np.mean([v != 0 for v in known])) if known else float("nan"),
        }

    def _episode_terms(self, records: Sequence[TrajectoryRecord]) -> dict[str, float]:
        returns = [episode_return(record, self.config.reward) for record in records]
        values = grpo_advantages(returns, [record.group_id for record in records], scale=self.config.scale)
        return {record.traj_id: float(value) for record, value in zip(records, values, strict=True)}

    def _step_terms(self, records: Sequence[TrajectoryRecord]) -> list[float]:
        returns = [
            value for r in records for value in discounted_returns(r, self.config.reward, self.config.gamma)
        ]
        states = [_state(record, step) for record in records for step in record.steps]
        return step_advantages(returns, states, scale=self.config.scale)

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """Clipped surrogate a token."""
        return token_surrogate(logp_N, batch, self.config.clip_low, self.config.clip_high)


def _state(record: TrajectoryRecord, step: StepRecord) -> tuple[str, int] | None:
    return None if step.anchor is None else (record.group_id, step.anchor)
