"""A turn is what was sampled: what an environment says in the assistant's name is none, and nothing is lost."""

import math
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.data.environment import Action, Observation
from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.policy_opt.algorithms.presets import PRESETS
from axiomrm.policy_opt.behaviour import behaviour
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.monitoring.kept_rollouts import write_rollouts
from axiomrm.policy_opt.rewards.base import TurnScores
from axiomrm.policy_opt.rewards.judge import programmatic_reward
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.rollouts.transcript import Transcript
from axiomrm.rubrics import Rubric

LIMITS = RolloutLimits(max_turns=8, max_turn_tokens=8)
ORDER = ("get", "set", "send")


def user(text: str) -> Message:
    return Message(role="user", content=text)


def agent(text: str) -> Message:
    return Message(role="assistant", content=text)


class World:
    """Three turns of ``"2"``; solved. ``reward``: ``None`` asks the judge."""

    first: tuple[Message, ...] = (user("1"),)
    reward: float | None = None

    def reset(self, *, seed: Any = None, task: Any = None) -> Any:
        self.turn = 0
        return Observation(self.first), {"state_key": 0}

    def step(self, action: Action) -> Any:
        self.turn += 1
        return self.answer(), self.reward, self.turn == 3, False, {"outcome": 1.0, "state_key": self.turn}

    def answer(self) -> Observation:
        return Observation((user("2"),))

    def close(self) -> None: ...


class Greets(World):
    first = (agent("0"), user("1"))


class ShowsHow(World):
    first = (user("1"), agent("1"), user("2"))


class Rewrites(World):
    def answer(self) -> Observation:
        return Observation((user("2 2"),), full_prompt=self.turn == 1)


class Summarises(World):
    def answer(self) -> Observation:
        messages = (agent("0"), user("2")) if self.turn == 1 else (user("2"),)
        return Observation(messages, full_prompt=self.turn == 1)


class SaysTheEnd(World):
    def answer(self) -> Observation:
        return Observation((agent("0"),) if self.turn == 3 else (user("2"),))


WORLDS = (World, Greets, ShowsHow, Rewrites, Summarises, SaysTheEnd)


def roll(toy: Any, env: Any, chat: Any = None, n: int = 8) -> Any:
    sampler = TransformersSampler(toy.warm(), toy.chat.end_ids)
    requests = group_requests(toy.tasks(1), n, "it0")
    return collect(sampler, chat or toy.chat, env, requests, limits=LIMITS, seed=0)


@pytest.mark.parametrize("world", WORLDS)
def test_the_turns_of_a_transcript_are_the_sampled_ones(toy: Any, world: Any) -> None:
    done = [e for e in roll(toy, world) if e.record.ending == "done"]
    assert done
    for episode in done:
        said = [toy.chat.parse(episode.record.action_ids(step)).text for step in episode.record.steps]
        assert [turn.action.content for turn in episode.trajectory.turns] == said
        assert len(said) == 3


def test_nothing_that_was_said_before_a_rewritten_history_is_lost(toy: Any) -> None:
    episode = next(e for e in roll(toy, Summarises) if e.record.ending == "done")
    a, b, c = (turn.action.content for turn in episode.trajectory.turns)
    said = [(m.role, m.content) for m in episode.trajectory.messages]
    assistant = [("assistant", text) for text in (a, "0", b, c)]
    assert said == [
        ("user", "1"), assistant[0], assistant[1], ("user", "2"), assistant[2], ("user", "2"), assistant[3],
        ("user", "2"),
    ]  # fmt: skip
    assert [m.is_action for m in episode.trajectory.messages if m.role == "assistant"] == [
        True, False, True, True,
    ]  # fmt: skip
    assert [step.segment for step in episode.record.steps] == [0, 1, 1]


def test_of_a_whole_prompt_that_goes_on_as_before_only_the_new_is_added() -> None:
    call, echo = (
        Message(role="assistant", tool_calls=(ToolCall(name="find", arguments={"a": 1}, id=name),))
        for name in ("c1", None)
    )
    script = Transcript()
    script.observe(Observation((user("1"),)))
    script.act(call)
    script.observe(Observation((user("1"), echo, user("2")), full_prompt=True))
    assert script.messages == [user("1"), call, user("2")]
    script.observe(Observation((agent("so far"), user("3")), full_prompt=True))  # a rewrite
    script.act(agent("x"))
    script.observe(Observation((agent("so far"), user("3"), agent("x"), user("4")), full_prompt=True))
    summary = agent("so far").from_environment()
    assert script.messages == [user("1"), call, user("2"), summary, user("3"), agent("x"), user("4")]


class CallsInOrder:
    """Calls these tools, whatever was shown and sampled."""

    def __init__(self, toy: Any, *names: str) -> None:
        self.toy, self.names = toy, iter(names)

    def prompt_ids(self, messages: Any, tools: Any, first: bool) -> Any:
        return self.toy.chat.prompt_ids([user("0")], tools, first)

    def parse(self, token_ids: Any) -> Action:
        return Action("", (ToolCall(name=next(self.names)),), tuple(token_ids))


def test_a_greeting_shifts_no_behavioural_metric(toy: Any) -> None:
    class Expects(World):
        """Each of the three calls is right where it is made."""

        def reset(self, *, seed: Any = None, task: Any = None) -> Any:
            return super().reset()[0], self.told()

        def told(self) -> Any:
            return {"state_key": self.turn, "metrics": {"expected_tools": ORDER[self.turn : self.turn + 1]}}

        def step(self, action: Action) -> Any:
            observation, *rest, info = super().step(action)
            return observation, *rest, info | self.told()

    class ExpectsAndGreets(Expects):
        first = Greets.first

    for env in (Expects, ExpectsAndGreets):
        (episode,) = roll(toy, env, CallsInOrder(toy, *ORDER), n=1)
        found = behaviour(episode.trajectory)
        assert (found["turns"], found["wrong_tool_rate"]) == (3.0, 0.0)


def config() -> PolicyConfig:
    rollout = RolloutConfig(max_turn_tokens=8)
    return PolicyConfig(
        iterations=1, tasks_per_iteration=1, group_size=4, rollout=rollout, algorithm=PRESETS["process"]
    )


@pytest.mark.parametrize("world", WORLDS)
def test_kept_rollouts_of_any_environment_can_be_read_back(toy: Any, tmp_path: Path, world: Any) -> None:
    path, kept = tmp_path / "rollouts.jsonl", list[Any]()

    def keep(iteration: int, metrics: Any, episodes: Any) -> None:
        kept.extend(episodes)
        write_rollouts(path, iteration, episodes)

    judge = programmatic_reward(Rubric.load("process_shaping"))
    trainer = toy.trainer(tmp_path / "run", config(), turn_judge=judge, on_iteration=keep)
    trainer.env_factory = world
    trainer.run()
    again = Trajectory.read(path)
    assert not again.rejected
    for trajectory, episode in zip(again, kept, strict=True):
        assert trajectory.turns == episode.trajectory.turns
        assert trajectory.content_hash == episode.trajectory.content_hash
        rewards = [step.r_local for step in episode.record.steps]
        assert trajectory.turn_rewards == pytest.approx(rewards, nan_ok=True)
    assert main(["audit", str(path)]) == 1  # weak: nothing varies; 2 would say that it cannot be read


def test_the_reward_of_a_turn_is_for_what_was_sampled(toy: Any, tmp_path: Path) -> None:
    def likes_zero(trajectories: Any) -> list[TurnScores]:
        """The summary says ``"0"``; the policy may."""
        told = [[float(turn.action.content == "0") for turn in t.turns] for t in trajectories]
        return [TurnScores(turns, [None] * len(turns), "likes", "zero") for turns in told]

    kept = list[Any]()
    trainer = toy.trainer(
        tmp_path, config(), turn_judge=likes_zero, on_iteration=lambda i, m, episodes: kept.extend(episodes)
    )
    trainer.env_factory = Summarises
    trainer.run()
    for record in (episode.record for episode in kept):
        said = [toy.chat.parse(record.action_ids(step)).text for step in record.steps]
        assert [step.r_local for step in record.steps] == [float(text == "0") for text in said]
    assert any(step.r_local == 0 for e in kept for step in e.record.steps)


def test_a_turn_that_could_not_be_read_leaves_a_file_that_can(toy: Any, tmp_path: Path) -> None:
    (episode,) = roll(toy, World, CallsInOrder(toy, "get"), n=1)  # the second answer breaks the chat format
    assert episode.record.ending == "env_error" and len(episode.record.steps) == 2
    write_rollouts(tmp_path / "rollouts.jsonl", 0, [episode])
    (trajectory,) = Trajectory.read(tmp_path / "rollouts.jsonl")
    assert trajectory.turn_rewards is not None and len(trajectory.turn_rewards) == len(trajectory.turns) == 1
    assert math.isnan(trajectory.turn_rewards[0])


def test_an_environments_message_that_cannot_be_written_is_still_no_turn(toy: Any) -> None:
    class Garbled(World):
        first = (agent("\ud800"), user("1"))

    (episode,) = roll(toy, Garbled, CallsInOrder(toy, *ORDER), n=1)
    assert episode.record.ending == "env_error"
    assert len(episode.trajectory.turns) == len(episode.record.steps) == 3
