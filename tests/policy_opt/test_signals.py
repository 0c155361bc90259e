"""A run that learns nothing, or ignores an answer, says so in the log."""

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from axiomrm.policy_opt.algorithms.presets import PRESETS
from axiomrm.policy_opt.config import (
    BestOfKConfig,
    GRPOConfig,
    PolicyConfig,
    ProcessReplayConfig,
    RolloutConfig,
)


def config(**options: Any) -> PolicyConfig:
    sizes: dict[str, Any] = {"iterations": 2, "tasks_per_iteration": 2, "group_size": 2} | options
    return PolicyConfig(rollout=RolloutConfig(max_turn_tokens=4), **sizes)


def without_outcome(env: Any) -> Any:
    """Turn rewards only."""
    step = env.step

    def told(action: Any) -> Any:
        observation, reward, terminated, truncated, info = step(action)
        return observation, reward, terminated, truncated, {k: v for k, v in info.items() if k != "outcome"}

    env.step, env.outcome = told, lambda: None
    return env


@pytest.mark.parametrize("preset", ["grpo", "grpo_summed", "rloo", "gigpo", "best_of_k"])
def test_an_algorithm_without_the_outcomes_it_needs_says_so(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, preset: str
) -> None:
    trainer = toy.trainer(tmp_path, config(algorithm=PRESETS[preset]))
    trainer.env_factory = lambda: without_outcome(toy.env(3))
    rows = trainer.run()
    assert [row["policy/updates"] for row in rows] == [0.0, 0.0]
    name = type(trainer.algorithm).__name__
    told = [text for text in caplog.messages if f"{name} made no step: no episode has an outcome" in text]
    assert [text.partition(":")[0] for text in told] == ["iteration 0", "iteration 1"]


def test_rollouts_of_which_none_is_kept_are_named_as_the_cause(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    toy.trainer(tmp_path, config(algorithm=BestOfKConfig(threshold=2.0))).run()
    assert (
        sum("made no step: every group's returns are equal, or no" in text for text in caplog.messages) == 2
    )


def test_a_run_that_learns_says_nothing(toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "axiomrm.policy_opt.monitoring.signals"):
        toy.trainer(tmp_path, config(tasks_per_iteration=4, group_size=8)).run()
    assert not [record for record in caplog.records if record.name.endswith("signals")]


def test_answers_about_turns_that_the_environment_rewarded_are_counted(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = toy.trainer(tmp_path, config(), turn_judge=toy.judge).run()
    turns = int(rows[0]["rollout/turns"] * rows[0]["rollout/episodes"])
    told = [text for text in caplog.messages if "not used" in text]
    assert len(told) == 1  # once a run
    assert f"iteration 0: the environment rewarded {turns} of {turns} turns itself" in told[0]


@pytest.mark.parametrize("name", ["oracle", ""])
def test_a_judge_of_turns_that_were_left_to_it_is_not_warned_of(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    def judge(trajectories: Any) -> Any:
        return [replace(s, judge_revision=name) for s in toy.judge(trajectories)]

    trainer = toy.trainer(tmp_path, config(), turn_judge=judge)
    trainer.env_factory = lambda: toy.env(3, dense=False)
    trainer.run()
    assert not [text for text in caplog.messages if "not used" in text]


def test_verified_rollouts_that_a_source_of_wholes_leaves_out_are_counted(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def labels(trajectories: Any) -> Any:
        """The first is labelled, for the whole of it."""
        blank = [math.nan] * 3
        given = toy.judge(trajectories)
        return [
            replace(s, turns=blank[: len(s.turns)], trajectory=math.nan if i else 1.0, mixed=True)
            for i, s in enumerate(given)
        ]

    trainer = toy.trainer(tmp_path, config(algorithm=GRPOConfig()), turn_judge=labels)
    trainer.env_factory = lambda: toy.env(3, dense=False)
    trainer.run()
    assert any("of 4 episodes with an outcome 3 get no reward of the whole" in t for t in caplog.messages)


def test_progress_alone_is_something_to_learn_from(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def nears(env: Any) -> Any:
        step = without_outcome(env).step

        def told(action: Any) -> Any:
            observation, _, *ends, info = step(action)
            return observation, None, *ends, info | {"progress": env.right / 3}

        env.step = told
        return env

    delta = ProcessReplayConfig(local_return="delta", gamma=1.0)
    trainer = toy.trainer(tmp_path, config(algorithm=delta, iterations=1, group_size=8))
    trainer.env_factory = lambda: nears(toy.env(3))
    (row,) = trainer.run()
    assert row["policy/updates"] > 0
    assert not [text for text in caplog.messages if "nothing can be learnt" in text]
