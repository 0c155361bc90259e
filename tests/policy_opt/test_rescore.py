import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.config import PolicyConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.forgetting import forget_subject
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.replay.rescore import rescore, within_budget
from axiomrm.policy_opt.rewards.base import TurnScores

NAN = float("nan")


def record(
    name: str, outcome: float, rewards: Sequence[float], *, version: int = 0, judge: str = "r1"
) -> TrajectoryRecord:
    steps = [
        StepRecord(
            traj_id=name, turn=t, segment=0, start=2 + 4 * t, end=4 + 4 * t, policy_version=version,
            behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32), r_local=r, judge_revision=judge,
            rubric_hash="h" if judge else "",
        )
        for t, r in enumerate(rewards)
    ]  # fmt: skip
    messages = [Message(role=r, content=name) for _ in rewards for r in ("user", "assistant")]
    transcript = Trajectory(id=name, messages=tuple(messages)).model_dump_json()
    ids = np.arange(4 * len(rewards), dtype=np.int32)
    return TrajectoryRecord(
        name, "task", f"g{version}", [ids], steps, version, outcome=outcome, transcript=transcript
    )


class NewJudge:
    """Says ``value`` of every turn, or nothing of trajectories it does not like."""

    def __init__(self, value: float = 0.5, mute: Sequence[str] = ()) -> None:
        self.value, self.mute, self.asked = value, set(mute), list[str]()
        self.forgotten: list[str] = []

    def forget(self, subject: str) -> None:
        self.forgotten.append(subject)

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[TurnScores]:
        self.asked += [str(t.id) for t in trajectories]
        return [self._scores(t) for t in trajectories]

    def _scores(self, trajectory: Trajectory) -> TurnScores:
        n = len(trajectory.turns)
        if trajectory.id in self.mute:
            return TurnScores([NAN] * n, ["failed:timeout"] * n, "r2", "h")
        return TurnScores([self.value + t for t in range(n)], [None] * n, "r2", "h")


def test_the_budget_is_counted_in_turns_newest_first() -> None:
    rows = [record("a", 1.0, [1.0]), record("b", 1.0, [1.0] * 3), record("c", 1.0, [1.0, 1.0])]
    assert [r.traj_id for r in within_budget(rows, "h@r2", 3)] == ["c", "a"]
    assert [r.traj_id for r in within_budget(rows, "h@r2", 5)] == ["c", "b"]
    assert within_budget(rows, "h@r1", 9) == []
    rows[2].transcript = ""
    assert [r.traj_id for r in within_budget(rows, "h@r2", 1)] == ["a"]


def test_what_the_environment_said_stays_and_a_failed_answer_is_missing() -> None:
    own, mute = record("own", 1.0, [0.9], judge=""), record("mute", 1.0, [1.0])
    assert rescore([own, mute], NewJudge(mute=["mute"])) == 2
    assert own.steps[0].r_local == 0.9 and own.steps[0].judge_revision == ""
    assert math.isnan(mute.steps[0].r_local) and mute.steps[0].missing == "failed:timeout"


def changed(turns: int, judge: NewJudge | None) -> ProcessReplay:
    one = ProcessReplay(ProcessReplayConfig(rescore_turns=turns, kappa=0, scale="none", calibrate_beta=False))
    one.turn_judge = judge
    one.ingest([record("a", 1.0, [1.0, 1.0]), record("b", 0.0, [0.0])], 0)
    fresh = [record(n, o, [0.25], version=1, judge="r2") for n, o in (("c", 1.0), ("d", 0.0))]
    one.ingest(fresh, 1)
    return one


def test_a_changed_judge_is_asked_again_and_the_rest_is_evicted() -> None:
    judge = NewJudge()
    one = changed(1, judge)
    assert judge.asked == ["b"]
    assert [r.traj_id for r in one.buffer.records] == ["b", "c", "d"] and one.buffer.evicted == {"judge": 1}
    (step,) = one.buffer.records[0].steps
    assert (step.r_local, step.judge_revision) == (0.5, "r2") and step.returns is not None
    # alone with the new revision: no group mean of two revisions; the outcome keeps its own group's
    assert step.returns.local.m == 1 and (step.returns.outcome.m, step.returns.outcome.loo) == (2, 1.0)


def test_scored_again_together_they_share_a_baseline_of_one_revision() -> None:
    one = changed(3, NewJudge())
    a = one.buffer.records[0]
    assert [s.r_local for s in a.steps] == [0.5, 1.5]
    assert a.steps[0].returns is not None and a.steps[0].returns.local.loo == 0.5
    assert {s.judge_key for r in one.buffer.records for s in r.steps} == {"h@r2"}


@pytest.mark.parametrize(("turns", "judge"), [(0, NewJudge()), (9, None)])
def test_without_budget_or_judge_all_of_the_old_ones_leave(turns: int, judge: NewJudge | None) -> None:
    one = changed(turns, judge)
    assert [r.traj_id for r in one.buffer.records] == ["c", "d"]
    assert judge is None or judge.asked == []


def test_the_trainer_keeps_transcripts_and_hands_the_judge_over(toy: Any, tmp_path: Path) -> None:
    options = PolicyConfig(
        iterations=1, tasks_per_iteration=2, group_size=2, rollout=RolloutConfig(max_turn_tokens=4),
        algorithm=ProcessReplayConfig(rescore_turns=50, rescue=True),
    )  # fmt: skip
    tasks = [
        t.model_copy(update={"features": {"subject": f"u{i}"}}) for i, t in enumerate(toy.tasks(2, 3, 3))
    ]

    def first(trajectories: Sequence[Trajectory]) -> list[TurnScores]:
        answers: list[TurnScores] = toy.judge(trajectories)
        return answers

    trainer = toy.trainer(tmp_path, options, tasks=tasks, turn_judge=first)
    trainer.env_factory = lambda: toy.env(3, dense=False)
    trainer.run()
    state = next(tmp_path.glob("checkpoint-*")) / "state.json"
    assert '"u0"' in state.read_text() and trainer.algorithm.turn_judge.source is first
    again = NewJudge()
    options = options.model_copy(update={"iterations": 2})
    second = toy.trainer(tmp_path, options, tasks=tasks, turn_judge=again)
    second.env_factory = lambda: toy.env(3, dense=False)
    second.run()
    assert len(again.asked) > 4  # four fresh ones and stored ones
    assert {s.judge_revision for r in second.algorithm.buffer.records for s in r.steps} == {"r2"}
    forgets(tmp_path)
    assert second.forget("u1") > 0 and again.forgotten == ["u1"]
    assert '"u1"' not in json.dumps(second.algorithm.state_dict())


def forgets(folder: Path) -> None:
    """Consent withdrawn after the run: no record and no transcript of the subject is left."""
    (state,) = folder.glob("checkpoint-*/state.json")
    before = json.loads(state.read_text())
    n = sum(r["subject"] == "u0" for r in before["algorithm"]["buffer"]["records"])
    n += sum(r["subject"] == "u0" for r in before["algorithm"]["successes"])
    assert n > 0 and forget_subject(folder, "u0") == (n, 0)
    assert '"u0"' not in state.read_text() and '"u1"' in state.read_text()
    assert forget_subject(folder, "u0") == (0, 0)
    with pytest.raises(ConfigError, match="no checkpoint"):
        forget_subject(folder / "nowhere", "u0")
