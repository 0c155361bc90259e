"""Which call a result answers."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.data import Message, ToolCall, Trajectory


def ask(*calls: ToolCall) -> Message:
    return Message(role="assistant", tool_calls=calls)


def call(name: str, n: int, call_id: str | None = None) -> ToolCall:
    return ToolCall(name=name, arguments={"n": n}, id=call_id)


def answer(call_id: str | None = None, name: str | None = None) -> Message:
    return Message(role="tool", content="x", tool_call_id=call_id, name=name)


USER = Message(role="user", content="u")


def answered(*messages: Message) -> list[int | None]:
    """For each tool message, the ``n`` of the call that it answers."""
    log = Trajectory(messages=messages)
    asked = [log.answered_call(i) for i, m in enumerate(messages) if m.role == "tool"]
    return [None if found is None else found.arguments["n"] for found in asked]


def test_an_id_means_its_latest_call() -> None:
    first, second = ask(call("f", 1, "call_0")), ask(call("f", 2, "call_0"))
    assert answered(first, answer("call_0"), second, answer("call_0")) == [1, 2]
    assert answered(first, USER, second, answer("call_0")) == [2]  # the first was interrupted


def test_the_same_id_twice_in_one_turn_is_answered_in_order() -> None:
    assert answered(ask(call("f", 1, "c"), call("f", 2, "c")), answer("c"), answer("c")) == [1, 2]


def test_a_result_without_id_takes_the_first_open_call_of_its_tool() -> None:
    calls = ask(call("f", 1), call("g", 2), call("f", 3))
    assert answered(calls, answer(name="g"), answer(name="f"), answer(name="f")) == [2, 1, 3]
    assert answered(calls, answer(), answer(), answer(), answer()) == [1, 2, 3, None]


def test_a_result_without_id_answers_a_call_with_one() -> None:
    assert answered(ask(call("f", 1, "a"), call("g", 2, "b")), answer(name="g"), answer()) == [2, 1]


def test_an_unknown_id_is_never_given_to_a_neighbour() -> None:
    assert answered(ask(call("f", 1, "a")), answer("z")) == [None]
    assert answered(ask(call("f", 1, "a")), answer(name="g")) == [None]
    assert answered(USER, answer("z")) == [None]


def test_a_result_without_id_does_not_reach_behind_the_last_reply() -> None:
    said = Message(role="assistant", content="done")
    assert answered(ask(call("f", 1)), USER, said, USER, answer()) == [None]


def test_one_call_a_message_with_all_results_after() -> None:
    assert answered(ask(call("f", 1)), ask(call("g", 2)), answer(), answer()) == [1, 2]
    assert answered(ask(call("f", 1, "a")), ask(call("g", 2, "b")), answer("a"), answer("b")) == [1, 2]


def test_a_late_result_finds_its_call_by_id() -> None:
    said = Message(role="assistant", content="meanwhile")
    assert answered(ask(call("f", 1, "a")), USER, said, answer("a")) == [1]


def test_a_repeated_result_belongs_to_the_same_call() -> None:
    log = Trajectory(messages=(ask(call("f", 1, "a"), call("g", 2, "b")), answer("a"), answer("a")))
    assert answered(*log.messages) == [1, 1]
    assert [c.id for c in log.unanswered(0)] == ["b"]


def test_unanswered_looks_at_one_turn() -> None:
    log = Trajectory(messages=(ask(call("f", 1, "c")), USER, ask(call("f", 2, "c")), answer("c")))
    assert [[c.arguments["n"] for c in log.unanswered(t)] for t in range(2)] == [[1], []]


def test_only_tool_messages_answer() -> None:
    log = Trajectory(messages=(ask(call("f", 1)), USER))
    assert log.answered_call(0) is None and log.answered_call(1) is None


@given(order=st.permutations(range(5)))
def test_results_with_ids_may_come_in_any_order(order: list[int]) -> None:
    calls = ask(*(call("f", n, f"c{n}") for n in range(5)))
    assert answered(calls, *(answer(f"c{n}") for n in order)) == list(order)


messages = st.lists(
    st.one_of(
        st.just(USER),
        st.lists(
            st.builds(
                ToolCall,
                name=st.sampled_from("fg"),
                id=st.sampled_from([None, "a", "b"]),
                arguments=st.just({}),
            ),
            max_size=3,
        ).map(lambda calls: ask(*calls)),
        st.builds(answer, st.sampled_from([None, "a", "b", "z"]), st.sampled_from([None, "f", "g"])),
    ),
    max_size=10,
)


@given(messages)
def test_a_result_answers_an_earlier_call_that_it_does_not_contradict(log: list[Message]) -> None:
    trajectory = Trajectory(messages=tuple(log))
    for i, message in enumerate(log):
        found = trajectory.answered_call(i)
        if found is None:
            continue
        assert any(found in earlier.tool_calls for earlier in log[:i])
        assert found.id in (None, message.tool_call_id) or message.tool_call_id is None
        by_id = message.tool_call_id is not None and found.id == message.tool_call_id
        assert by_id or message.name in (None, found.name)


@pytest.mark.parametrize("turn", [1, -3])
def test_a_turn_that_is_not_there_is_an_index_error(turn: int) -> None:
    log: Any = Trajectory(messages=(ask(call("f", 1)),))
    with pytest.raises(IndexError):
        log.unanswered(turn)
