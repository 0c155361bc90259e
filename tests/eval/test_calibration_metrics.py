import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.errors import DataError
from axiomrm.eval.calibration import (
    CalibrationItem,
    calibration_change,
    calibration_metrics,
    equal_count_bins,
)


def items(*pairs: tuple[float | None, float]) -> list[CalibrationItem]:
    return [CalibrationItem(p, y) for p, y in pairs]


def test_a_reliability_table_worked_by_hand() -> None:
    # two bins: (.2, .4 | gold 0, 1) and (.6, .8 | gold 1, 1)
    found = calibration_metrics(items((0.2, 0), (0.4, 1), (0.6, 1), (0.8, 1)), bins=2)
    assert [(b.n, b.low, b.high) for b in found.table] == [(2, 0.2, 0.4), (2, 0.6, 0.8)]
    assert [b.predicted for b in found.table] == pytest.approx([0.3, 0.7])
    assert [b.gold for b in found.table] == [0.5, 1]
    # gaps .2 and .3, weights 1/2; squares .04 + .36 + .16 + .04
    assert found.ece.value == pytest.approx(0.25)
    assert found.brier.value == pytest.approx(0.15)
    assert found.nll.value == pytest.approx(-sum(map(math.log, (0.8, 0.4, 0.6, 0.8))) / 4)
    assert found.mean_gold == 0.75


def test_brier_and_log_loss_agree_with_scikit_learn() -> None:
    from sklearn.metrics import brier_score_loss, log_loss

    rng = np.random.default_rng(0)
    p = rng.uniform(size=200)
    y = (rng.uniform(size=200) < p).astype(int)
    found = calibration_metrics(items(*zip(p.tolist(), y.tolist(), strict=True)), draws=100)
    assert found.brier.value == pytest.approx(brier_score_loss(y, p))
    assert found.nll.value == pytest.approx(log_loss(y, p))
    assert found.ece.value is not None and found.ece.value < 0.15
    assert found.brier.value is not None and found.brier.low is not None and found.brier.high is not None
    assert found.brier.low < found.brier.value < found.brier.high


def test_a_missing_verdict_is_counted_and_never_a_number() -> None:
    whole = calibration_metrics(items((0.3, 0), (0.9, 1)))
    holes = calibration_metrics(items((0.3, 0), (None, 1), (float("nan"), 0), (0.9, 1)))
    assert (holes.brier.value, holes.brier.n, holes.brier.missing) == (whole.brier.value, 2, 2)
    nothing = calibration_metrics(items((None, 1)))
    assert (nothing.ece.value, nothing.table, nothing.mean_gold) == (None, (), None)


def test_equal_predictions_share_a_bin() -> None:
    assert equal_count_bins(np.array([0.5] * 7 + [0.9]), 4).tolist() == [0] * 7 + [1]
    assert equal_count_bins(np.array([0.1, 0.2, 0.3, 0.4]), 2).tolist() == [0, 0, 1, 1]


def test_the_probability_of_the_gold_label_counts_where_there_are_more_than_two() -> None:
    found = calibration_metrics([CalibrationItem(0.5, 1.0, 0.25), CalibrationItem(0.5, 0.5, 0.5)])
    assert found.nll.value == pytest.approx((math.log(4) + math.log(2)) / 2)


def test_a_change_is_paired_and_needs_the_same_items() -> None:
    before, after = items((0.9, 0), (0.9, 1), (None, 1)), items((0.5, 0), (0.5, 1), (0.5, 1))
    change = calibration_change(before, after, draws=50)
    assert change.brier.value == pytest.approx(0.25 - (0.81 + 0.01) / 2)
    assert (change.brier.n, change.brier.missing) == (2, 1)
    same = calibration_change(before, before, draws=50)
    assert (same.ece.value, same.ece.low, same.ece.high) == (0, 0, 0)
    with pytest.raises(DataError, match="same labelled items"):
        calibration_change(before, after[:2])


def test_intervals_draw_whole_groups() -> None:
    alone = [CalibrationItem(0.5 + 0.4 * (i % 2), 1.0, group=str(i)) for i in range(40)]
    paired = [i._replace(group=str(n % 2)) for n, i in enumerate(alone)]
    a, b = calibration_metrics(alone, draws=400).brier, calibration_metrics(paired, draws=400).brier
    assert a.value == b.value
    assert None not in (a.low, a.high, b.low, b.high)
    assert (b.high or 0) - (b.low or 0) > (a.high or 0) - (a.low or 0)


def test_the_interval_of_the_calibration_error_holds_its_estimate() -> None:
    rng = np.random.default_rng(1)
    p = rng.uniform(0.45, 0.55, size=150)
    y = (rng.uniform(size=150) < 0.5).astype(float)
    found = calibration_metrics(items(*zip(p.tolist(), y.tolist(), strict=True)), draws=300).ece
    assert found.low is not None and found.high is not None and found.value is not None
    assert 0 <= found.low < found.value < found.high


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=30))
def test_order_does_not_matter_and_the_error_lies_between_bias_and_one(
    pairs: list[tuple[float, float]],
) -> None:
    forth = calibration_metrics(items(*pairs), draws=2)
    back = calibration_metrics(items(*reversed(pairs)), draws=2)
    assert forth.ece.value == pytest.approx(back.ece.value)
    bias = abs(sum(p - y for p, y in pairs)) / len(pairs)
    assert forth.ece.value is not None and bias - 1e-9 <= forth.ece.value <= 1 + 1e-9
    assert sum(b.n for b in forth.table) == len(pairs)
