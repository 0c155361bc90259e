"""Facts of a task as the data libraries hand them on: absent keys come as ``None`` or NaN."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.data.openai_chat import to_trajectory
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.errors import DataError
from axiomrm.rubrics import Rubric
from axiomrm.rubrics.lint import lint_file
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


TURNS = """\
schema: atr/1
rubric: {id: mine, version: 1.0.0, imports: ["core_axioms@^1.0"]}
features:
  n: {type: int, range: [0, 9], default: 1}
  m: {type: int, range: [0, 9]}
turn_features:
  missing: {type: int, range: [0, 8], probe: slots_missing}
facets:
  words: {type: WHAT, range: SPAN, probe: word_count}
theorems:
  - id: th.asks
    derived_from: [ax.helpful]
    derivation: a guess costs a correction
    statement: Asks for missing facts.
    applies_when: missing >= 1
    evidence: {level: turn, reduce: mean}
  - {id: th.short, derived_from: [ax.respect], derivation: d, statement: Says it shortly., requires: words <= 9,
     judge: {kind: constraint}}
"""
BOUNDED = TURNS.replace("WHAT", "int").replace("SPAN", "[0, 99]")


@pytest.mark.parametrize("nan", [math.nan, Decimal("nan")])
def test_nan_is_missing(tmp_path: Path, nan: Any) -> None:
    mine = rubric(tmp_path, BOUNDED)
    assert mine.bind({"n": nan, "m": 2}).features == {"n": 1, "m": 2}
    with pytest.raises(DataError, match=r"task 't': feature 'm': found .*(?i:nan).*, and it has no default"):
        mine.bind({"m": nan}, task="t")


@pytest.mark.parametrize("value", [math.inf, -math.inf, Decimal("inf"), 1.5])
def test_a_number_that_is_not_finite_or_not_whole_is_refused_by_name(tmp_path: Path, value: Any) -> None:
    with pytest.raises(DataError, match=r"feature 'n' is .*; accepted: whole number in"):
        rubric(tmp_path, BOUNDED).bind({"n": value, "m": 2})


@pytest.mark.parametrize(
    ("recorded", "said"),
    [(math.nan, "finds no record"), (None, "finds no record"), (math.inf, "is inf"), ("some", "is 'some'")],
)
def test_what_an_environment_recorded_and_is_no_number_is_refused_by_name(
    tmp_path: Path, recorded: object, said: str
) -> None:
    active = rubric(tmp_path, BOUNDED).bind({"m": 1}, task="t")
    prefix = Trajectory(messages=(Message(role="user", content="hi", extra={"slots_missing": recorded}),))
    with pytest.raises(DataError, match=f"task 't': turn feature 'missing'.*{said}"):
        active.at_turn(prefix)


def test_a_record_with_a_nan_feature_does_not_stop_a_batch(tmp_path: Path) -> None:
    rubric(tmp_path, BOUNDED)
    asked = {"role": "user", "content": "hi", "slots_missing": 1}
    said = [asked, {"role": "assistant", "content": "one two"}]
    rows = [
        {"id": i, "task": {"features": {"m": m}}, "messages": said}
        for i, m in zip("abc", (1, math.nan, 2), strict=True)
    ]
    logs, out = tmp_path / "logs.jsonl", tmp_path / "out.jsonl"
    logs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["score", str(logs), "--rubric", str(tmp_path / "mine.yaml"), "--out", str(out)]
    assert main(words) == 0
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["a", "c"]
    assert "found nan" in (tmp_path / "out.rejected.jsonl").read_text()


@pytest.mark.parametrize("kind", ["int", "number"])
@pytest.mark.parametrize("span", ["[0, .inf]", "[-.inf, 9]", "[0, 1e400]", "[.nan, 9]"])
def test_a_range_without_an_end_is_a_finding_at_its_place(tmp_path: Path, kind: str, span: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TURNS.replace("WHAT", kind).replace("SPAN", span))
    (found,) = [f for f in lint_file(path)[1] if f.level == "error"]
    assert (found.code, found.line, found.path) == ("E106", 9, ("facets", "words", "range"))
    assert "leave `range` out for no bound" in found.message
