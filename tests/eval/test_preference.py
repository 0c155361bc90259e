import math

import pytest

from axiomrm.eval.preference import PairItem, by_subset, credit, preference_metrics

NAN = float("nan")


def test_credit_by_hand() -> None:
    assert credit("a", 0.9, 0.1) == 1.0 and credit("b", 0.9, 0.1) == 0.0
    assert credit("b", 0.4, 0.4) == 0.5 and credit("a", 0.40, 0.45, margin=0.1) == 0.5
    assert math.isnan(credit("a", None, 0.4)) and math.isnan(credit("a", 0.4, NAN))
    assert math.isnan(credit("tie", 0.4, 0.4)), "no choice, no accuracy"


def test_accuracy_with_ties_missing_and_bounds_by_hand() -> None:
    items = [
        PairItem("a", 0.9, 0.1),  # right
        PairItem("b", 0.9, 0.1),  # wrong
        PairItem("a", 0.5, 0.5),  # tied
        PairItem("b", 0.1, 0.2),  # right
        PairItem("a", None, 0.2),  # missing
    ]
    found = preference_metrics([items])
    assert found.accuracy.value == pytest.approx(2.5 / 4)
    assert (found.accuracy.n, found.accuracy.missing) == (4, 1)
    assert found.strict_accuracy == pytest.approx(2 / 4) and found.tie_rate == pytest.approx(1 / 4)
    assert (found.lower_bound, found.upper_bound) == pytest.approx((2.5 / 5, 3.5 / 5))


def test_pairs_without_a_choice_are_reported_apart() -> None:
    items = [
        PairItem("tie", 0.5, 0.5),
        PairItem("tie", 0.5, 0.9),
        PairItem("tie", None, 0.9),
        PairItem("a", 1.0, 0.0),
    ]
    found = preference_metrics([items])
    assert found.label_ties == 3
    assert found.label_ties_found.value == 0.5 and found.label_ties_found.missing == 1
    assert found.accuracy.value == 1.0 and found.accuracy.low is not None and found.accuracy.low < 1.0


def test_a_judge_that_always_ties_is_a_coin() -> None:
    found = preference_metrics([[PairItem("a" if i % 3 else "b", 0.5, 0.5) for i in range(30)]])
    assert found.accuracy.value == 0.5 and found.strict_accuracy == 0.0


def test_nothing_scored_is_not_measured() -> None:
    found = preference_metrics([[PairItem("a", None, None)]])
    assert found.accuracy.value is None and found.accuracy.missing == 1
    assert found.strict_accuracy is None and (found.lower_bound, found.upper_bound) == (0.0, 1.0)
    assert preference_metrics([]).lower_bound is None


def test_swapping_the_two_sides_changes_nothing() -> None:
    other = {"a": "b", "b": "a", "tie": "tie"}
    items = [
        PairItem("a", 0.9, 0.3),
        PairItem("b", 0.2, 0.1),
        PairItem("tie", 0.2, 0.2),
        PairItem("a", 0.5, 0.5),
    ]
    swapped = [PairItem(other[i.label], i.score_b, i.score_a) for i in items]  # type: ignore[arg-type]
    assert preference_metrics([items]) == preference_metrics([swapped])


def test_subsets_and_groups() -> None:
    items = [
        PairItem("a", float(i % 4 > 0), 0.5, subset="x" if i < 40 else "y", group=f"g{i // 4}")
        for i in range(60)
    ]
    found = by_subset([items])
    assert list(found) == ["x", "y"] and found["x"].accuracy.n == 40
    assert found["x"].accuracy.value == 0.75
    assert found["x"].accuracy.low == found["x"].accuracy.high == 0.75, "all groups are alike"
    alone = preference_metrics([[i._replace(group="") for i in items]]).accuracy
    assert alone.low is not None and alone.low < 0.7


def test_seeds_count_equally() -> None:
    good, bad = (
        [PairItem("a", 1.0, 0.0)] * 90 + [PairItem("a", 0.0, 1.0)] * 10,
        [PairItem("a", 0.0, 1.0)] * 10,
    )
    assert preference_metrics([good, bad]).accuracy.value == pytest.approx((0.9 + 0.0) / 2)
