"""Loaders of the project's file schema, on small files of our own and, where they are, on the real sets."""

import json
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.human.files import data_folder, load_pairs, load_scores, load_trajectories
from axiomrm.errors import DataError

USER = {"role": "user", "content": "q"}
PAIR = {
    "id": "s/1",
    "set": "s",
    "group": "g",
    "kind": "pair",
    "context": [USER],
    "a": "x",
    "b": "y",
    "label": 1,
}
TRAJ = {"id": "t/1", "set": "t", "group": "7", "kind": "traj", "context": [USER], "label": 1}


def write(folder: Path, *rows: dict[str, Any]) -> None:
    (folder / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(("label", "meaning"), [(1, "a"), (2, "b"), (0, "tie")])
def test_a_pair_is_read_with_its_label(tmp_path: Path, label: int, meaning: str) -> None:
    write(tmp_path, {**PAIR, "label": label, "votes": [1, 2]})
    (pair,) = load_pairs("s", tmp_path)
    assert (pair.label, pair.a, pair.b, pair.group, pair.id) == (meaning, "x", "y", "g", "s/1")
    assert pair.metadata == {"set": "s", "votes": [1, 2]}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"label": 3}, "label"),
        ({"label": None}, "label"),
        ({"label": True}, "label"),
        ({"a": None}, "a"),
        ({"group": ""}, "group"),
        ({"kind": "traj"}, "kind"),
        ({"context": []}, "context"),
        ({"context": [{"role": "dialogue", "content": "x"}]}, "context[0].role"),
    ],
)
def test_a_bad_pair_is_rejected_and_its_neighbour_loads(
    tmp_path: Path, change: dict[str, Any], place: str
) -> None:
    write(tmp_path, {**PAIR, **change}, PAIR)
    result = load_pairs("s", tmp_path)
    assert len(result) == 1
    assert [(r.line, r.reason.split(":")[0]) for r in result.rejected] == [(1, place)]


@pytest.mark.parametrize(("label", "score"), [(1, 1.0), (0, 0.0)])
def test_the_label_of_a_trajectory_is_its_outcome(tmp_path: Path, label: int, score: float) -> None:
    write(tmp_path, {**TRAJ, "label": label})
    (one,) = load_trajectories("s", tmp_path)
    assert one.outcome is not None and one.outcome.score == score
    assert (one.id, one.task_id, one.group_id) == ("t/1", "7", "7")


def test_an_unchecked_trajectory_has_no_outcome(tmp_path: Path) -> None:
    write(tmp_path, {**TRAJ, "label": None}, {**TRAJ, "label": 2})
    result = load_trajectories("s", tmp_path)
    assert [t.outcome for t in result] == [None] and [r.line for r in result.rejected] == [2]


def test_scores_are_read_with_their_rater(tmp_path: Path) -> None:
    row = {"id": "s/1", "set": "s", "group": "g", "kind": "score", "context": [USER], "a": "x"}
    write(tmp_path, {**row, "scores": {"q": "3", "r": 0}, "rater": "7"}, {**row, "scores": {"q": None}}, row)
    result = load_scores("s", tmp_path)
    (one,) = result
    assert one.scores == {"q": 3.0, "r": 0.0} and (one.rater, one.group) == ("7", "g")
    assert [m.content for m in one.trajectory.messages] == ["q", "x"]
    assert [(r.line, r.reason.split(":")[0]) for r in result.rejected] == [(2, "scores.q"), (3, "scores")]


def test_not_applicable_is_no_score(tmp_path: Path) -> None:
    row = {"id": "s/1", "set": "llm_rubric", "group": "g", "kind": "score", "context": [USER]}
    write(tmp_path, {**row, "scores": {"Q1": "0", "Q2": "0", "Q3": "1"}})
    assert load_scores("s", tmp_path)[0].scores == {"Q1": None, "Q2": 0.0, "Q3": 1.0}


def test_a_dialogue_given_as_one_text_is_kept(tmp_path: Path) -> None:
    context = [{"role": "dialogue", "content": "hi\nho"}]
    write(
        tmp_path,
        {"id": "1", "set": "s", "group": "g", "kind": "score", "context": context, "scores": {"q": 1}},
    )
    (message,) = load_scores("s", tmp_path)[0].trajectory.messages
    assert (message.role, message.name, message.content) == ("user", "dialogue", "hi\nho")


def test_an_unknown_set_names_those_that_are_there(tmp_path: Path) -> None:
    write(tmp_path, PAIR)
    with pytest.raises(DataError, match=r"no data set 'x' .*there are: s"):
        load_pairs("x", tmp_path)


def test_a_missing_folder_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AXIOMRM_DATA", str(tmp_path / "absent"))
    with pytest.raises(DataError, match=r"AXIOMRM_DATA=.*absent"):
        data_folder()


def test_a_set_may_be_given_by_its_path(tmp_path: Path) -> None:
    write(tmp_path, PAIR)
    assert len(load_pairs(str(tmp_path / "s.jsonl"))) == 1


@pytest.fixture
def real_data() -> Path:
    try:
        return data_folder()
    except DataError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    ("name", "count"),
    [("hh_harmless", 1766), ("pandalm", 426), ("llmbar", 134), ("evalbias", 18), ("rmbench", 891)],
)
def test_the_real_pairs_load_whole(real_data: Path, name: str, count: int) -> None:
    result = load_pairs(name, real_data)
    assert len(result) == count and not result.rejected
    assert {p.label for p in result} <= {"a", "b", "tie"} and all(p.group for p in result)


@pytest.mark.parametrize(("name", "count"), [("llm_rubric", 86), ("usr_tc", 150)])
def test_the_real_scores_load_whole(real_data: Path, name: str, count: int) -> None:
    result = load_scores(name, real_data)
    assert len(result) == count and not result.rejected


def test_every_tool_result_of_the_real_agent_logs_finds_its_call(real_data: Path) -> None:
    result = load_trajectories("tau_air", real_data)
    assert len(result) == 56 and not result.rejected
    asked = [t.answered_call(i) for t in result for i, m in enumerate(t.messages) if m.role == "tool"]
    assert len(asked) > 300 and None not in asked
