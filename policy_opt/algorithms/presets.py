"""Algorithms by the name that a user types: a configuration each."""

from axiomrm.policy_opt.config import (
    AlgorithmConfig,
    BestOfKConfig,
    GiGPOConfig,
    GRPOConfig,
    PPOConfig,
    ProcessReplayConfig,
    RLOOConfig,
)

PRESETS: dict[str, AlgorithmConfig] = {
    "process_replay": ProcessReplayConfig(),
    "process": ProcessReplayConfig(reuse=0),
    "process_only": ProcessReplayConfig(alpha=0.0, beta=1.0, calibrate_beta=False, reuse=0),
    "replay_only": ProcessReplayConfig(beta=0.0),
    "grpo": GRPOConfig(),
    "grpo_k": GRPOConfig(passes=4),
    "grpo_summed": GRPOConfig(reward="summed"),
    "rloo": RLOOConfig(),
    "gigpo": GiGPOConfig(),
    "ppo": PPOConfig(),
    "best_of_k": BestOfKConfig(),
}
"""``grpo_k`` has as many passes as ``process_replay``: the fair control for replay."""
