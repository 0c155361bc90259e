import math

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.policy_opt.advantages import mix
from axiomrm.policy_opt.diagnostics import advantage_diagnostics, episode_diagnostics
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.reward import Episode

NAN = math.nan


def episode(name: str, rewards: list[float], outcome: float, kind: str, **info: object) -> Episode:
    steps = [
        StepRecord(name, t, 0, 1, 2, 0, np.zeros(1, dtype=np.float32), r_local=r, r_parts={"p": r},
                   missing="failed:timeout" if math.isnan(r) else None)
        for t, r in enumerate(rewards)
    ]  # fmt: skip
    said = tuple(Message(role="assistant", tool_calls=(ToolCall(name="find"),)) for _ in rewards)
    record = TrajectoryRecord(name, name, "g", [], steps, 0, task_type=kind, outcome=outcome)
    return Episode(record, Trajectory(messages=said, id=name, metadata={"turns": [info] * len(rewards)}))


def test_means_are_over_rollouts_so_that_a_long_one_counts_once() -> None:
    found = episode_diagnostics(
        [
            episode("a", [1.0], 1.0, "x"),
            episode("b", [0.0, 0.0, 0.0, 0.0, NAN], 0.0, "y", error_kind="timeout"),
        ]
    )
    assert found["part/p_mean"] == 0.5 and found["part/p_missing_share"] == pytest.approx(1 / 6)
    assert found["reward/local_std"] == 0.5 and found["reward/outcome_std"] == 0.5
    assert (found["reward/success_type_x"], found["reward/success_type_y"]) == (1.0, 0.0)
    assert (found["reward/success_turns_to4"], found["reward/success_turns_5to8"]) == (1.0, 0.0)
    assert (found["env/tool_calls"], found["env/error_timeout"], found["judge/missing_failed"]) == (
        6.0,
        5.0,
        1.0,
    )


def test_nothing_known_is_nan_and_never_zero() -> None:
    found = episode_diagnostics([episode("a", [NAN], NAN, "x")])
    assert math.isnan(found["part/p_mean"]) and math.isnan(found["reward/outcome_std"])
    assert "reward/success_type_x" not in found


def test_shares_of_advantages_by_hand() -> None:
    found = advantage_diagnostics([(1.0, -1.0), (1.0, 1.0), (NAN, 1.0)], [0.0, 3.0, -3.0, 1.0, NAN])
    assert found == {
        "advantage/zero_share": 0.25, "advantage/clipped_share": 0.5, "advantage/sign_conflict_share": 0.5,
    }  # fmt: skip
    assert all(math.isnan(value) for value in advantage_diagnostics([], []).values())


def test_what_the_mix_clips_is_what_is_counted_as_clipped() -> None:
    most = mix(1e6, NAN, alpha=1.0, beta_eff=0.0)
    found = advantage_diagnostics([], [most, -most, most - 1e-6, 0.0])
    assert found["advantage/clipped_share"] == 0.5
