"""What an environment says in the agent's name is no turn; messages without the mark are what they were."""

from pathlib import Path
from typing import Any

from axiomrm.data.environment import Action, Observation
from axiomrm.data.synthesis.rollouts import roll
from axiomrm.data.trajectory import Message, Task, ToolCall, Trajectory
from axiomrm.data.writing import to_record, write_trajectories

ASK, ANSWER = Message(role="user", content="2 + 2?"), Message(role="assistant", content="4")
HELLO = Message(role="assistant", content="Hello.").from_environment()


def test_hashes_of_messages_without_the_mark_are_those_of_earlier_versions() -> None:
    calls = (ToolCall(name="find", arguments={"a": 1}),)
    messages = (
        Message(role="user", content="hi"),
        Message(role="assistant", tool_calls=calls, extra={"k": 1}),
        Message(role="tool", content="x"),
        Message(role="assistant", content="done"),
    )
    found = Trajectory(messages=messages, task=Task(reference="r")).content_hash
    assert found == "4ee56eadcf39c38346f50d7cbaba727a5c3f0eb17d8ef836b42c6a3005a43b4a"


def test_only_assistant_messages_are_marked() -> None:
    assert ASK.from_environment() is ASK and not ASK.is_action
    assert ANSWER.is_action and not HELLO.is_action
    assert HELLO.from_environment() is HELLO
    kept = Message(role="assistant", extra={"reasoning_content": "so"}).from_environment()
    assert kept.extra == {"reasoning_content": "so", "from_environment": True}


def test_turns_and_their_rewards_pass_over_what_the_environment_said() -> None:
    talk = Trajectory(messages=(HELLO, ASK, ANSWER, HELLO, ASK, ANSWER, ASK), turn_rewards=(0.25, 0.5))
    assert [(turn.start, turn.end) for turn in talk.turns] == [(2, 5), (5, 7)]
    assert talk.before(0).messages == (HELLO, ASK) and talk.before(0).turn_rewards == ()
    assert talk.until(0).messages == (HELLO, ASK, ANSWER, HELLO, ASK)
    assert talk.until(0).turn_rewards == (0.25,)


def test_the_mark_survives_a_file(tmp_path: Path) -> None:
    talk = Trajectory(messages=(HELLO, ASK, ANSWER), id="talk", turn_rewards=(0.5,))
    assert to_record(talk)["messages"][0] == {
        "from_environment": True, "role": "assistant", "content": "Hello.",
    }  # fmt: skip
    write_trajectories(tmp_path / "talk.jsonl", [talk])
    (again,) = Trajectory.read(tmp_path / "talk.jsonl")
    assert again == talk and again.content_hash == talk.content_hash


class Greets:
    """One turn, between a greeting and a farewell."""

    def reset(self, *, seed: Any = None, task: Any = None) -> Any:
        return Observation((Message(role="assistant", content="Hello."), ASK)), {}

    def step(self, action: Action) -> Any:
        bye = Message(role="assistant", content="Bye.")
        return Observation((bye,)), None, True, False, {"outcome": 1.0, "oracle_turn": 1}

    def close(self) -> None: ...


class Says4:
    def act(self, history: Any, info: Any) -> Action:
        return Action("4")


def test_a_scripted_agents_turns_are_its_own() -> None:
    talk = roll(Greets(), lambda task, info: Says4(), Task(id="sum"))
    assert [turn.action.content for turn in talk.turns] == ["4"]
    assert len(talk.metadata["oracle"]) == 1
