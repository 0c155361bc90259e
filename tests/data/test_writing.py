"""Atomic, strict JSONL."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.data import (
    Message,
    Outcome,
    Rejected,
    Task,
    ToolCall,
    Trajectory,
    write_jsonl,
    write_trajectories,
)
from axiomrm.data.writing import to_record, write_rejected
from axiomrm.errors import DataError

text = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(text, values, max_size=3)
own_keys = objects.map(lambda d: {f"x-{key}": value for key, value in d.items()})
calls = st.builds(ToolCall, name=text.filter(bool), arguments=objects, id=st.none() | text.filter(bool))
spoken = st.one_of(
    st.builds(Message, role=st.sampled_from(["system", "developer", "user"]), content=text, extra=own_keys),
    st.builds(
        Message, role=st.just("assistant"), content=text, tool_calls=st.lists(calls, max_size=2).map(tuple)
    ),
    st.builds(Message, role=st.just("tool"), content=text, tool_call_id=st.none() | text.filter(bool)),
)
trajectories = st.builds(
    Trajectory,
    messages=st.lists(spoken, min_size=1, max_size=4).map(tuple),
    id=text.filter(bool),
    task_id=text,
    group_id=text,
    task=st.builds(Task, id=text, type=text, features=objects, reference=values, payload=objects),
    outcome=st.none() | st.builds(Outcome, score=st.none() | st.floats(-1, 1), metrics=objects),
    tools=st.lists(objects, max_size=2).map(tuple),
    metadata=own_keys,
)


@given(trajectories)
def test_what_is_written_reads_back_equal(
    tmp_path_factory: pytest.TempPathFactory, trajectory: Trajectory
) -> None:
    path = tmp_path_factory.mktemp("round") / "log.jsonl"
    assert write_trajectories(path, [trajectory, trajectory]) == 2
    result = Trajectory.read(path)
    assert result.rejected == [] and result.records == [trajectory, trajectory]


def test_the_log_form_is_openais() -> None:
    call = ToolCall(name="f", arguments={"b": 1, "a": "é"}, id="c1")
    record = to_record(Trajectory(messages=(Message(role="assistant", tool_calls=(call,)),)))
    function = {"name": "f", "arguments": '{"b": 1, "a": "é"}'}
    wanted = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }
    assert record == {"messages": [wanted]}


def test_missing_numbers_are_null(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "x.jsonl", [{"a": math.nan, "b": [math.inf, (1.5, None)], "c": 0.0}])
    assert json.loads((tmp_path / "x.jsonl").read_text()) == {"a": None, "b": [None, [1.5, None]], "c": 0.0}


def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("old\n")

    def rows() -> Iterator[dict[str, Any]]:
        yield {"a": 1}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_jsonl(path, rows())
    assert path.read_text() == "old\n" and os.listdir(tmp_path) == ["x.jsonl"]


@pytest.mark.parametrize("bad", [{1, 2}, b"x", "\ud83d", object()])
def test_what_json_cannot_hold_is_named(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(DataError, match=r"x\.jsonl: record 2"):
        write_jsonl(tmp_path / "x.jsonl", [{"a": 1}, {"a": bad}])
    assert os.listdir(tmp_path) == []


def test_the_folder_is_made_and_others_may_read(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.jsonl"
    write_rejected(path, [Rejected("log.jsonl", 3, "why")])
    assert json.loads(path.read_text()) == {"file": "log.jsonl", "line": 3, "reason": "why"}
    plain = tmp_path / "plain"
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode
