"""A call that cannot be used is the agent's own fault: told to it as an error, never the environment's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.environment import Action, Observation
from axiomrm.data.trajectory import Message, Task, ToolCall, Trajectory
from axiomrm.data.writing import write_trajectories
from axiomrm.policy_opt.config import RolloutConfig
from axiomrm.policy_opt.engines.build import build_sampler
from axiomrm.policy_opt.rollouts.chat import parse_hermes, parse_plain
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests

UNUSABLE = "the tool call cannot be used: "
HALF = UNUSABLE + r"arguments.order: lone surrogate \ud83d at character 0 (a cut emoji?)"
BOTTOMLESS = '{"a":' * 100_000


def nested(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


# A log takes 100 levels below the record of name and arguments: the arguments are the first of them.
PLAIN = {
    'find {"order": "\\ud83d"}': HALF,
    'find {"\\ud83d": 1}': UNUSABLE + "a key of arguments: lone surrogate",
    f"find {nested(100)}": UNUSABLE + "arguments.a.a",
    f"find {BOTTOMLESS}": "the arguments of find are nested too deeply",
    "find [1]": "the tool call wants a name and an object of arguments",
    'find {"a": ': "the arguments of find are not JSON",
}
HERMES = {
    '{"name": "find", "arguments": {"order": "\\ud83d"}}</tool_call>': HALF,
    '{"name": "\\ud83d", "arguments": {}}</tool_call>': UNUSABLE + "name: lone surrogate",
    f'{{"name": "find", "arguments": {nested(100)}}}</tool_call>': UNUSABLE + "arguments.a.a",
    f"{BOTTOMLESS}</tool_call>": "the tool call is nested too deeply",
    '{"name": "find"</tool_call>': "the tool call is not JSON",
}


@pytest.mark.parametrize("raw", PLAIN, ids=range(len(PLAIN)))
def test_a_plain_call_that_cannot_be_used_is_an_error_text(raw: str) -> None:
    call, error = parse_plain(raw)
    assert call is None and error is not None and error.startswith(PLAIN[raw])
    assert len(error.encode()) < 200


@pytest.mark.parametrize("raw", HERMES, ids=range(len(HERMES)))
def test_a_hermes_call_that_cannot_be_used_is_an_error_text(raw: str) -> None:
    call, error = parse_hermes(raw)
    assert call is None and error is not None and error.startswith(HERMES[raw])
    assert len(error.encode()) < 200


def test_what_can_be_used_is_read_as_it_stands(tmp_path: Path) -> None:
    arguments = {"order": "K42 😀", "lines": [1, 2.5, {"x": None}], **json.loads(nested(99))}
    wanted = (ToolCall(name="find", arguments=arguments), None)
    assert parse_plain(f"find {json.dumps(arguments)}") == wanted
    assert parse_hermes(json.dumps({"name": "find", "arguments": arguments}) + "</tool_call>") == wanted
    log = Trajectory(messages=(Message(role="assistant", tool_calls=(wanted[0],)),))
    write_trajectories(tmp_path / "log.jsonl", [log])
    assert Trajectory.read(tmp_path / "log.jsonl")[0].messages == log.messages
    assert parse_plain("find") == (ToolCall(name="find"), None)
    assert parse_plain('find {"a": 1, "a": 2}') == (ToolCall(name="find", arguments={"a": 2}), None)


class Judged:
    """Answers what it is told and says after two turns that the agent failed."""

    def reset(
        self, *, seed: int | None = None, task: Task | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        self.heard: list[str | None] = []
        return Observation((Message(role="user", content="1"),)), {}

    def step(self, action: Action) -> tuple[Observation, float | None, bool, bool, dict[str, Any]]:
        self.heard.append(action.error)
        assert not action.tool_calls
        info = {"outcome": 0.0, "metrics": {"heard": self.heard}}
        return Observation((Message(role="user", content="1"),)), 0.0, len(self.heard) == 2, False, info

    def close(self) -> None:
        pass


@pytest.mark.parametrize("raw", ['find {"order": "\\ud83d"}', f"find {BOTTOMLESS}"], ids=["half", "deep"])
def test_an_agents_bad_call_costs_neither_the_episode_nor_its_outcome(toy: Any, raw: str) -> None:
    class Chat(type(toy.chat)):  # type: ignore[misc]  # a fixture's class
        def parse(self, token_ids: Sequence[int]) -> Action:
            call, error = parse_plain(raw)
            return Action("", (call,) if call else (), tuple(token_ids), error)

    limits = RolloutConfig(max_turn_tokens=4)
    sampler = build_sampler(limits, toy.warm(), Chat.end_ids)
    requests = group_requests(toy.tasks(1), 1, "it0")
    (episode,) = collect(sampler, Chat(), Judged, requests, limits=limits.limits(), seed=0)
    assert (episode.record.ending, episode.record.outcome) == ("done", 0.0)
    assert episode.trajectory.outcome is not None
    assert len(episode.trajectory.outcome.metrics["heard"]) == 2
