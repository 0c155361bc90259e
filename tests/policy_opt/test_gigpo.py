import math
from collections.abc import Sequence

import numpy as np
import pytest

from axiomrm.policy_opt.algorithms.gigpo import GiGPO, discounted_returns, step_advantages
from axiomrm.policy_opt.config import GiGPOConfig
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.running import RunningStatistics
from axiomrm.policy_opt.step_returns import attach_returns

NAN = float("nan")


def record(
    name: str, outcome: float, states: Sequence[int | None], rewards: Sequence[float] | None = None
) -> TrajectoryRecord:
    steps = [
        StepRecord(
            traj_id=name, turn=t, segment=0, start=2 + 4 * t, end=4 + 4 * t, policy_version=0,
            behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32), anchor=state,
            r_local=rewards[t] if rewards else NAN,
        )
        for t, state in enumerate(states)
    ]  # fmt: skip
    ids = np.arange(4 * len(states), dtype=np.int32)
    return TrajectoryRecord(name, "task", "g", [ids], steps, 0, outcome=outcome)


def advantages(rows: Sequence[TrajectoryRecord], **options: object) -> dict[tuple[str, int], float]:
    algorithm = GiGPO(GiGPOConfig(**options))
    algorithm.ingest(rows, 0)
    steps = [item for m in algorithm.plan(0, np.random.default_rng(0)) for item in m.steps]
    return {(item.record.traj_id, item.step.turn): item.advantage for item in steps}


def test_both_terms_by_hand() -> None:
    # a goes 1 -> 2 and succeeds, b goes 1 -> 1 -> 3 and fails; gamma 1/2, no std
    rows = [record("a", 1.0, [1, 2]), record("b", 0.0, [1, 1, 3])]
    got = advantages(rows, gamma=0.5, scale="none")
    # episode: +-1/2. State 1: returns 0.5 (a), 0, 0 (b): mean 1/6. States 2 and 3 are alone: step term 0
    expected = {
        ("a", 0): 0.5 + 1 / 3,
        ("a", 1): 0.5,
        ("b", 0): -0.5 - 1 / 6,
        ("b", 1): -0.5 - 1 / 6,
        ("b", 2): -0.5,
    }
    assert got == pytest.approx(expected)


def test_omega_weighs_the_step_term_and_std_scales_both() -> None:
    rows = [record("a", 1.0, [1]), record("b", 0.0, [1])]
    unit = 0.5 / (math.sqrt(0.5) + 1e-4)
    assert advantages(rows, omega=2.0)[("a", 0)] == pytest.approx(3 * unit)
    assert advantages(rows, omega=0.0)[("a", 0)] == pytest.approx(unit)


def test_without_state_keys_it_is_grpo() -> None:
    rows = [record("a", 1.0, [None, None]), record("b", 0.0, [None])]
    assert advantages(rows, scale="none") == {("a", 0): 0.5, ("a", 1): 0.5, ("b", 0): -0.5}


def test_turn_rewards_and_outcome_are_discounted_to_their_turn() -> None:
    row = record("a", 1.0, [1, 2, 3], [0.5, 0.0, 0.25])
    assert discounted_returns(row, "outcome", 0.5) == [0.25, 0.5, 1.0]
    assert discounted_returns(row, "summed", 0.5) == pytest.approx([0.5 + 1.25 / 4, 1.25 / 2, 1.25])


def test_a_missing_turn_reward_leaves_its_group_as_if_deleted() -> None:
    got = step_advantages([1.0, NAN, 0.0], [("g", 1)] * 3, scale="none")
    assert got[0] == 0.5 and math.isnan(got[1]) and got[2] == -0.5
    assert step_advantages([1.0, 7.0], [("g", 1), None], scale="none") == [0.0, 0.0]


def test_the_ladders_anchor_level_is_the_step_term_up_to_the_own_member() -> None:
    """Anchors, return-to-go, no cost: mean with self = leave-one-out times (m - 1) / m (POLICY.md section 15)."""
    rows = [
        record("a", NAN, [1, 2], [0.5, 1.0]),
        record("b", NAN, [1, 3], [0.0, 0.25]),
        record("c", NAN, [1], [0.75]),
    ]
    attach_returns(rows, RunningStatistics(), kind="rtg", gamma=0.95, anchors=True)
    for row in rows:
        row.outcome = 0.0
    returns = [v for row in rows for v in discounted_returns(row, "summed", 0.95)]
    steps = [step for row in rows for step in row.steps]
    ours = step_advantages(returns, [("g", s.anchor or 0) for s in steps], scale="none")
    for step, value in zip(steps, ours, strict=True):
        assert step.returns is not None
        local = step.returns.local
        if step.anchor == 1:
            assert local.level == 0 and local.m == 3
            assert value == pytest.approx((local.value - local.loo) * 2 / 3)
        else:
            assert value == 0.0
