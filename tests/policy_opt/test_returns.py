import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.policy_opt.returns import immediate, local_returns, progress_delta, return_to_go

NAN = float("nan")


def test_one_discount_a_turn() -> None:
    # 0.4 + 0.5*1 = 0.9; 0 + 0.5*0.9 = 0.45
    np.testing.assert_allclose(return_to_go([0.0, 0.4, 1.0], gamma=0.5), [0.45, 0.9, 1.0])


def test_a_missing_reward_only_hides_the_returns_that_need_it() -> None:
    got = return_to_go([0.5, NAN, 1.0])
    assert math.isnan(got[0]) and math.isnan(got[1])
    assert got[2] == 1.0


def test_a_cut_tail_is_replaced_by_the_baseline_at_the_cut() -> None:
    np.testing.assert_allclose(return_to_go([0.2, 0.4], gamma=0.95, tail=0.5), [1.03125, 0.875])


def test_a_cut_without_a_baseline_is_missing_not_zero() -> None:
    assert np.isnan(return_to_go([0.2, 0.4], tail=NAN)).all()


def test_the_cost_of_a_turn_is_taken_off_each_turn() -> None:
    # (1-0.5) = 0.5; (0-0.5) + 1*0.5 = 0
    np.testing.assert_allclose(return_to_go([0.0, 1.0], gamma=1.0, cost=0.5), [0.0, 0.5])


def test_deltas_telescope() -> None:
    delta = progress_delta([0.1, 0.4, 0.3], terminal=1.0, gamma=1.0)
    np.testing.assert_allclose(delta, [0.3, -0.1, 0.7])
    assert delta.sum() == pytest.approx(1.0 - 0.1)


def test_a_missing_state_value_hides_both_deltas_around_it() -> None:
    got = progress_delta([0.1, NAN, 0.3], terminal=1.0)
    assert np.isnan(got).tolist() == [True, True, False]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=1), st.sampled_from(["immediate", "rtg"]))
def test_with_one_turn_every_local_return_is_the_reward(rewards: list[float], kind: str) -> None:
    got = local_returns(kind, rewards, [NAN], gamma=0.95, cost=0.0, tail=0.0, terminal=NAN)  # type: ignore[arg-type]  # drawn
    np.testing.assert_allclose(got, immediate(rewards))
