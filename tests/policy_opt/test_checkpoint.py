"""What may lie in a training folder, and who may work there."""

import json
import logging
import math
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


SPLITTER = "a\u2028b\x85c"
"""Line ends to str.splitlines, not to JSON."""


def test_a_run_whose_metrics_have_line_ends_in_their_names_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [{"iteration": i, SPLITTER: None if i else 0.5} for i in range(3)]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    path.write_text("".join(lines) + '{"iteration": 3, "ü', encoding="utf-8")
    path.write_bytes(path.read_bytes()[:-1])  # a kill within a character, of an iteration that will run again
    kept = checkpoint.kept_rows(path, 2)
    assert kept[0] == {"iteration": 0, SPLITTER: 0.5}
    assert kept[1]["iteration"] == 1 and math.isnan(kept[1][SPLITTER])
    assert path.read_text(encoding="utf-8") == "".join(lines[:2])


def test_metrics_that_cannot_be_read_stay_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"iteration": 0}\n{"iterat\n{"iteration": 2}\n')
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"metrics\.jsonl:2: not a row of metrics"):
        checkpoint.kept_rows(path, 3)
    assert path.read_bytes() == before


def test_the_hash_of_tasks_sees_their_order_and_content() -> None:
    a, b = Task(id="a"), Task(id="b")
    hashes = {checkpoint.tasks_hash(t) for t in ([a, b], [b, a], [a], [a, Task(id="b", payload={"x": 1})])}
    assert len(hashes) == 4 and checkpoint.tasks_hash([a, b]) in hashes
