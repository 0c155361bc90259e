"""Rollouts that an environment's fault ended: not trained on, kept for a person to read."""

from collections.abc import Sequence
from pathlib import Path

from axiomrm.policy_opt.monitoring.kept_rollouts import append
from axiomrm.policy_opt.rewards.base import Episode

KEPT = 20
"""Rollouts an iteration; a fault that strikes all of them looks alike in each."""


def write_rejected_rollouts(path: Path, iteration: int, episodes: Sequence[Episode]) -> None:
    """Add an iteration's ``env_error`` episodes to a file that `Trajectory.read` gives back.

    The fault is the ``detail`` of the last of ``metadata["turns"]``, the iteration is
    ``metadata["policy_version"]``. What stood there for this iteration or a later one is replaced: a kill
    makes them run again. Without a rejected episode there is no file.
    """
    broken = [e.trajectory for e in episodes if e.record.ending == "env_error"][:KEPT]
    if broken or path.exists():
        append(path, iteration, broken)
