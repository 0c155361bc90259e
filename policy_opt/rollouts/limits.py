"""Limits of a rollout (a file of its own: configuration must not load torch)."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RolloutLimits:
    """Each limit ends an episode with its own ``ending``."""

    max_turns: int = 32
    max_turn_tokens: int = 64
    max_episode_tokens: int = 2048
    """Prompt and action tokens of one segment."""
    max_live: int = 64
    """Episodes in flight at once."""
