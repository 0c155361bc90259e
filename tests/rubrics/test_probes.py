"""Measures of the agent's own words leave out what an environment wrote in its name."""

from axiomrm.data.trajectory import Message, Task, ToolCall, Trajectory
from axiomrm.data.verdict import Scored
from axiomrm.rubrics.judges_answer import AnswerMatch, answer_match
from axiomrm.rubrics.judges_tools import ToolOrder, tool_order
from axiomrm.rubrics.probes import PROBES


def call(name: str) -> Message:
    return Message(role="assistant", tool_calls=(ToolCall(name=name),))


def agent(text: str) -> Message:
    return Message(role="assistant", content=text)


OK = Message(role="tool", content="ok")
EXAMPLE = (agent("Five words stand in here.").from_environment(), call("verify").from_environment(), OK)


def measure(name: str, *messages: Message) -> object:
    return PROBES[name].measure(Trajectory(messages=messages), None, {})


def test_words_calls_and_replies_are_the_agents() -> None:
    said = (*EXAMPLE, agent("Two words."), call("find"), OK)
    assert measure("word_count", *said) == 2
    assert measure("tool_calls", *said) == 1
    assert measure("turn_index", *said) == 2


def test_the_call_of_an_example_fulfils_no_order() -> None:
    order = ToolOrder(first="verify", then=("pay",))
    found = tool_order(Trajectory(messages=(*EXAMPLE, call("pay"))), None, order)
    assert isinstance(found, Scored) and found.value == 0
    found = tool_order(Trajectory(messages=(call("verify"), OK, call("pay"))), None, order)
    assert isinstance(found, Scored) and found.value == 1


def test_the_answer_is_the_last_that_the_agent_said() -> None:
    talk = Trajectory(messages=(agent("4"), agent("Thank you.").from_environment()), task=Task(reference="4"))
    found = answer_match(talk, None, AnswerMatch())
    assert isinstance(found, Scored) and found.value == 1
