"""What the trainer asks of an algorithm: take in rollouts, plan minibatches, give a loss a token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from axiomrm.policy_opt.correction import StepRatios
from axiomrm.policy_opt.losses import Aggregation
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import TrajectoryRecord


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

    uses_kl: bool
    """Whether the trainer adds the KL term to the reference."""

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Take in the rollouts of ``version``; returns metrics."""
        ...

    def plan(self, version: int, rng: np.random.Generator) -> Iterator[Minibatch]:
        """Minibatches in order; drawn lazily, so that the trainer can stop reuse."""
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


@runtime_checkable
class Guardable(Protocol):
    """An algorithm that can go on without turn rewards once a monitor says that they are gamed."""

    def guard(self) -> None:
        """Give turn rewards no weight from now on, in replayed steps too."""
        ...


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
