"""Rollouts of the cold-started policy for judges: labelled as scripted ones are, resumable, refused without oracle."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from axiomrm.config import RunConfig
from axiomrm.data.environment import Action, Observation
from axiomrm.data.synthesis.rollouts import roll
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.writing import write_trajectories
from axiomrm.errors import ConfigError, DataError
from axiomrm.policy_opt.engines.transformers import Generation
from axiomrm.policy_opt.envs.service_desk import ServiceDesk
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.stage_context import StageContext
from axiomrm.stage_files import StageRecord
from axiomrm.stages import on_policy
from axiomrm.stages.world import base_folder, flawed_for, tasks

ROLLOUT = {"max_turns": 2, "max_turn_tokens": 24, "max_live": 8}


class Replay:
    """Chat, sampler and rows in one: says the actions of a dialogue again, one a turn."""

    temperature = 1.0
    end_ids: frozenset[int] = frozenset()

    def __init__(self, actions: Sequence[Action], cut: bool = False) -> None:
        self.actions, self.cut, self.turns = actions, cut, 0

    def prompt_ids(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], first: bool
    ) -> list[int]:
        return [0]

    def parse(self, token_ids: Sequence[int]) -> Action:
        return self.actions[token_ids[0]]

    def open(self, n: int) -> "Replay":
        return self

    def feed(self, row: int, new_ids: Sequence[int], uniforms: NDArray[np.float64]) -> None: ...

    def step(self) -> list[tuple[int, Generation]]:
        self.turns += 1
        last = self.cut and self.turns == len(self.actions)
        return [(0, Generation([self.turns - 1], [0.0], "length" if last else "stop"))]

    def fork(self, row: int) -> None: ...

    def drop(self, row: int) -> None: ...


def replayed(scripted: Trajectory, cut: bool = False) -> Trajectory:
    """The same dialogue as ``collect`` keeps it; with ``cut`` its last turn runs into the token limit."""
    replay = Replay(actions_of(scripted), cut)
    assert scripted.task is not None
    requests = group_requests([scripted.task], 1, "again")
    (episode,) = collect(replay, replay, ServiceDesk, requests, limits=RolloutLimits(max_turns=20), seed=0)
    return on_policy.labelled(episode.trajectory)


def actions_of(scripted: Trajectory) -> list[Action]:
    said = [m for m in scripted.messages if m.role == "assistant"]
    return [Action(text=m.content, tool_calls=m.tool_calls) for m in said]


def erring() -> Trajectory:
    """A scripted dialogue with right and wrong turns."""
    found = (roll(ServiceDesk(), flawed_for(0.4), task) for task in tasks("train", "judge", 20, 0))
    return next(t for t in found if {-1, 1} <= set(t.metadata["oracle"]))


def context(run: Path, stage: str = "rm_rubric", count: int = 3) -> StageContext:
    """A run whose policy is the untrained base."""
    policy = run / "cold_start" / "policy"
    if not policy.exists():
        policy.parent.mkdir(parents=True)
        policy.symlink_to(base_folder("nano"))
    (run / stage).mkdir(exist_ok=True)
    config = RunConfig.model_validate(
        {"name": "t", "rm": {"on_policy_tasks": count}, "policy": {"train": {"rollout": ROLLOUT}}}
    )
    done = StageRecord("cold_start", {}, {}, "", 0.0, 0.0, False, "")
    return StageContext(run, run / stage, config, 0, {"cold_start": done})


def test_a_policys_dialogue_has_the_labels_that_a_scripted_one_has() -> None:
    scripted = erring()
    found = replayed(scripted)
    assert [m.content for m in found.messages] == [m.content for m in scripted.messages]
    for key in ("oracle", "assessments", "labels"):
        assert found.metadata[key] == scripted.metadata[key]


def test_a_turn_that_the_oracle_never_saw_has_no_label() -> None:
    scripted = erring()
    found = replayed(scripted, cut=True)
    assert len(found.turns) == len(scripted.turns) == len(found.metadata["labels"])
    assert found.metadata["labels"] == [*scripted.metadata["labels"][:-1], {}]
    assert found.metadata["oracle"][-1] is None and found.metadata["ending"] == "token_limit"


def test_a_killed_run_goes_on_after_the_last_wave_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_policy, "WAVE", 1)
    straight, killed = context(tmp_path / "a"), context(tmp_path / "b")
    found = on_policy.rollouts(straight)
    assert len(found) == 3 * on_policy.GROUP and len({t.id for t in found}) == len(found)
    assert {t.task_id for t in found} == {t.id for t in tasks("train", "on_policy", 3, 0)}
    whole = (straight.stage_dir / on_policy.FILE).read_bytes()
    kept = b"".join(whole.splitlines(keepends=True)[: on_policy.GROUP])  # what the first wave left
    (killed.stage_dir / on_policy.FILE).write_bytes(kept)
    asked: list[str] = []

    def desk() -> ServiceDesk:
        asked.append("episode")
        return ServiceDesk()

    assert on_policy.rollouts(killed, desk) == found
    assert (killed.stage_dir / on_policy.FILE).read_bytes() == whole
    assert len(asked) == 2 * on_policy.GROUP


def test_a_later_stage_reads_what_an_earlier_one_rolled(tmp_path: Path) -> None:
    first = context(tmp_path)
    found = on_policy.rollouts(first)
    later = context(tmp_path, "rm_personal")
    later.finished = {**later.finished, "rm_rubric": later.finished["cold_start"]}
    assert on_policy.rollouts(later) == found
    assert not (later.stage_dir / on_policy.FILE).exists()


def test_without_tasks_nothing_is_rolled(tmp_path: Path) -> None:
    ctx = context(tmp_path, count=0)
    assert on_policy.rollouts(ctx) == [] == on_policy.examples(ctx, 100, random.Random(0))
    assert on_policy.summary(ctx) == {} and not (ctx.stage_dir / on_policy.FILE).exists()


def test_both_answers_of_the_policys_turns_are_asked_and_marked(tmp_path: Path) -> None:
    ctx = context(tmp_path, count=5)
    requests = group_requests(tasks("train", "on_policy", 5, 0), on_policy.GROUP, "on_policy")
    rolled = [roll(ServiceDesk(), flawed_for(0.4, salt=i), r.task) for i, r in enumerate(requests)]
    names = [f"{r.group_id}#{r.rollout}" for r in requests]
    named = [t.model_copy(update={"id": name}) for t, name in zip(rolled, names, strict=True)]
    write_trajectories(ctx.stage_dir / on_policy.FILE, named)
    found = on_policy.examples(ctx, 100, random.Random(0))
    steps = [e.label for e in found if e.criterion_id == "sd.step"]
    assert {e.source for e in found} == {"on_policy"} and set(steps) == {"Y", "N"}
    assert 0.4 < steps.count("Y") / len(steps) < 0.6
    write_trajectories(ctx.stage_dir / on_policy.FILE, named[::-1])
    with pytest.raises(DataError, match=r"on_policy\.jsonl: holds other rollouts"):
        on_policy.rollouts(ctx)


class Mute(ServiceDesk):
    """A desk without an oracle."""

    def step(self, action: Action) -> tuple[Observation, float | None, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        kept = {k: v for k, v in info.items() if k not in ("labels", "oracle_turn", "assessment")}
        return observation, reward, terminated, truncated, kept


def test_an_environment_without_an_oracle_is_refused(tmp_path: Path) -> None:
    ctx = context(tmp_path, count=1)
    with pytest.raises(ConfigError, match=r"rm\.on_policy_tasks 1: Mute labels no turn"):
        on_policy.rollouts(ctx, Mute)
    assert not (ctx.stage_dir / on_policy.FILE).exists()
