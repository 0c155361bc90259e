"""What may lie in a training folder, and who may work there."""

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Task
from axiomrm.errors import ConfigError
from axiomrm.policy_opt import checkpoint
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.forgetting import forget_subject


def config(iterations: int) -> PolicyConfig:
    return PolicyConfig(
        iterations=iterations, tasks_per_iteration=1, group_size=2, rollout=RolloutConfig(max_turn_tokens=4)
    )


def test_a_folder_has_one_trainer_at_a_time(toy: Any, tmp_path: Path) -> None:
    first = toy.trainer(tmp_path, config(2))
    refused = rf"^{tmp_path}: another trainer works in this folder"

    def meanwhile(iteration: int, *_: Any) -> None:
        with pytest.raises(ConfigError, match=refused):
            toy.trainer(tmp_path, config(2)).run()
        if iteration:
            with pytest.raises(ConfigError, match=refused):
                forget_subject(tmp_path, "u0")

    first.on_iteration = meanwhile
    assert [row["iteration"] for row in first.run()] == [0, 1]
    assert len(toy.trainer(tmp_path, config(2)).run()) == 2  # and none is left behind


def test_a_copy_of_a_checkpoint_is_no_checkpoint_and_stays(toy: Any, tmp_path: Path) -> None:
    toy.trainer(tmp_path, config(1)).run()
    shutil.copytree(tmp_path / "checkpoint-1", tmp_path / "checkpoint-1-backup")
    (tmp_path / "checkpoint-notes").mkdir()
    assert len(toy.trainer(tmp_path, config(2)).run()) == 2
    left = sorted(path.name for path in tmp_path.glob("checkpoint*"))
    assert left == ["checkpoint-1-backup", "checkpoint-2", "checkpoint-notes"]


@pytest.mark.parametrize("name", ["tensors.pt", "state.json"])
@pytest.mark.parametrize("left", [0, 20])
def test_a_damaged_checkpoint_is_named(toy: Any, tmp_path: Path, name: str, left: int) -> None:
    toy.trainer(tmp_path, config(1)).run()
    file = tmp_path / "checkpoint-1" / name
    file.write_bytes(file.read_bytes()[:left])
    with pytest.raises(ConfigError, match=r"checkpoint-1: the checkpoint is damaged \(.*delete the folder"):
        toy.trainer(tmp_path, config(2)).run()


def test_lost_metrics_and_other_tasks_are_warned_of(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = toy.trainer(tmp_path, config(2))
    trainer.run()
    (tmp_path / "metrics.jsonl").unlink()
    again = toy.trainer(tmp_path, config(3))
    again.tasks = [Task(id="another", payload=trainer.tasks[0].payload)]
    with caplog.at_level(logging.WARNING):
        assert [row["iteration"] for row in again.run()] == [2]
    assert "holds 0 of the 2 iterations that the checkpoint has seen" in caplog.text
    assert "the tasks are not those of the run so far" in caplog.text


def test_the_hash_of_tasks_sees_their_order_and_content() -> None:
    a, b = Task(id="a"), Task(id="b")
    hashes = {checkpoint.tasks_hash(t) for t in ([a, b], [b, a], [a], [a, Task(id="b", payload={"x": 1})])}
    assert len(hashes) == 4 and checkpoint.tasks_hash([a, b]) in hashes
