import math

import numpy as np
import pytest

from axiomrm.eval.curves import Crossing, Point, area, best_rate, first_crossing, rollouts_to
from axiomrm.eval.policy import (
    Outcomes,
    behaviour,
    pass_hat_k,
    probability_of_improvement,
    success,
    success_by_task,
    success_gain,
    task_rates,
)
from axiomrm.eval.worth import Arm, Cost, worth_table

NAN = float("nan")


def test_a_missing_outcome_is_no_failure() -> None:
    found = success([1.0, 0.0, None, NAN, 0.999, 1.0])
    assert found.value == 0.5 and (found.n, found.missing) == (4, 2)
    assert success([None]).value is None


def test_tasks_count_equally_however_many_rollouts_they_have() -> None:
    outcomes: Outcomes = {"a": [1.0] * 8, "b": [0.0], "c": [None]}
    assert task_rates(outcomes).tolist()[:2] == [1.0, 0.0] and math.isnan(task_rates(outcomes)[2])
    found = success_by_task([outcomes])
    assert found.value == 0.5 and (found.n, found.missing) == (9, 1)


def test_one_rollout_a_task_has_the_wilson_interval() -> None:
    scores = [float(i % 3 == 0) for i in range(30)]
    assert success_by_task([{str(i): [s] for i, s in enumerate(scores)}]) == success(scores)


def test_success_of_nobody_keeps_an_interval_over_seeds() -> None:
    found = success_by_task([{"a": [0.0, 0.0]}, {"a": [0.0, 0.0]}])
    assert found.value == 0.0 and found.high is not None and found.high > 0.3


def test_a_gain_is_paired_by_task() -> None:
    rng = np.random.default_rng(0)
    hard = {f"t{i}": float(rng.random() < 0.5) for i in range(60)}
    a = {t: (min(1.0, s + float(i % 6 == 0)),) for i, (t, s) in enumerate(hard.items())}
    b = {t: (s,) for t, s in hard.items()}
    found = success_gain([a], [b])
    expected = np.mean([a[t][0] - b[t][0] for t in a])
    assert found.value == pytest.approx(expected)
    assert found.high is not None and found.low is not None and found.high - found.low < 0.2
    assert success_gain([{"x": (1.0,)}], [{"y": (0.0,)}]).value is None, "no common task"
    with pytest.raises(ValueError, match="3 seeds against 2"):
        success_gain([a] * 3, [b] * 2)


def test_a_gain_of_everything_keeps_an_interval() -> None:
    a, b = {f"t{i}": (1.0,) for i in range(20)}, {f"t{i}": (0.0,) for i in range(20)}
    found = success_gain([a], [b])
    # Newcombe: 1 − sqrt(2) · (1 − 20 / (20 + z²))
    assert found.value == 1.0
    assert found.low == pytest.approx(1 - math.sqrt(2) * (1 - 20 / (20 + 1.959964**2)), abs=1e-5)


def wilson_low(n: int, z: float = 1.959964) -> float:
    """Of ``n`` successes in ``n``."""
    return n / (n + z * z)


def test_a_gain_of_everything_takes_confidence_and_threshold() -> None:
    a, b = {f"t{i}": (0.6,) for i in range(20)}, {f"t{i}": (0.4,) for i in range(20)}
    for confidence, z in ((0.5, 0.67449), (0.95, 1.959964), (0.99, 2.575829)):
        found = success_gain([a], [b], threshold=0.5, confidence=confidence)
        assert (found.value, found.confidence) == (1.0, confidence)
        assert found.low == pytest.approx(1 - math.sqrt(2) * (1 - wilson_low(20, z)), abs=1e-5)


def test_a_gain_without_spread_stands_on_the_tasks_that_both_have() -> None:
    a = {f"t{i}": (1.0,) for i in range(200)} | {"u": (1.0,)}
    b = {f"t{i}": (1.0,) for i in range(198, 398)} | {"u": (None,)}
    found = success_gain([a], [b])
    reach = 1 - wilson_low(2)  # two tasks, of which both solve 2
    assert (found.value, found.n) == (0.0, 2)
    assert (found.low, found.high) == pytest.approx((-reach, reach), abs=1e-5)


def test_one_policy_that_stands_for_all_seeds_counts_once() -> None:
    a, b = {f"t{i}": (1.0,) for i in range(5)}, {f"t{i}": (0.0,) for i in range(5)}
    found = success_gain([a] * 3, [b])
    assert found.value == 1.0
    expected = 1 - math.hypot(1 - wilson_low(15), 1 - wilson_low(5))
    assert found.low == pytest.approx(expected, abs=1e-5)


