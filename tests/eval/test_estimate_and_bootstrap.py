import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from axiomrm.eval.bootstrap import bootstrap, hierarchical, iqm, over_seeds, paired_difference
from axiomrm.eval.estimate import NOT_MEASURED, Estimate, wilson

NAN = float("nan")


def test_wilson_agrees_with_scipy() -> None:
    for successes, n in [(0, 10), (3, 10), (10, 10), (155, 200)]:
        found = wilson(successes, n)
        expected = stats.binomtest(successes, n).proportion_ci(method="wilson")
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_wilson_of_ten_of_ten_by_hand() -> None:
    # z = 1.96: lower end of k = n is n / (n + z²) = 10 / 13.8415
    assert wilson(10, 10).low == pytest.approx(10 / (10 + 1.959964**2), abs=1e-6)
    assert wilson(10, 10).high == 1.0


def test_nothing_known_is_not_measured_and_counts_what_is_missing() -> None:
    assert wilson(0, 0, missing=4) == Estimate(value=None, missing=4)
    assert bootstrap([NAN, NAN]) == Estimate(value=None, missing=2)
    assert wilson(0, 0).percent() == NOT_MEASURED.percent() == "not measured"
    assert NOT_MEASURED.coverage is None


def test_missing_values_are_left_out_and_counted() -> None:
    found = bootstrap([1.0, NAN, 0.0, 1.0, NAN])
    assert found.value == pytest.approx(2 / 3)
    assert (found.n, found.missing, found.coverage) == (3, 2, 0.6)
    assert bootstrap([1.0, 0.0, 1.0]) == found.model_copy(update={"missing": 0})


def test_one_item_has_no_interval() -> None:
    found = bootstrap([0.7])
    assert (found.value, found.low, found.high) == (0.7, None, None)


def test_the_interval_is_close_to_scipys_percentile_bootstrap() -> None:
    values = np.random.default_rng(1).beta(2, 5, size=80)
    ours = bootstrap(values, draws=4000)
    theirs = stats.bootstrap(
        (values,), np.mean, method="percentile", n_resamples=4000, rng=2
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.006)


def test_the_interval_covers_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        found = bootstrap(rng.random(60), draws=300, seed=trial)
        assert found.low is not None and found.high is not None
        hits += found.low <= 0.5 <= found.high
    assert 0.90 <= hits / 300 <= 0.985


def test_the_same_seed_gives_the_same_interval() -> None:
    values = [0.1, 0.5, 0.9, 0.2]
    assert bootstrap(values, seed=4) == bootstrap(values, seed=4)
    assert bootstrap(values, seed=4).low != bootstrap(values, seed=5).low


@given(st.lists(st.floats(0, 1), min_size=2, max_size=12), st.floats(-3, 3))
@settings(max_examples=30, deadline=None)
def test_shifting_all_values_shifts_value_and_interval(values: list[float], shift: float) -> None:
    a, b = bootstrap(values, draws=100), bootstrap([v + shift for v in values], draws=100)
    assert a.low is not None and a.high is not None and a.value is not None
    assert (b.value, b.low, b.high) == pytest.approx(
        (a.value + shift, a.low + shift, a.high + shift), abs=1e-9
    )
    assert a.low - 1e-9 <= a.value <= a.high + 1e-9


def test_paired_difference_needs_both_sides() -> None:
    found = paired_difference([1.0, 1.0, NAN, 0.5], [0.0, NAN, 0.0, 0.0])
    assert (found.value, found.n, found.missing) == (0.75, 2, 2)
    with pytest.raises(ValueError, match="same items"):
        paired_difference([1.0], [1.0, 2.0])


def test_the_interquartile_mean_by_hand_and_by_scipy() -> None:
    # 8 values: two are cut at each end, the mean of 2, 3, 4, 5 is left
    assert iqm([100, 0, 1, 2, 3, 4, 5, 6]) == pytest.approx((2 + 3 + 4 + 5) / 4)
    values = np.random.default_rng(0).random(19)
    assert iqm(values) == pytest.approx(stats.trim_mean(values, 0.25))
    assert iqm([3.0, NAN]) == 3.0 and math.isnan(iqm([NAN])) and math.isnan(iqm([]))


def test_seeds_count_equally_however_many_items_they_have() -> None:
    assert hierarchical([[1.0] * 90, [0.0] * 10]).value == 0.5
    assert hierarchical([[1.0, NAN], [0.0], [NAN]]).value == 0.5
    assert hierarchical([[1.0, NAN], [0.0], [NAN]]).missing == 2


def test_one_seed_is_the_plain_bootstrap() -> None:
    values = np.random.default_rng(3).random(30)
    assert hierarchical([values]) == bootstrap(values)


def test_disagreeing_seeds_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    agreeing = hierarchical([rng.normal(0.5, 0.1, 50) for _ in range(3)])
    apart = hierarchical([rng.normal(m, 0.1, 50) for m in (0.2, 0.5, 0.8)])
    width = [e.high - e.low for e in (agreeing, apart) if e.low is not None and e.high is not None]
    assert width[1] > 5 * width[0]


def test_draws_over_seeds_reach_from_all_best_to_all_worst() -> None:
    drawn = over_seeds([np.zeros(5000), np.ones(5000)], np.random.default_rng(0))
    values, counts = np.unique(drawn, return_counts=True)  # two picks of two seeds: 1/4, 1/2, 1/4
    assert values.tolist() == [0.0, 0.5, 1.0]
    assert counts / 5000 == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
