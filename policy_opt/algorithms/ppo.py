"""Proximal policy optimisation (arXiv:1707.06347) with a value head on the policy's trunk, in token units.

An action is a token, an episode the trajectory's action tokens in order. Rewards stand on the last token of
their turn, the outcome on the last token of the trajectory; ``kl_place="reward"`` takes ``kl_coefficient *
(log mu - log ref)`` off every token's reward. Advantages: GAE (arXiv:1506.02438), whitened over the batch.
Loss a token: ``-min(rho A, clip(rho) A) + value_coefficient * (V - target)^2``. Both GAE and the loss are
TorchRL 0.14's ``GAE`` and ``ClipPPOLoss``.

Deviations, numbered: (1) TorchRL's actor gets the log-probs of the sampled ids instead of logits over the
vocabulary, which are never held; (2) mu is the sampler's log-probs, never recomputed; (3) for the first
``value_only_iterations`` only the head learns and the trunk gets no gradient from it; (4) a trajectory
without a return is not drawn; (5) an episode cut by a limit ends there, its tail is not bootstrapped.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axiomrm.errors import DataError
from axiomrm.policy_opt.algorithms.base import LossParts, OnPolicy, unmasked
from axiomrm.policy_opt.algorithms.torchrl_ppo import clipped_loss, generalised_advantages
from axiomrm.policy_opt.config import PPOConfig
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord, check_tokens
from axiomrm.policy_opt.step_returns import episode_return, scorable

FloatArray = NDArray[np.float32]
StepKey = tuple[str, int]


class ValueHead(nn.Module):
    """A linear value of the state before a token; starts at 0 everywhere."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, 1)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.detached = False
        """The trunk gets no gradient from the value loss."""

    def forward(self, hidden_NH: Tensor) -> Tensor:
        """``(N, hidden)`` to ``(N,)``, fp32."""
        states = hidden_NH.detach() if self.detached else hidden_NH
        value_N1: Tensor = self.linear(states.float())
        return value_N1.squeeze(-1)


def token_rewards(record: TrajectoryRecord, *, summed: bool, kl_coefficient: float) -> FloatArray:
    """One reward an action token of the trajectory, in order."""
    parts = []
    for step in record.steps:
        reward = np.zeros(step.n_tokens, dtype=np.float64)
        if step.ref_logprobs is not None and kl_coefficient:
            reward -= kl_coefficient * (step.behaviour_logprobs.astype(np.float64) - step.ref_logprobs)
        if summed:
            reward[-1] += step.r_local
        parts.append(reward)
    parts[-1][-1] += record.r_global
    return np.concatenate(parts).astype(np.float32)


class PPO(OnPolicy):
    """See the module."""

    needs_reference = True

    def __init__(self, config: PPOConfig) -> None:
        super().__init__(config.passes, config.minibatches, "token")
        self.config = config
        self.critic = ValueHead(1)
        """Of no use until ``open_critic`` knows the model's width."""
        self._values: Mapping[StepKey, FloatArray] = {}
        self._advantages: dict[StepKey, FloatArray] = {}
        self._targets: dict[StepKey, FloatArray] = {}

    @property
    def critic_learning_rate(self) -> float:
        """Step size of the value head."""
        return self.config.value_learning_rate

    def open_critic(self, hidden_size: int) -> None:
        """A fresh value head."""
        self.critic = ValueHead(hidden_size)

    @property
    def uses_kl(self) -> bool:
        """KL in the loss, once the policy moves."""
        return self.config.kl_place == "loss" and not self.critic.detached

    def take_values(self, values: Mapping[StepKey, FloatArray]) -> None:
        """Values of the current weights, of the batch that ``ingest`` gets next."""
        self._values = values

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Advantages and value targets a token; nothing outlives the iteration.

        Raises:
            DataError: no value is known for a step.
        """
        self.critic.detached = version < self.config.value_only_iterations
        records = [r for r in fresh if scorable(r) and not np.isnan(episode_return(r, self.config.reward))]
        for record in records:
            check_tokens(record)
        self._steps = [DrawnStep(record, step, 0.0) for record in records for step in record.steps]
        if not records:
            return {}
        values = [np.concatenate([self._value(step) for step in record.steps]) for record in records]
        rewards = [self._rewards(record) for record in records]
        advantages, targets = generalised_advantages(
            values, rewards, gamma=self.config.gamma, lam=self.config.lam
        )
        whole = np.concatenate(advantages)
        scaled = [(a - whole.mean()) / (whole.std() + 1e-8) for a in advantages]
        self._advantages, self._targets = by_step(records, scaled), by_step(records, targets)
        return self._metrics(np.concatenate(values), np.concatenate(targets))

    def _value(self, step: StepRecord) -> FloatArray:
        try:
            return self._values[(step.traj_id, step.turn)]
        except KeyError:
            raise DataError(
                f"trajectory {step.traj_id!r}, turn {step.turn}: no value; take_values comes before ingest"
            ) from None

    def _rewards(self, record: TrajectoryRecord) -> FloatArray:
        coefficient = self.config.kl_coefficient if self.config.kl_place == "reward" else 0.0
        return token_rewards(record, summed=self.config.reward == "summed", kl_coefficient=coefficient)

    def _metrics(self, values_N: FloatArray, targets_N: FloatArray) -> dict[str, float]:
        spread = float(targets_N.var())
        return {
            "critic/value_mean": float(values_N.mean()),
            "critic/target_mean": float(targets_N.mean()),
            "critic/explained_variance": 1.0 - float((targets_N - values_N).var()) / spread
            if spread > 0
            else float("nan"),
        }

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """Clipped objective and value loss a token; the value loss alone while only the head learns."""
        if batch.value_N is None:
            raise DataError("ppo: the update gave no values; the algorithm needs its critic in the update")
        keys = [(item.step.traj_id, item.step.turn) for item in batch.steps]
        policy_N, value_N = clipped_loss(
            logp_N,
            batch.behaviour_N,
            batch.value_N,
            torch.from_numpy(np.concatenate([self._advantages[key] for key in keys])),
            torch.from_numpy(np.concatenate([self._targets[key] for key in keys])),
            clip=self.config.clip,
            value_coefficient=self.config.value_coefficient,
        )
        loss_N = value_N if self.critic.detached else policy_N + value_N
        return unmasked(loss_N, logp_N, batch)

    def finish(self, version: int) -> dict[str, float]:
        """Drop the batch."""
        self._values, self._advantages, self._targets = {}, {}, {}
        return super().finish(version)

    def state_dict(self) -> dict[str, Any]:
        """The head's weights; its moments are in the trainer's optimizer."""
        return {name: tensor.tolist() for name, tensor in self.critic.state_dict().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        tensors = {name: torch.tensor(value) for name, value in state.items()}
        if (
            tensors["linear.weight"].shape != self.critic.linear.weight.shape
        ):  # a checkpoint read without a model
            self.critic = ValueHead(tensors["linear.weight"].shape[1])
        self.critic.load_state_dict(tensors)


def by_step(records: Sequence[TrajectoryRecord], rows: Sequence[FloatArray]) -> dict[StepKey, FloatArray]:
    """Cut one array a trajectory into one a step."""
    found: dict[StepKey, FloatArray] = {}
    for record, row in zip(records, rows, strict=True):
        sizes = np.cumsum([step.n_tokens for step in record.steps])[:-1]
        for step, part in zip(record.steps, np.split(row, sizes), strict=True):
            found[(step.traj_id, step.turn)] = part.astype(np.float32)
    return found