def test_equal_rates_of_all_tasks_have_the_interval_of_their_rollouts() -> None:
    half = success_by_task([{f"t{i}": (1.0, 0.0) for i in range(5)}])
    assert half == success([1.0, 0.0] * 5)
    assert half.value == 0.5 and half.low is not None and half.low < 0.3
    assert success_by_task([{"t": (1.0, 0.0)}]).low is None, "one task has no interval over tasks"


def rates(solved: int, of: int, seeds: int) -> list[dict[str, list[float]]]:
    """Each seed has a task more than the one before; all have the same rate."""
    group = [1.0] * solved + [0.0] * (of - solved)
    return [{f"t{i}": group for i in range(7 + seed)} for seed in range(seeds)]


def test_equal_rates_are_equal_whatever_the_last_digit_of_their_means() -> None:
    # The mean of seven .7 is not that of eleven in floats, so the draws differ by 1e-16.
    found = success_by_task(rates(7, 10, 5))
    assert found == success([1.0] * 7 * 45 + [0.0] * 3 * 45)
    gain = success_gain(rates(7, 10, 5), rates(6, 10, 5))
    assert gain.method == "newcombe" and gain.low is not None and gain.low < 0.05


def test_pass_hat_k_by_hand() -> None:
    # task a: 3 of 4 succeed, C(3,2)/C(4,2) = 3/6; task b: all; task c: one known outcome, missing for k = 2
    outcomes: Outcomes = {"a": [1.0, 1.0, 1.0, 0.0], "b": [1.0, 1.0], "c": [1.0, None]}
    found = pass_hat_k(outcomes, 2)
    assert found.value == pytest.approx((0.5 + 1.0) / 2) and found.missing == 1
    assert pass_hat_k(outcomes, 1).value == pytest.approx((0.75 + 1 + 1) / 3)


def test_pass_hat_k_of_all_or_none_has_the_wilson_interval_of_its_tasks() -> None:
    every = pass_hat_k({f"t{i}": [1.0, 1.0] for i in range(3)} | {"u": [1.0]}, 2)
    assert (every.value, every.high, every.n, every.missing) == (1.0, 1.0, 3, 1)
    assert every.low == pytest.approx(wilson_low(3), abs=1e-5) and every.method == "wilson"
    none = pass_hat_k({f"t{i}": [0.0, 0.0] for i in range(3)}, 2)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(1 - wilson_low(3), abs=1e-5)
    one = pass_hat_k({"t": [1.0, 1.0]}, 2)
    assert (one.value, one.low, one.high) == (1.0, None, None), "an interval needs two tasks"


def test_no_opportunity_is_left_out_of_a_behavioural_mean() -> None:
    found = behaviour([[{"recovery": None, "turns": 4}, {"recovery": 1.0, "turns": 6}, {"turns": 8}]])
    assert found["recovery"].value == 1.0 and (found["recovery"].n, found["recovery"].missing) == (1, 2)
    assert found["turns"].value == 6.0


def test_probability_of_improvement_by_hand() -> None:
    # pairs of (2, 3) against (1, 2): 2>1, 2=2, 3>1, 3>2
    assert probability_of_improvement([2.0, 3.0], [1.0, 2.0]).value == pytest.approx(3.5 / 4)
    assert probability_of_improvement([NAN], [1.0]).value is None


def test_a_run_that_always_wins_has_the_wilson_interval_of_the_fewer_runs() -> None:
    found = probability_of_improvement([3.0, 4.0, 5.0, 6.0], [1.0, 2.0, NAN, 2.5])
    assert (found.value, found.high, found.n, found.missing) == (1.0, 1.0, 7, 1)
    assert found.low == pytest.approx(wilson_low(3), abs=1e-5) and found.method == "wilson"
    wide = probability_of_improvement([3.0, 4.0], [1.0, 2.0], confidence=0.99)
    assert wide.low == pytest.approx(wilson_low(2, 2.575829), abs=1e-5)
    assert probability_of_improvement([3.0], [1.0, 2.0]).low is None


def curve(*values: float | None, step: int = 64) -> list[Point]:
    return [Point(i * step, v) for i, v in enumerate(values)]


def test_a_run_crosses_at_its_first_evaluation_at_the_target() -> None:
    assert first_crossing(curve(0.1, None, 0.5, 0.4, 0.9)) == Crossing(128, False)
    assert first_crossing(curve(0.1, 0.2, 0.3)) == Crossing(128, True)
    assert first_crossing(curve(None, NAN)) is None


