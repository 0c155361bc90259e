"""Every rollout of a run in one file: to audit, to label, to read."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.writing import atomic_file, json_line, to_record
from axiomrm.policy_opt.rewards.base import Episode, rewarded_trajectory

TAIL = 1 << 16
"""Bytes that are read to find the last line; a longer one is found by reading all."""


def write_rollouts(path: Path, iteration: int, episodes: Sequence[Episode]) -> None:
    """Append an iteration's rollouts, with their turn rewards, to a file that `Trajectory.read` gives back.

    The iteration is ``metadata["policy_version"]``. What stands there for this iteration or a later one, and
    a line that a kill cut, is dropped first: such an iteration runs again.
    """
    append(path, iteration, [rewarded_trajectory(episode) for episode in episodes])


def append(path: Path, iteration: int, trajectories: Sequence[Trajectory]) -> None:
    """As `write_rollouts`, of trajectories as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not _ends_before(path, iteration):
        _cut(path, iteration)
    lines = [json_line(to_record(trajectory), str(path)) for trajectory in trajectories]
    with path.open("a", encoding="utf-8") as handle:
        handle.writelines(lines)
        handle.flush()
        os.fsync(handle.fileno())


def _ends_before(path: Path, iteration: int) -> bool:
    """Whether the file ends with a whole line of an earlier iteration, or is not there."""
    if not path.exists():
        return True
    with path.open("rb") as handle:
        handle.seek(max(0, path.stat().st_size - TAIL))
        last = handle.read().splitlines(keepends=True)[-1:]
    return _is_before(last[0], iteration) if last else True


def _cut(path: Path, iteration: int) -> None:
    with path.open("rb") as handle, atomic_file(path) as kept:
        kept.writelines(line.decode("utf-8") for line in handle if _is_before(line, iteration))


def _is_before(line: bytes, iteration: int) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        return bool(json.loads(line)["metadata"]["policy_version"] < iteration)
    except ValueError:  # the end of a line longer than ``TAIL``
        return False
