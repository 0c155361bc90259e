"""What the trainer asks of an algorithm: take in rollouts, plan minibatches, give a loss a token."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axiomrm.policy_opt.losses import Aggregation
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.replay.correction import StepRatios, step_ratios
from axiomrm.policy_opt.rewards.base import TurnJudge


@dataclass(frozen=True)
class Minibatch:
    """Steps of one optimizer step."""

    steps: Sequence[DrawnStep]
    reuse: bool
    """False: the first pass over fresh rollouts. Reuse may be stopped early, the first pass never."""
    aggregation: Aggregation
    constant: float = 1.0
    """C of the ``constant`` aggregation: action tokens a trajectory."""


@dataclass(frozen=True)
class LossParts:
    """An algorithm's answer for one micro-batch. ``_N`` tokens, ``_S`` steps."""

    loss_N: Tensor
    """Policy term with gradient, before mask and weights."""
    keep_S: Tensor
    """Bool; False removes the step's policy term, not its share of the denominator."""
    correction_S: Tensor
    """Mean importance weight of the step's tokens, no gradient; 1 where the algorithm has none."""
    ratios: StepRatios


class Algorithm(Protocol):
    """One file each; chosen by ``kind`` in ``ALGORITHMS``."""

    @property
    def uses_kl(self) -> bool:
        """Whether the trainer adds the KL term to the loss."""
        ...

    @property
    def needs_reference(self) -> bool:
        """Whether ``ingest`` or the KL term reads log-probs of the frozen reference."""
        ...

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Take in the rollouts of ``version``; returns metrics."""
        ...

    def plan(self, version: int, rng: np.random.Generator) -> Iterator[Minibatch]:
        """Minibatches in order; drawn lazily, so that the trainer can stop reuse, and counted once taken."""
        ...

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """The policy term of one micro-batch."""
        ...

    def finish(self, version: int) -> dict[str, float]:
        """After the last update of an iteration: evict; returns metrics."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next iteration needs, as plain JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        ...

    def forget(self, subject: str) -> int:
        """Consent withdrawn: drop the subject's trajectories; returns how many."""
        ...


@runtime_checkable
class Guardable(Protocol):
    """An algorithm that can go on without turn rewards once a monitor says that they are gamed."""

    def guard(self) -> None:
        """Give turn rewards no weight from now on, in replayed steps too."""
        ...


@runtime_checkable
class ActorCritic(Protocol):
    """An algorithm with a value head on the policy's trunk."""

    critic: nn.Module
    """``(N, hidden)`` states to ``(N,)`` values."""

    @property
    def critic_learning_rate(self) -> float:
        """The head's own step size."""
        ...

    def open_critic(self, hidden_size: int) -> None:
        """Make the value head; before the optimizer is."""
        ...

    def take_values(self, values: Mapping[tuple[str, int], NDArray[np.float32]]) -> None:
        """Values of the states before each action token, by trajectory and turn; before ``ingest``."""
        ...


@runtime_checkable
class Rescoring(Protocol):
    """An algorithm that asks a changed judge again about what it stored."""

    turn_judge: TurnJudge | None

    @property
    def keeps_transcripts(self) -> bool:
        """Whether ``TrajectoryRecord.transcript`` has to be filled."""
        ...


class OnPolicy:
    """An algorithm that keeps one batch for one iteration and passes over it a few times."""

    def __init__(self, passes: int, minibatches: int, aggregation: Aggregation) -> None:
        self._passes, self._minibatches, self._aggregation = passes, minibatches, aggregation
        self._steps: list[DrawnStep] = []
        self._constant = 1.0
        """Of the ``constant`` aggregation; ``ingest`` may set it."""

    def plan(self, version: int, rng: np.random.Generator) -> Iterator[Minibatch]:
        """Passes over the fresh batch, reshuffled each time; all but the first count as reuse."""
        for number in range(self._passes):
            for chunk in split_by_trajectory(self._steps, self._minibatches, rng):
                yield from counted(Minibatch(chunk, number > 0, self._aggregation, self._constant))

    def finish(self, version: int) -> dict[str, float]:
        """Drop the batch."""
        self._steps = []
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Nothing outlives an iteration."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing outlives an iteration."""

    def forget(self, subject: str) -> int:
        """Nothing outlives an iteration."""
        return 0


def counted(minibatch: Minibatch) -> Iterator[Minibatch]:
    """The minibatch; one more use of its steps when the next is asked for, so none where it was refused."""
    yield minibatch
    for item in minibatch.steps:
        item.step.uses += 1


def unmasked(loss_N: Tensor, logp_N: Tensor, batch: TokenBatch) -> LossParts:
    """The parts of a loss that drops no step and carries no importance weight of its own."""
    ratios = step_ratios(logp_N, batch.behaviour_N, batch.step_N, len(batch.steps))
    ones_S = torch.ones_like(batch.advantage_S)
    return LossParts(loss_N, ones_S.bool(), ones_S, ratios)


def split_by_trajectory(
    steps: Sequence[DrawnStep], parts: int, rng: np.random.Generator
) -> list[list[DrawnStep]]:
    """Shuffle whole trajectories into ``parts`` minibatches of like size; empty ones are left out."""
    by_trajectory: dict[str, list[DrawnStep]] = {}
    for item in steps:
        by_trajectory.setdefault(item.record.traj_id, []).append(item)
    names = list(by_trajectory)
    order = [names[i] for i in rng.permutation(len(names))]
    chunks = [order[part::parts] for part in range(parts)]
    return [[item for name in chunk for item in by_trajectory[name]] for chunk in chunks if chunk]
