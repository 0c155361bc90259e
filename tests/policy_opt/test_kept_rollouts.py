"""The file of a run's rollouts: complete, once each, readable by audit."""

from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Trajectory
from axiomrm.policy_opt.audit.rollouts import audit
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.monitoring import kept_rollouts
from axiomrm.policy_opt.monitoring.kept_rollouts import write_rollouts


@pytest.fixture
def iterations(toy: Any, tmp_path: Path) -> list[Any]:
    """Rollouts of three iterations."""
    found: list[Any] = []
    settings = PolicyConfig(
        iterations=3, tasks_per_iteration=2, group_size=3, rollout=RolloutConfig(max_turn_tokens=4)
    )
    trainer = toy.trainer(tmp_path / "training", settings)
    trainer.on_iteration = lambda _, __, episodes: found.append(episodes)
    trainer.run()
    return found


def ids(path: Path) -> list[str]:
    read = Trajectory.read(path)
    assert not read.rejected
    return [trajectory.id for trajectory in read]


@pytest.mark.parametrize("tail", [50, 1 << 16])
def test_each_rollout_stands_once_whatever_a_kill_left(
    iterations: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tail: int
) -> None:
    monkeypatch.setattr(kept_rollouts, "TAIL", tail)
    path = tmp_path / "arm" / "rollouts.jsonl"
    for number in (0, 1, 1, 2):  # a kill before the checkpoint made 1 run again
        write_rollouts(path, number, iterations[number])
    expected = [episode.trajectory.id for episodes in iterations for episode in episodes]
    assert ids(path) == expected
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])  # a kill within the last line
    write_rollouts(path, 2, iterations[2])
    assert path.read_bytes() == whole
    write_rollouts(path, 0, iterations[0])  # begun anew
    assert ids(path) == expected[:6]


def test_an_earlier_iterations_lines_are_not_touched(iterations: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    write_rollouts(path, 0, iterations[0])
    before = path.stat()
    write_rollouts(path, 1, iterations[1])
    assert path.stat().st_ino == before.st_ino  # appended, not written again


def test_audit_reads_them_with_their_rewards_and_groups(iterations: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "rollouts.jsonl"
    for number, episodes in enumerate(iterations):
        write_rollouts(path, number, episodes)
    read = list(Trajectory.read(path))
    rewards = [[step.r_local for step in e.record.steps] for episodes in iterations for e in episodes]
    assert [list(trajectory.turn_rewards or ()) for trajectory in read] == rewards
    assert audit(read, None).rollouts == 18
