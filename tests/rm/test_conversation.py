"""What a judge reads of messages that an environment wrote in the agent's name."""

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.rm.adapters import completed
from axiomrm.rm.conversation import pieces
from axiomrm.rm.nonce import opening_of
from axiomrm.rm.pairwise import PairRequest, oriented


def user(text: str) -> Message:
    return Message(role="user", content=text)


def agent(text: str) -> Message:
    return Message(role="assistant", content=text)


EXAMPLE = (
    user("Where is A1?"),
    Message(role="assistant", tool_calls=(ToolCall(name="find", id="c"),)).from_environment(),
    Message(role="tool", content="sent", tool_call_id="c"),
    agent("It was sent.").from_environment(),
)


def test_an_example_has_no_turn_number_and_the_agents_own_turns_count_from_one() -> None:
    own = (user("Where is B2?"), agent("One moment."), user("Well?"), agent("Here."))
    assert [piece.line for piece in pieces(Trajectory(messages=(*EXAMPLE, *own)))] == [
        "[t1 user] Where is A1?\n",
        "[call find {}]\n",
        "[result find] sent\n",
        "[assistant] It was sent.\n",
        "[t1 user] Where is B2?\n",
        "[t1 assistant] One moment.\n",
        "[t2 user] Well?\n",
        "[t2 assistant] Here.\n",
    ]


def test_the_nonce_stands_before_the_agents_first_word() -> None:
    begun = (*EXAMPLE, user("Where is B2?"))
    one, other = (Trajectory(messages=(*begun, agent(text))) for text in ("Here.", "Gone."))
    assert opening_of(one) == opening_of(other) == opening_of(Trajectory(messages=begun))
    assert opening_of(one) != opening_of(Trajectory(messages=(*EXAMPLE, user("Where is C3?"))))


def test_two_answers_after_a_greeting_are_turns_one_and_two() -> None:
    begun = (agent("Hello.").from_environment(), user("Where is B2?"))
    a, b = (Trajectory(messages=(*begun, agent(text))) for text in ("Here.", "Gone."))
    asked = oriented(PairRequest(a, b, "Which?"), "a")
    assert "Answer A is turn t1. Answer B is turn t2." in asked.criterion.ask


def test_the_first_turn_of_a_completion_comes_after_the_agents_turns_alone() -> None:
    hello = {"role": "assistant", "content": "Hello.", "from_environment": True}
    prompt = [hello, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    trajectory, first = completed([*prompt, {"role": "user", "content": "c"}], "d", {})
    assert (len(trajectory.turns), first) == (2, 1)
