"""Algorithms by the ``kind`` of their configuration."""

from collections.abc import Callable
from typing import Any

from axiomrm.policy_opt.algorithms.base import Algorithm
from axiomrm.policy_opt.algorithms.best_of_k import BestOfK
from axiomrm.policy_opt.algorithms.gigpo import GiGPO
from axiomrm.policy_opt.algorithms.grpo import GRPO
from axiomrm.policy_opt.algorithms.ppo import PPO
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.algorithms.rloo import RLOO
from axiomrm.policy_opt.config import AlgorithmConfig

# Any: each constructor takes its own configuration class; ``kind`` picks the right one.
ALGORITHMS: dict[str, Callable[[Any], Algorithm]] = {
    "process_replay": ProcessReplay,
    "grpo": GRPO,
    "rloo": RLOO,
    "gigpo": GiGPO,
    "ppo": PPO,
    "best_of_k": BestOfK,
}


def build_algorithm(config: AlgorithmConfig) -> Algorithm:
    """The algorithm of a configuration."""
    return ALGORITHMS[config.kind](config)
