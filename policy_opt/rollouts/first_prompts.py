"""Rollouts that cannot begin, because their first prompt leaves no room for a turn."""

import logging
from collections.abc import Sequence
from typing import NamedTuple

from axiomrm.errors import ConfigError

log = logging.getLogger(__name__)


class TooLong(NamedTuple):
    """One such rollout."""

    task: str
    """Its id."""
    tokens: int
    """Of its first prompt."""


def check_first_prompts(too_long: Sequence[TooLong], rollouts: int, limit: int) -> None:
    """Name tasks whose first prompt is too long in the log.

    Args:
        too_long: rollouts that could not begin.
        rollouts: how many there were in all.
        limit: ``max_episode_tokens``.

    Raises:
        ConfigError: none of the rollouts could begin.
    """
    longest = {found.task: found for found in sorted(too_long, key=lambda found: found.tokens)}
    told = [
        f"task {task!r}: its first prompt has {found.tokens} tokens, and rollout.max_episode_tokens={limit} "
        "leaves no room for a turn"
        for task, found in longest.items()
    ]
    remedy = "raise the limit, as far as the model's positions go, or shorten the prompt"
    if told and len(too_long) == rollouts:
        raise ConfigError(f"none of {rollouts} rollouts can begin: {told[-1]}; {remedy}")
    for line in told:
        log.warning("%s, so its rollouts cannot begin; %s", line, remedy)
