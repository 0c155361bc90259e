"""Facts of a task as the data libraries hand them on: absent keys come as ``None``."""

from pathlib import Path

import pytest

from axiomrm.cli import main
from axiomrm.data.openai_chat import to_trajectory
from axiomrm.errors import DataError
from axiomrm.rubrics import Rubric
from axiomrm.rubrics.starter import starter


def rubric(folder: Path, text: str) -> Rubric:
    (folder / "mine.yaml").write_text(text)
    return Rubric.load(folder / "mine.yaml")


def test_a_null_feature_takes_its_default(tmp_path: Path) -> None:
    mine = rubric(tmp_path, starter("mine"))
    assert mine.bind({"urgent": None}).features == mine.bind({}).features == {"urgent": False}


def test_without_a_default_it_is_said_whether_it_is_null_or_absent(tmp_path: Path) -> None:
    mine = rubric(tmp_path, starter("mine").replace("default: false", ""))
    with pytest.raises(
        DataError, match="feature 'urgent': found None, and it has no default; accepted: true"
    ):
        mine.bind({"urgent": None})
    with pytest.raises(DataError, match="feature 'urgent' is missing and has no default; accepted: true"):
        mine.bind({})


def test_a_task_whose_absent_keys_are_null_is_read() -> None:
    task = {"id": "t", "type": None, "features": None, "reference": None, "payload": None}
    made = to_trajectory({"messages": [{"role": "user", "content": "hi"}], "task": task}).task
    assert (made.id, made.type, made.features, made.payload) == ("t", "", {}, {})


def test_a_folder_is_called_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.yaml").mkdir()
    (tmp_path / "some").mkdir()
    for name in ("all.yaml", "some", "./some"):
        with pytest.raises(DataError, match="a folder; name the rubrics in it"):
            Rubric.load(name)
    assert main(["rubric", "lint", "all.yaml"]) == 2
