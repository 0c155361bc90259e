"""When a call counts as repeated, and which states are one."""

from typing import Any

import pytest

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.errors import DataError
from axiomrm.policy_opt.audit.metadata import recorded
from axiomrm.policy_opt.audit.tools import lying_tools


def log(*calls: tuple[str, str | None]) -> Trajectory:
    """A turn a call: its tool and its answer, ``None`` = none."""
    messages: list[Message] = []
    for i, (tool, answer) in enumerate(calls):
        messages.append(Message(role="assistant", tool_calls=(ToolCall(name=tool, arguments={}, id=str(i)),)))
        if answer is not None:
            messages.append(Message(role="tool", content=answer, tool_call_id=str(i), name=tool))
    return Trajectory(messages=tuple(messages), id="x")


@pytest.mark.parametrize("between", [("close", "error: timed out"), ("close", None), ("get", "error: busy")])
def test_a_call_that_failed_or_was_not_answered_stands_in_between(between: tuple[str, str | None]) -> None:
    assert lying_tools([log(("get", "open"), between, ("get", "closed"))]) == []


def test_a_turn_with_an_error_stands_in_between_too() -> None:
    told = log(("get", "open"), ("close", "no such ticket"), ("get", "closed"))
    failed = {"turns": [{}, {"error_kind": "not_found"}, {}]}
    assert lying_tools([told.model_copy(update={"metadata": failed})]) == []


def test_after_a_failure_a_new_run_of_repeats_begins() -> None:
    calls = (("get", "open"), ("get", None), ("get", "closed"), ("get", "open"))
    (lie,) = lying_tools([log(*calls)])
    assert (lie.answers, lie.where) == (("closed", "open"), ("x t3", "x t4"))


def test_calls_of_two_rollouts_are_no_repeats_though_both_lack_an_id() -> None:
    one, two = (log(("get", answer)).model_copy(update={"id": ""}) for answer in ("open", "closed"))
    assert lying_tools([one, two]) == []
    again = log(("get", "open"), ("get", "closed")).model_copy(update={"id": ""})
    assert len(lying_tools([one, again])) == 1


def asked(name: str, state: Any, answer: str) -> Trajectory:
    made = log(("get", answer)).model_copy(update={"id": name, "group_id": "g"})
    return made.model_copy(update={"metadata": {"reset": {"state_key": state}, "turns": [{}]}})


SAME = [(0, 0), (False, False), ("", ""), ([], ()), ({"a": 1, "b": [2]}, {"b": [2], "a": 1}), (1.0, 1.0)]
OTHER = [(1, "1"), (1, 1.0), (1, True), (0, False), (None, None), (None, 0), ("s", "t"), ([1, 2], [2, 1])]


@pytest.mark.parametrize("states", SAME, ids=str)
def test_one_state_has_one_answer(states: tuple[Any, Any]) -> None:
    (lie,) = lying_tools([asked("a", states[0], "open"), asked("b", states[1], "closed")])
    assert lie.where == ("a t1", "b t1")


@pytest.mark.parametrize("states", OTHER, ids=str)
def test_two_states_and_unknown_ones_may_have_two(states: tuple[Any, Any]) -> None:
    assert lying_tools([asked("a", states[0], "open"), asked("b", states[1], "closed")]) == []


def test_a_state_is_kept_in_its_plain_form_and_nan_is_an_unknown_one() -> None:
    told = {"reset": {"state_key": float("nan")}, "turns": [{"state_key": (1, 2), "note": "kept"}]}
    found = recorded(log(("get", "open")).model_copy(update={"metadata": told})).metadata
    assert found["reset"] == {"state_key": None}
    assert found["turns"] == [{"state_key": [1, 2], "note": "kept"}]


@pytest.mark.parametrize("place", ["reset", "turns[0]"])
def test_a_state_that_cannot_be_compared_is_named(place: str) -> None:
    bad = {"state_key": {"left": float("nan")}}
    told = {"reset": bad} if place == "reset" else {"turns": [bad]}
    with pytest.raises(DataError) as caught:
        recorded(log(("get", "open")).model_copy(update={"metadata": told}))
    assert str(caught.value).startswith(f"metadata.{place}.state_key: float in it, expected a plain JSON")
