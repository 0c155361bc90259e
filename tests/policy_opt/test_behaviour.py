from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Outcome, ToolCall, Trajectory
from axiomrm.policy_opt.behaviour import behaviour, behaviour_means


def call(name: str, **arguments: Any) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(name=name, arguments=arguments),))


def say(text: str) -> Message:
    return Message(role="assistant", content=text)


def rollout(*turns: tuple[Message, dict[str, Any]], outcome: float | None = 1.0, **reset: Any) -> Trajectory:
    messages = [m for action, _ in turns for m in (Message(role="user", content="."), action)]
    return Trajectory(
        messages=tuple(messages),
        outcome=Outcome(score=outcome),
        metadata={"turns": [info for _, info in turns], "reset": reset, "action_tokens": 12},
    )


def test_without_opportunities_there_is_no_rate() -> None:
    got = behaviour(rollout((say("hello"), {}), outcome=None))
    assert got["success"] is None and got["turns_if_solved"] is None
    rates = {"redundant_step_rate", "wrong_tool_rate", "argument_error_rate", "recovery_rate"}
    assert {name for name, value in got.items() if value is None} >= rates
    assert got["turns"] == 1.0 and got["action_tokens"] == 12.0


def test_a_repeated_call_is_redundant_only_if_nothing_changed_since() -> None:
    same = rollout(
        (call("find", a=1, b=2), {"state_key": "s1"}), (say("wait"), {"state_key": "s1"}),
        (call("find", b=2, a=1), {"state_key": "s1"}), state_key="s0",
    )  # fmt: skip
    assert behaviour(same)["redundant_step_rate"] == 0.5
    changed = rollout(
        (call("find", a=1), {"state_key": "s1"}), (call("write", a=1), {"state_key": "s2"}),
        (call("find", a=1), {"state_key": "s2"}), state_key="s0",
    )  # fmt: skip
    assert behaviour(changed)["redundant_step_rate"] == 0.0


def test_a_tool_outside_the_oracles_set_of_that_state_is_wrong() -> None:
    got = rollout(
        (call("verify"), {"metrics": {"expected_tools": ["find"]}}),
        (call("cancel"), {"metrics": {"expected_tools": []}}),
        (call("find"), {}),
        metrics={"expected_tools": ["verify"]},
    )
    assert behaviour(got)["wrong_tool_rate"] == pytest.approx(2 / 3)


def test_an_unreadable_call_counts_as_an_argument_error() -> None:
    got = rollout((say("<call"), {"error_kind": "bad_call"}), (call("find"), {}), (say("done"), {}))
    assert behaviour(got)["argument_error_rate"] == 0.5


def test_recovery_means_the_same_tool_works_within_two_turns() -> None:
    error: dict[str, Any] = {"error_kind": "timeout"}
    quick = rollout((call("find"), error), (say("sorry"), {}), (call("find"), {}))
    late = rollout((call("find"), error), (say("a"), {}), (say("b"), {}), (call("find"), {}))
    other = rollout((call("find"), error), (call("verify"), {}))
    assert [behaviour(r)["recovery_rate"] for r in (quick, late, other)] == [1.0, 0.0, 0.0]


def test_means_are_over_rollouts_not_over_turns() -> None:
    # one short rollout at rate 1, one long at rate 0: 0.5 by rollout (0.1 by call)
    assert behaviour_means([{"x": 1.0}, {"x": 0.0}, {"x": None}])["x"] == 0.5
    assert behaviour_means([{"x": None}])["x"] is None


def test_an_unequal_pair_of_real_rollouts_weighs_the_same() -> None:
    short = rollout((call("a"), {"error_kind": "bad_call"}))
    long = rollout(*[(call(f"t{i}"), {}) for i in range(9)])
    assert behaviour_means([behaviour(short), behaviour(long)])["argument_error_rate"] == 0.5
