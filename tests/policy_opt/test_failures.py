"""A judge or an environment that breaks: when a run stops, and what is kept of it."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.errors import JudgeError
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.monitoring.failures import VerdictWindow
from axiomrm.policy_opt.monitoring.rejected import KEPT, write_rejected_rollouts
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode, TurnScores


def judged(answers: str, revision: str = "j") -> list[Episode]:
    """One episode; each letter a turn: . a verdict, f a failure, a an abstention, e from the environment, n not
    asked."""
    reasons = {"f": "failed:timeout", "a": "cannot_assess:x", "n": "not_asked:rubric"}
    steps = [
        StepRecord(
            "a", t, 0, 1, 2, 0, np.zeros(1, dtype=np.float32), missing=reasons.get(answer),
            r_local=math.nan if answer in reasons else 1.0, judge_revision="" if answer == "e" else revision,
        )
        for t, answer in enumerate(answers)
    ]  # fmt: skip
    said = (Message(role="assistant", content="x"),) * len(answers)
    return [Episode(TrajectoryRecord("a", "a", "g", [], steps, 0), Trajectory(messages=said))]


def test_small_iterations_cannot_hide_failures() -> None:
    window = VerdictWindow()
    for iteration in range(7):
        window.check(judged("f" + 24 * "."), iteration, 0.05)  # 1 in 25
    with pytest.raises(JudgeError) as caught:
        window.check(judged("ffff" + 21 * "."), 7, 0.05)
    assert str(caught.value) == (
        "iteration 7: 11 of the last 200 turn judgements failed: {'failed:timeout': 11}; accepted: 5%"
    )


def test_fewer_than_forty_verdicts_say_nothing_but_are_remembered() -> None:
    window = VerdictWindow()
    window.check(judged(39 * "f"), 0, 0.05)
    with pytest.raises(JudgeError, match="40 of the last 40"):
        window.check(judged("f"), 1, 0.05)


def test_what_lies_two_hundred_verdicts_back_is_over() -> None:
    window = VerdictWindow()
    window.check(judged(9 * "f" + 171 * "."), 0, 0.05)
    window.check(judged(200 * "."), 1, 0.05)
    assert window.reasons == [None] * 200
    window.check(judged(10 * "f"), 2, 0.05)  # 10 of 200 are accepted
    with pytest.raises(JudgeError, match="11 of the last 200"):
        window.check(judged("f"), 3, 0.05)


def test_a_longer_iteration_is_looked_at_as_a_whole() -> None:
    window = VerdictWindow()
    window.check(judged(385 * "." + 15 * "f"), 0, 0.05)
    with pytest.raises(JudgeError, match="21 of the last 400"):
        VerdictWindow().check(judged(21 * "f" + 379 * "."), 0, 0.05)


def test_what_the_judge_was_not_asked_thins_nothing_out_and_an_abstention_is_an_answer() -> None:
    window = VerdictWindow()
    window.check(judged(100 * "e" + 100 * "n" + 3 * "f" + 57 * "a"), 0, 0.05)
    assert len(window.reasons) == 60
    with pytest.raises(JudgeError, match="4 of the last 61"):
        window.check(judged(100 * "e" + "f"), 1, 0.05)
    nameless = VerdictWindow()
    nameless.check(judged(50 * "." + 2 * "f", revision=""), 0, 0.05)
    assert len(nameless.reasons) == 52


def config(iterations: int, **options: Any) -> PolicyConfig:
    return PolicyConfig(
        iterations=iterations, tasks_per_iteration=1, group_size=2, rollout=RolloutConfig(max_turn_tokens=4),
        **options,
    )  # fmt: skip


def test_a_resumed_run_stops_where_the_whole_one_does(toy: Any, tmp_path: Path) -> None:
    def sometimes(trajectories: Any) -> list[TurnScores]:
        """The first turn of the first of two fails: 1 verdict of 6."""
        return [
            TurnScores(
                [math.nan if i == t == 0 else 0.5 for t in range(3)],
                ["failed:timeout" if i == t == 0 else None for t in range(3)],
                "r",
                "h",
            )
            for i, _ in enumerate(trajectories)
        ]

    def run(folder: Path, iterations: int) -> None:
        trainer = toy.trainer(folder, config(iterations), turn_judge=sometimes)
        trainer.env_factory = lambda: toy.env(3, dense=False)
        trainer.run()

    for folder, first in (("whole", 9), ("resumed", 4)):
        if first < 9:
            run(tmp_path / folder, first)
        with pytest.raises(JudgeError, match="iteration 6: 7 of the last 42 turn judgements"):
            run(tmp_path / folder, 9)


def broken(name: str, version: int) -> Episode:
    record = TrajectoryRecord(name, name, "g", [], [], version, ending="env_error")
    told = {"turns": [{"detail": f"fault of {name}"}], "policy_version": version}
    return Episode(record, Trajectory(id=name, messages=(Message(role="user", content="hi"),), metadata=told))


def test_rejected_rollouts_are_kept_once_an_iteration_and_no_file_is_made_for_none(tmp_path: Path) -> None:
    path = tmp_path / "rejected.jsonl"
    write_rejected_rollouts(path, 0, judged("."))
    assert not path.exists()
    write_rejected_rollouts(path, 0, [broken("a", 0), *judged(".")])
    write_rejected_rollouts(path, 1, [broken(f"b{i}", 1) for i in range(KEPT + 1)])
    write_rejected_rollouts(path, 1, [broken("c", 1)])  # the iteration again, after a kill
    assert [t.id for t in Trajectory.read(path).records] == ["a", "c"]
    write_rejected_rollouts(path, 1, judged("."))
    assert [t.id for t in Trajectory.read(path).records] == ["a"]


def test_a_run_keeps_the_rollouts_that_its_environment_broke_also_when_that_stops_it(
    toy: Any, tmp_path: Path
) -> None:
    class Broken(type(toy.env(3))):  # type: ignore[misc]
        def step(self, action: Any) -> Any:
            raise RuntimeError("the database is gone")

    trainer = toy.trainer(tmp_path, config(1))
    trainer.env_factory = lambda: Broken(3)
    with pytest.raises(JudgeError, match="2 of 2 rollouts failed"):
        trainer.run()
    read = Trajectory.read(tmp_path / "rejected.jsonl")
    assert len(read.records) == 2 and not read.rejected
    assert "the database is gone" in read.records[0].metadata["turns"][-1]["detail"]
    assert json.loads((tmp_path / "rejected.jsonl").read_text().splitlines()[0])["messages"]
