import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.errors import DataError
from axiomrm.policy_opt.advantages import (
    effective_beta,
    group_advantages,
    group_discrimination,
    leave_one_out,
    mix,
    per_owner_std,
    scaled,
    shrink,
    spearman,
    zero_share,
)
from axiomrm.policy_opt.algorithms.grpo import grpo_advantages

NAN = float("nan")
reward_lists = st.lists(st.floats(-10, 10), min_size=2, max_size=8)


def test_leave_one_out_by_hand() -> None:
    # others of 1.0: (0, 1) -> 0.5; of 0.0: (1, 1) -> 1
    got = group_advantages([1.0, NAN, 0.0, 1.0], ["g"] * 4)
    np.testing.assert_allclose(got, [0.5, NAN, -1.0, 0.5])


@given(reward_lists)
def test_leave_one_out_is_rloo(rewards: list[float]) -> None:
    n, total = len(rewards), sum(rewards)
    expected = [r - (total - r) / (n - 1) for r in rewards]
    np.testing.assert_allclose(group_advantages(rewards, ["g"] * n), expected, atol=1e-9)


@given(reward_lists)
def test_leave_one_out_is_the_group_mean_form_times_m_over_m_minus_1(rewards: list[float]) -> None:
    m = len(rewards)
    centred = grpo_advantages(rewards, ["g"] * m, scale="none")
    np.testing.assert_allclose(group_advantages(rewards, ["g"] * m), centred * m / (m - 1), atol=1e-9)


@given(reward_lists, st.data())
def test_a_missing_reward_is_a_deleted_sample(rewards: list[float], data: st.DataObject) -> None:
    hole = data.draw(st.integers(0, len(rewards)))
    with_hole = [*rewards[:hole], NAN, *rewards[hole:]]
    for scale in ("none", "batch", "group"):
        whole = group_advantages(with_hole, ["g"] * len(with_hole), scale=scale)
        alone = group_advantages(rewards, ["g"] * len(rewards), scale=scale)
        assert np.isnan(whole[hole])
        np.testing.assert_allclose(np.delete(whole, hole), alone, atol=1e-9)


def test_an_infinite_reward_is_an_error_that_names_its_place() -> None:
    with pytest.raises(DataError, match="reward 1"):
        group_advantages([1.0, float("inf"), 0.0], ["g"] * 3)


def test_a_singleton_gets_the_running_statistic_and_neither_zero_nor_its_raw_reward() -> None:
    assert group_advantages([1.0], ["g"], b_ema=0.6) == pytest.approx([0.4])
    assert np.isnan(group_advantages([0.8], ["g"])).all()


def test_shrinkage_by_hand() -> None:
    # m = 3, kappa = 2: 2/4 of the group mean and 2/4 of the statistic
    assert shrink(1.0, 3, 0.0, 2.0) == 0.5
    assert shrink(1.0, 3, NAN, 2.0) == 1.0
    assert shrink(NAN, 1, 0.3, 2.0) == 0.3
    assert np.isnan(shrink(NAN, 1, NAN, 2.0))


def test_the_finest_level_with_company_serves() -> None:
    got = leave_one_out([1.0, 3.0, 5.0], ["a", "b", "c"], [["s", "s", None], ["g", "g", "g"]])
    np.testing.assert_allclose(got.mean, [3.0, 1.0, 2.0])
    assert got.level.tolist() == [0, 0, 1]
    assert got.m.tolist() == [2, 2, 3]


def test_a_trajectory_that_revisits_a_state_is_not_in_its_own_baseline() -> None:
    got = leave_one_out([1.0, 9.0, 4.0], ["a", "a", "b"], [["s", "s", "s"]])
    np.testing.assert_allclose(got.mean, [4.0, 4.0, 5.0])


def test_equal_float32_rewards_stay_without_signal_under_batch_scaling() -> None:
    rewards = [float(np.float32(0.85) + np.float32(1e-7) * (i % 2)) for i in range(7)]
    assert np.abs(group_advantages(rewards, ["g"] * 7, scale="batch")).max() < 1e-5


def test_the_scale_weighs_trajectories_not_steps() -> None:
    # one long trajectory of zeros and one single step of 1: mean 1/2, deviation 1/2
    assert per_owner_std([0.0, 0.0, 0.0, 0.0, 1.0], ["a", "a", "a", "a", "b"]) == pytest.approx(0.5)


def test_a_scale_needs_two_trajectories() -> None:
    assert np.isnan(per_owner_std([0.0, 1.0, 0.5], ["a", "a", "a"]))
    assert np.isnan(per_owner_std([0.0, 1.0, NAN], ["a", "a", "b"]))
    assert per_owner_std([0.0, 1.0, NAN], ["a", "b", "b"]) == 0.5


def test_a_scale_is_floored_and_an_unknown_one_is_the_declared_range() -> None:
    assert scaled(0.3, 0.6, 2.0) == 0.5
    assert scaled(0.3, 0.01, 2.0) == pytest.approx(3.0)  # the floor is 0.1
    assert scaled(0.3, NAN, 2.0) == 0.15
    # alone, against the running statistic of 0.5, on a range of 2
    assert group_advantages([1.0], ["g"], b_ema=0.5, scale="batch", reward_range=2.0).tolist() == [0.25]


def test_an_advantage_that_is_only_rounding_is_zero_and_a_missing_one_is_neither() -> None:
    assert zero_share([0.0, -1.4e-13, 9e-7, 1.1e-6, NAN]) == 0.75
    assert np.isnan(zero_share([NAN])) and np.isnan(zero_share([]))


def test_mixing_leaves_a_missing_term_out() -> None:
    assert mix(0.8, NAN, alpha=1.0, beta_eff=0.5) == 0.8
    assert mix(-0.8, 0.4, alpha=1.0, beta_eff=0.5) == pytest.approx(-0.6)
    assert np.isnan(mix(NAN, NAN, alpha=1.0, beta_eff=0.5))
    assert mix(9.0, 9.0, alpha=1.0, beta_eff=0.5) == 3.0


def test_local_only_and_outcome_only_agree_where_both_say_the_same() -> None:
    assert mix(0.7, 0.7, alpha=0.0, beta_eff=1.0) == mix(0.7, 0.7, alpha=1.0, beta_eff=0.0)


def test_spearman_with_ties_by_hand() -> None:
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1.0)
    assert spearman([3, 2, 1], [10, 20, 30]) == pytest.approx(-1.0)
    # ranks (1, 2, 3) and (1.5, 1.5, 3): covariance 1.5, norms sqrt(2 * 1.5)
    assert spearman([1, 2, 3], [0, 0, 1]) == pytest.approx(1.5 / np.sqrt(2 * 1.5))


def test_discrimination_needs_an_outcome_that_varies() -> None:
    assert np.isnan(group_discrimination([0.1, 0.9], [1.0, 1.0]))
    assert np.isnan(group_discrimination([0.1, NAN], [1.0, 0.0]))
    assert group_discrimination([0.5, 0.5], [1.0, 0.0]) == 0.0


def test_beta_fades_with_discrimination() -> None:
    assert [effective_beta(0.5, d) for d in (-0.3, 0.0, 0.1, 0.2, 0.9)] == [0.0, 0.0, 0.25, 0.5, 0.5]