def test_a_run_that_never_crosses_is_neither_dropped_nor_counted_as_the_budget() -> None:
    fast, slow, never = curve(0.1, 0.6, 0.6), curve(0.1, 0.2, 0.6), curve(0.1, 0.2, 0.3)
    found = rollouts_to([fast, slow, never])
    assert (found.median, found.bounded, found.censored, found.runs) == (128, False, 1, 3)
    assert found.high is None and found.high_unbounded and found.low == 64
    assert found.text() == "128 [64, > 128] (1 of 3 never)"
    two = rollouts_to([fast, never, never])
    assert (two.median, two.bounded) == (128, True) and two.text().startswith("> 128")


def test_a_median_between_a_time_and_a_censored_run_is_a_bound() -> None:
    found = rollouts_to([curve(0.1, 0.6, 0.6), curve(0.1, 0.2, 0.3)])
    assert (found.median, found.bounded) == (64, True)
    assert rollouts_to([curve(0.6), curve(0.1, 0.6)]).median == 32


def test_no_runs_is_not_measured() -> None:
    assert rollouts_to([]).text() == "not measured" and rollouts_to([curve(None)]).median is None


def test_the_best_rate_is_the_one_that_gets_there_first_and_a_bound_loses() -> None:
    fast, slow, never = curve(0.1, 0.6, 0.6), curve(0.1, 0.2, 0.6), curve(0.1, 0.2, 0.3)
    assert best_rate({1e-3: [slow], 3e-4: [fast], 1e-4: [never]}) == 3e-4
    assert best_rate({1e-3: [slow], 1e-4: [never]}) == 1e-3
    assert best_rate({1e-3: [slow], 3e-4: [curve(0.1, 0.4, 0.6)]}) == 3e-4, "a tie goes to the greater area"
    assert best_rate({}) is None


def test_area_by_hand_skips_what_is_not_known() -> None:
    # trapezoids over 0..64..192: (0+.5)/2·64 + (.5+1)/2·128 = 16 + 96, over 192
    assert area([Point(0, 0.0), Point(64, 0.5), Point(128, None), Point(192, 1.0)]) == pytest.approx(
        112 / 192
    )
    assert area([Point(0, 0.3)]) is None


def arm(role: str, rate: float, tokens: float | None = 1000.0, seeds: int = 1) -> Arm:
    rng = np.random.default_rng(int(rate * 100))
    outcomes = tuple({f"t{i}": (float(rng.random() < rate),) for i in range(200)} for _ in range(seeds))
    return Arm.model_validate(
        {"name": role, "role": role, "outcomes": outcomes, "cost": Cost(generated_tokens=tokens)}
    )


def test_was_rl_worth_it() -> None:
    start, best = arm("cold_start", 0.2, None), arm("best_of_k", 0.4)
    table = worth_table([start, best, arm("rl", 0.7)])
    assert table.answer == "yes" and table.equal_compute is True and table.compared_cost == "generated tokens"
    assert table.rows[0].over_cold_start.value is None
    assert table.rows[2].over_cold_start.value == pytest.approx(0.5, abs=0.1)
    assert worth_table([start, best, arm("rl", 0.42)]).answer == "undecided"
    assert worth_table([start, best, arm("rl", 0.1)]).answer == "no"


def test_unequal_or_unknown_compute_is_said() -> None:
    start, best = arm("cold_start", 0.2), arm("best_of_k", 0.4)
    dear = worth_table([start, best, arm("rl", 0.7, 5000.0)])
    assert dear.equal_compute is False and "not equal" in dear.reason
    unknown = worth_table([start, best, arm("rl", 0.7, None)])
    assert unknown.equal_compute is None and "not recorded" in unknown.reason


def test_what_was_not_run_is_not_measured() -> None:
    assert worth_table([]).answer == "not measured"
    assert worth_table([arm("cold_start", 0.2)]).answer == "not measured"
    only = worth_table([arm("cold_start", 0.2), arm("rl", 0.7)])
    assert only.answer == "yes" and "the cold start" in only.reason
    with pytest.raises(ValueError, match="'rl'"):
        worth_table([arm("rl", 0.1), arm("rl", 0.2)])


def test_an_interval_of_runs_that_never_cross_has_no_lower_end() -> None:
    found = rollouts_to([[Point(0, 0.1), Point(64, 0.2)]] * 3)
    assert found.low is None and found.high is None and found.high_unbounded
    assert found.text() == "> 64 (3 of 3 never)"
