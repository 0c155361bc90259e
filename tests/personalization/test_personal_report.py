import math

import pytest

from axiomrm.errors import DataError
from axiomrm.personalization.judging import PairScores
from axiomrm.personalization.report import personal_report
from axiomrm.personalization.simulate import UserPair


def _row(user: str, g: float | None, p: float | None, s: float | None, equal: bool = False) -> PairScores:
    return PairScores(UserPair(user, "a", "b", "t", "a", equal), g, p, s)


ROWS = [
    _row("u1", 1, 1, 0), _row("u1", 0, 1, 1, True),  # generic 1/2, personal 1, swapped 1/2
    _row("u2", 1, 0, 0),  # personal 0: harmed
    _row("u3", 0.5, 1, 0.5, True), _row("u3", 0.5, 1, 0.5, True),
]  # fmt: skip


def test_users_count_alike_whatever_their_number_of_pairs() -> None:
    report = personal_report(ROWS)
    assert report.all.generic.value == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert report.all.personal.value == pytest.approx((1 + 0 + 1) / 3)
    assert report.all.gain.value == pytest.approx((0.5 - 1 + 0.5) / 3)
    assert report.all.swapped_gain.value == pytest.approx((0 - 1 + 0) / 3)
    assert (report.all.pairs, report.all.gain.n) == (5, 3)
    assert report.harmed == pytest.approx(1 / 3)
    assert report.worst_tenth == 0.0


def test_the_equal_quality_subset_stands_apart() -> None:
    equal = personal_report(ROWS).equal_quality
    assert (equal.pairs, equal.personal.n, equal.personal.value) == (3, 2, 1.0)
    assert equal.generic.value == pytest.approx((0 + 0.5) / 2)


def test_a_pair_that_one_arm_lacks_is_left_out_of_all() -> None:
    report = personal_report([*ROWS, _row("u1", 0, None, 0), _row("u4", None, 0, 0)])
    assert report.unscored == 2
    assert report.all == personal_report(ROWS).all


def test_no_pairs_give_no_number() -> None:
    with pytest.raises(DataError, match="none of 1 pairs"):
        personal_report([_row("u1", None, 1, 1)])
    report = personal_report([_row("u1", 1, 1, 1), _row("u2", 1, 1, 1)])
    assert math.isnan(report.equal_quality.gain.value) and report.equal_quality.gain.n == 0


def test_intervals_hold_the_mean_repeat_with_the_seed_and_have_no_width_without_spread() -> None:
    report = personal_report(ROWS, seed=3)
    for estimate in (report.all.generic, report.all.personal, report.all.gain):
        assert estimate.low <= estimate.value <= estimate.high
    assert report == personal_report(ROWS, seed=3)
    flat = personal_report([_row(f"u{i}", 0.5, 1, 0.5) for i in range(9)])
    assert (flat.all.gain.low, flat.all.gain.high) == (0.5, 0.5)


def test_the_gates_of_the_issue() -> None:
    good = [_row(f"u{i}", 0.5, 1, 0.5) for i in range(20)]
    assert personal_report(good).passes
    ignored = [_row(f"u{i}", 0.5, 1, 1) for i in range(20)]  # any profile would do: it is ignored
    assert not personal_report(ignored).passes
    small = [_row(f"u{i}", 0.5, 0.55, 0.5) for i in range(20)]
    assert not personal_report(small).passes
