"""A rater's labels of several texts of one rollout."""

import json
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.policy_opt.rewards.labels import LabelReward


def talk(text: str) -> Trajectory:
    return Trajectory(id="a", messages=(Message(role="assistant", content=text),))


OLD, NEW = talk("old").content_hash, talk("new").content_hash


def read(folder: Path, *labels: tuple[float, str]) -> LabelReward:
    """One rater's labels of one turn: reward and the text's hash, empty = none."""
    row = {"id": "a", "turn": 0, "source": "human", "rater": "r1"}
    rows: list[dict[str, Any]] = [
        {**row, "reward": r, **({"content_hash": h} if h else {})} for r, h in labels
    ]
    (folder / "l.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return LabelReward.read(folder / "l.jsonl")


def test_a_rater_may_label_each_text_of_a_rollout(tmp_path: Path) -> None:
    labels = read(tmp_path, (0.0, OLD), (1.0, NEW))
    assert labels.rejected == []
    assert [labels([talk(text)])[0].turns for text in ("old", "new")] == [[0.0], [1.0]]


@pytest.mark.parametrize("hashes", [(NEW, NEW), ("", NEW), (NEW, ""), ("", "")])
def test_two_labels_of_one_rater_for_one_text_are_one_too_many(
    tmp_path: Path, hashes: tuple[str, str]
) -> None:
    labels = read(tmp_path, (0.25, hashes[0]), (1.0, hashes[1]))
    assert "rater 'r1' has labelled this unit on line 1" in labels.rejected[0].reason
    assert labels([talk("new")])[0].turns == [0.25], "the first one stands"
