"""What `axiomrm audit` makes of records that other programs wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.data.splits import group_of
from axiomrm.data.trajectory import Message, Outcome, Task, Trajectory
from axiomrm.errors import DataError
from axiomrm.policy_opt.audit.rollouts import audit
from axiomrm.policy_opt.audit.tools import lying_tools


def record(i: int, **more: Any) -> dict[str, Any]:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": f"text {i}"}]
    return {"id": str(i), "messages": talk, "outcome": i % 2, "turn_rewards": [i % 2], **more}


def run(folder: Path, records: list[dict[str, Any]], *options: str, capsys: Any) -> tuple[int, str, str]:
    path = folder / "r.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in records))
    code = main(["audit", str(path), *options])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def trajectory(name: str, **more: Any) -> Trajectory:
    talk = (Message(role="assistant", content=name),)
    return Trajectory(messages=talk, id=name, turn_rewards=(1.0,), **more)


def test_rollouts_of_one_task_are_known_by_the_tasks_own_id(tmp_path: Path, capsys: Any) -> None:
    rows = [record(i, task={"id": f"t{i // 4}"}) for i in range(100)]
    code, out, _ = run(tmp_path, rows, capsys=capsys)
    assert code == 0 and out.startswith("ok: 100 rollouts of 25 tasks")
    one, two = (trajectory(name, task=Task(id="t")) for name in "ab")
    assert group_of(one) == group_of(two) == "t"  # nor do splits tear them apart
    assert group_of(one.model_copy(update={"task_id": "T"})) == "T"
    assert group_of(one.model_copy(update={"task_id": "T", "group_id": "G"})) == "G"
    assert lying_tools([one, two]) == []


SOMEBODY_ELSES = [
    {"turns": 5}, {"turns": "five"}, {"turns": ["a"]}, {"turns": [["a"]]}, {"turns": {"n": 5}},
    {"reset": None}, {"reset": True}, {"reset": "2026-01-01"}, {"turns": None}, {"turns": [{"role": "user"}]},
    {"turn_missing": None}, {"turn_parts": None}, {"turn_parts": [None]}, {"turn_missing": [None]},
    {"turns": [None]}, {"turn_parts": []}, {"turn_parts": [{"step": None}]},
]  # fmt: skip


@pytest.mark.parametrize("metadata", SOMEBODY_ELSES, ids=json.dumps)
def test_metadata_of_other_programs_is_not_ours(
    tmp_path: Path, capsys: Any, metadata: dict[str, Any]
) -> None:
    rows = [record(i, group_id=str(i // 2)) for i in range(80)]
    plain = run(tmp_path, rows, "--json", capsys=capsys)
    rows[1]["metadata"] = metadata
    code, out, err = run(tmp_path, rows, "--json", capsys=capsys)
    items = {name: {**x, "variance_share": None} for name, x in json.loads(out)["items"].items()}
    assert (code, err) == (plain[0], plain[2]) and set(items) <= {"step"}
    assert json.loads(out) | {"items": {}} == json.loads(plain[1])


OURS = [
    ({"turn_missing": [3]}, "metadata.turn_missing[0]: expected text or null, found 3"),
    ({"turn_missing": "failed"}, "metadata.turn_missing: expected a list"),
    ({"turn_missing": [None, None]}, "metadata.turn_missing: 2 for 1 assistant messages"),
    (
        {"turn_parts": [{"step": "0.5"}]},
        "metadata.turn_parts[0].step: expected a number or null, found '0.5'",
    ),
    ({"turn_parts": [{"step": True}]}, "metadata.turn_parts[0].step: expected a number or null, found True"),
    ({"turn_parts": [3]}, "metadata.turn_parts[0]: expected an object or null, found 3"),
    ({"turn_parts": {"step": 1}}, "metadata.turn_parts: expected a list"),
    ({"turn_parts": [{}, {}]}, "metadata.turn_parts: 2 for 1 assistant messages"),
    ({"turns": [{"state_key": "s"}, "a"]}, "metadata.turns[1]: expected an object or null, found 'a'"),
]


@pytest.mark.parametrize(("metadata", "says"), OURS, ids=lambda x: x if isinstance(x, str) else "")
def test_a_wrong_value_of_ours_rejects_its_record_alone(
    tmp_path: Path, capsys: Any, metadata: dict[str, Any], says: str
) -> None:
    rows = [record(i, group_id=str(i // 2)) for i in range(80)]
    rows[1]["metadata"] = metadata
    code, out, err = run(tmp_path, rows, capsys=capsys)
    assert code == 1 or out.startswith("ok: 79 rollouts")
    assert "79 rollouts" in out and "1 records rejected" in err
    bad = json.loads((tmp_path / "r.rejected.jsonl").read_text())
    assert bad["line"] == 2 and says in bad["reason"]
    with pytest.raises(DataError, match="rollout 'x': metadata"):
        audit([trajectory("x", metadata=metadata)])


# --- what counts as solved -------------------------------------------------------------------------------


def marked(scale: float) -> list[dict[str, Any]]:
    """The outcome is 0, 1/4, 1/2 or 3/4 of a scale, and so is the reward."""
    return [
        record(i, group_id=str(i // 4)) | {"outcome": i % 4 / 4 * scale, "turn_rewards": [i % 4 / 4]}
        for i in range(100)
    ]


def test_outcomes_on_another_scale_are_said_and_have_their_own_threshold(tmp_path: Path, capsys: Any) -> None:
    code, out, _ = run(tmp_path, marked(100), capsys=capsys)
    assert code == 0 and "note: outcomes lie between 0 and 75" in out and "--solved" in out
    code, out, _ = run(tmp_path, marked(100), "--solved", "50", capsys=capsys)
    assert code == 0 and "50% solved (outcome at least 50)" in out and "note:" not in out
    assert "solved, but rewarded least (reward 0.50, outcome 50)" in out
    assert "failed, but rewarded most (reward 0.25, outcome 25)" in out
    code, out, _ = run(tmp_path, marked(1), "--solved", "0.75", "--json", capsys=capsys)
    found = json.loads(out)
    assert (found["success"], found["solved_at"], found["notes"]) == (0.25, 0.75, [])
    assert found["failures_among_best"] == 0.0


def test_that_no_outcome_reaches_the_threshold_is_said(tmp_path: Path, capsys: Any) -> None:
    _, out, _ = run(tmp_path, marked(0.9), capsys=capsys)
    assert "0% solved\n" in out and "note: no outcome reaches 1 (the highest is 0.675)" in out
    _, out, _ = run(tmp_path, marked(100), "--solved", "80", capsys=capsys)
    assert "note: no outcome reaches 80 (the highest is 75)" in out
    rows = [record(i, group_id=str(i // 2)) for i in range(80)]
    assert "note:" not in run(tmp_path, rows, capsys=capsys)[1]
    nothing = audit([trajectory("x", outcome=Outcome(score=None))])
    assert nothing.success is None and nothing.notes == ()


def test_a_threshold_is_a_finite_number(tmp_path: Path, capsys: Any) -> None:
    code, _, err = run(tmp_path, marked(1), "--solved", "nan", capsys=capsys)
    assert code == 2 and "--solved nan: expected a finite number" in err


# --- logs of other trainers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ({"input": "a", "output": "b", "score": 1.0, "step": 1}, "verl"),
        ({"prompt": "a", "completion": "b", "reward": 1.0}, "TRL"),
        ({"prompt": "a", "chosen": "b", "rejected": "c"}, "preference"),
        ({"conversations": []}, "ShareGPT"),
    ],
)
def test_a_log_of_another_trainer_is_told_how_to_write_it(
    tmp_path: Path, capsys: Any, row: dict[str, Any], hint: str
) -> None:
    code, _, err = run(tmp_path, [row, row, row], capsys=capsys)
    assert code == 2 and "(3 records rejected; first: " in err
    assert "r.jsonl:1: expected an object with 'messages', found keys" in err and hint in err
