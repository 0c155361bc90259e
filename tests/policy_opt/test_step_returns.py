"""Returns of whole records: each step's own cost, the value at a cut, the last state's score."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord, from_json, to_json
from axiomrm.policy_opt.returns import LocalReturn, return_to_go
from axiomrm.policy_opt.running import RunningStatistics
from axiomrm.policy_opt.step_returns import attach_returns, judge_score

NAN = float("nan")


def record(
    rewards: Sequence[float], *, judged: int = 0, progress: Sequence[float] = (), **extra: Any
) -> TrajectoryRecord:
    """One action token a turn; the first ``judged`` rewards are a judge's, the others the environment's."""
    steps = [
        StepRecord(
            traj_id="a", turn=t, segment=0, start=1 + 2 * t, end=2 + 2 * t, policy_version=0,
            behaviour_logprobs=np.zeros(1, dtype=np.float32), r_local=reward,
            progress=progress[t] if progress else NAN,
            judge_revision="j" if t < judged else "", rubric_hash="h" if t < judged else "",
        )
        for t, reward in enumerate(rewards)
    ]  # fmt: skip
    ids = np.zeros(2 * len(rewards) + 1, dtype=np.int32)
    return TrajectoryRecord("a", "task", "g", [ids], steps, 0, **extra)


def local(
    row: TrajectoryRecord, kind: LocalReturn, gamma: float, statistics: RunningStatistics | None = None
) -> list[float]:
    attach_returns([row], statistics or RunningStatistics(), kind=kind, gamma=gamma)
    return [step.returns.local.value for step in row.steps if step.returns is not None]


def test_each_turn_costs_the_mean_of_the_source_that_rewarded_it() -> None:
    known = RunningStatistics()
    known.update_scalar("cost:h@j", 0.5)
    known.update_scalar("cost:@", -1.0)
    usual = record([0.5, 0.5, 0.5, -1.0], judged=3)
    # each reward is what its source usually gives: a longer talk earns nothing
    assert local(usual, "rtg", 1.0, known) == [0.0, 0.0, 0.0, 0.0]
    better = record([0.75, 0.5, -0.5], judged=2)
    # -0.5 + 1 = 0.5; 0.5 - 0.5 + 0.5 * 0.5 = 0.25; 0.75 - 0.5 + 0.5 * 0.25 = 0.375
    assert local(better, "rtg", 0.5, known) == [0.375, 0.25, 0.5]


def test_a_cost_may_differ_from_turn_to_turn() -> None:
    np.testing.assert_allclose(return_to_go([1.0, 1.0], gamma=1.0, cost=[0.25, 1.0]), [0.75, 0.0])


def test_a_cut_is_worth_the_baseline_of_the_source_that_rewards_most_turns() -> None:
    known = RunningStatistics()
    known.update_baselines("local:h@j", [("x", "", 3, 0.8)])
    known.update_baselines("local:@", [("x", "", 3, -7.0)])
    cut = record([0.5, 0.5, 1.0], judged=2, truncated=True, ending="token_limit")
    # 1 + 0.5 * 0.8 = 1.4; 0.5 + 0.5 * 1.4 = 1.2; 0.5 + 0.5 * 1.2 = 1.1
    assert local(cut, "rtg", 0.5, known) == pytest.approx([1.1, 1.2, 1.4])


def test_the_last_state_is_worth_its_own_score_where_there_is_no_outcome() -> None:
    row = record([NAN, NAN], progress=[0.25, 0.5], final_progress=0.875)
    assert local(row, "delta", 1.0) == [0.25, 0.375]
    assert judge_score(row, "delta") == 0.875
    row.outcome = 1.0
    assert local(row, "delta", 1.0) == [0.25, 0.5]
    assert judge_score(row, "delta") == 0.875  # the outcome would predict itself


def test_an_unknown_score_of_the_last_state_is_missing_and_the_score_before_it_counts() -> None:
    row = record([NAN, NAN], progress=[0.25, 0.5])
    first, last = local(row, "delta", 1.0)
    assert first == 0.25 and math.isnan(last)
    assert judge_score(row, "delta") == 0.5


def test_a_record_of_an_earlier_version_has_no_score_of_the_last_state() -> None:
    told = to_json(record([NAN], final_progress=0.5))
    assert from_json(told).final_progress == 0.5
    del told["final_progress"]
    assert math.isnan(from_json(told).final_progress)
