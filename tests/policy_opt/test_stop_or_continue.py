"""The policy decides when to stop: centring per turn and then summing is biased (verl#7244), ours is not."""

import itertools
from typing import Literal

import numpy as np
import pytest

from axiomrm.policy_opt.advantages import leave_one_out
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.config import ProcessReplayConfig
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord

STOP, MAX_TURNS, N = 0.5, 3, 3
REWARDS = (0.2, 0.3, -0.6)
"""Reward of being at turn t; an episode gets them until it stops."""


def episodes() -> list[tuple[int, float]]:
    """``(turns, probability)``: stops after each turn with probability 1/2, at the latest after the third."""
    return [(1, 0.5), (2, 0.25), (3, 0.25)]


def score(turns: int) -> np.ndarray:
    """d log pi / d logit(continue) at each decision: continue gives 1 - p, stop gives -p (p = 1/2)."""
    return np.array([STOP] * (turns - 1) + ([-STOP] if turns < MAX_TURNS else []))


def expected_gradient(normalise_first: bool) -> float:
    """Exact expectation over all groups of three episodes."""
    total = 0.0
    for group in itertools.product(episodes(), repeat=N):
        probability = float(np.prod([p for _, p in group]))
        rewards = [np.array(REWARDS[:turns]) for turns, _ in group]
        returns = [r[::-1].cumsum()[::-1] for r in rewards]
        target = rewards if normalise_first else returns
        values = [v for row in target for v in row]
        owners = [i for i, row in enumerate(target) for _ in row]
        turns = [t for row in target for t in range(len(row))]
        loo = leave_one_out(values, owners, [turns])
        centred = np.where(np.isnan(loo.mean), 0.0, np.asarray(values) - loo.mean)
        for i, (length, _) in enumerate(group):
            mine = centred[[k for k, owner in enumerate(owners) if owner == i]]
            advantage = mine[::-1].cumsum()[::-1] if normalise_first else mine
            s = score(length)
            # The turn's reward comes before the decision to go on: credit is what follows the decision.
            if normalise_first:
                total += probability * float((s * np.append(advantage[1:], 0.0)[: len(s)]).sum()) / N
            else:
                total += probability * float((s * decision_advantage(returns, i, len(s))).sum()) / N
    return total


def decision_advantage(returns: list[np.ndarray], own: int, decisions: int) -> np.ndarray:
    """Return after the decision minus the leave-one-out mean over episodes that reached the same decision."""
    follow = [np.append(r[1:], 0.0) for r in returns]
    values = [v for row in follow for v in row]
    owners = [i for i, row in enumerate(follow) for _ in row]
    turns = [t for row in follow for t in range(len(row))]
    loo = leave_one_out(values, owners, [turns])
    rows = [k for k, owner in enumerate(owners) if owner == own][:decisions]
    baseline = np.nan_to_num(loo.mean[rows])
    advantage: np.ndarray = np.asarray(values)[rows] - baseline
    return advantage


def true_gradient() -> float:
    total = 0.0
    for turns, probability in episodes():
        follow = np.append(np.array(REWARDS[:turns])[::-1].cumsum()[::-1][1:], 0.0)
        s = score(turns)
        total += probability * float((s * follow[: len(s)]).sum())
    return total


def test_return_first_then_leave_one_out_is_unbiased() -> None:
    np.testing.assert_allclose(expected_gradient(normalise_first=False), true_gradient(), atol=1e-12)


def test_normalise_then_sum_is_not() -> None:
    assert abs(expected_gradient(normalise_first=True) - true_gradient()) > 0.2 * abs(true_gradient())


def record(name: str, rewards: list[float], version: int) -> TrajectoryRecord:
    steps = [
        StepRecord(
            traj_id=name, turn=turn, segment=0, start=2 * turn + 1, end=2 * turn + 2, policy_version=version,
            behaviour_logprobs=np.log(np.array([STOP], dtype=np.float32)), r_local=reward, judge_revision="j",
        )
        for turn, reward in enumerate(rewards)
    ]  # fmt: skip
    return TrajectoryRecord(
        name, "task", "g", [np.arange(2 * len(rewards) + 1, dtype=np.int32)], steps, version
    )


def decisions(turns: int) -> list[float]:
    """What each decision of an episode earns at once: going on the reward of the next turn, stopping nothing."""
    return [*REWARDS[1:turns], *([0.0] if turns < MAX_TURNS else [])]


def expected_gradient_of(local_return: Literal["immediate", "rtg"]) -> float:
    """Exact expectation over all groups of three, through the algorithm itself."""
    settings = ProcessReplayConfig(
        alpha=0, beta=1, calibrate_beta=False, local_return=local_return, gamma=1, kappa=0, scale="none"
    )
    primed = ProcessReplay(settings)
    primed.ingest([record(f"zero{i}", [0.0] * MAX_TURNS, 0) for i in range(2)], 0)  # known baselines: 0
    state = primed.state_dict()
    total = 0.0
    for group in itertools.product(episodes(), repeat=N):
        algorithm = ProcessReplay(settings)
        algorithm.load_state_dict(state)
        rows = [record(str(i), decisions(turns), 1) for i, (turns, _) in enumerate(group)]
        algorithm.ingest(rows, 1)
        for row, (turns, _) in zip(rows, group, strict=True):
            values = [algorithm.advantage(row, step, algorithm.snapshot) for step in row.steps]
            total += float(np.prod([p for _, p in group]) * (score(turns) @ np.array(values))) / N
    return total


def test_process_replay_with_returns_to_go_is_unbiased() -> None:
    assert expected_gradient_of("rtg") == pytest.approx(true_gradient(), abs=1e-12)


def test_immediate_rewards_do_not_see_what_a_decision_leads_to() -> None:
    assert abs(expected_gradient_of("immediate") - true_gradient()) > 0.2 * abs(true_gradient())
