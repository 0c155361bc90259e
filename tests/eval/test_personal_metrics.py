import numpy as np
import pytest

from axiomrm.eval.personal import UserPair, by_subset, personal_metrics, worst_tenth

NAN = float("nan")


def pairs(
    user: str, personal: list[float], generic: list[float], swapped: list[float] | None = None
) -> list[UserPair]:
    others = swapped or [NAN] * len(personal)
    return [UserPair(user, p, g, s) for p, g, s in zip(personal, generic, others, strict=True)]


def test_users_count_equally_however_many_pairs_they_have() -> None:
    data = pairs("many", [1.0] * 9, [0.0] * 9) + pairs("few", [0.0], [1.0])
    found = personal_metrics([data])
    assert found.personal.value == 0.5 and found.generic.value == 0.5 and found.gain.value == 0.0
    assert (found.users, found.pairs, found.personal.n) == (2, 10, 2)
    assert found.harmed.value == 0.5


def test_gain_swapped_gain_and_drop_by_hand() -> None:
    data = pairs("u", [1.0, 1.0], [0.0, 1.0], [0.0, 1.0]) + pairs("v", [1.0, 0.5], [0.5, 0.5], [1.0, 0.0])
    found = personal_metrics([data])
    # gains: u (1 + 0) / 2 = .5, v (.5 + 0) / 2 = .25; swapped − generic: u 0, v (.5 − .5) / 2 = 0
    assert found.gain.value == pytest.approx(0.375)
    assert found.swapped_gain.value == 0.0
    assert found.swapped_drop.value == pytest.approx(0.375)
    assert found.harmed.value == 0.0


def test_a_pair_that_one_judge_could_not_score_counts_for_no_gain() -> None:
    data = pairs("u", [1.0, 1.0, NAN], [0.0, NAN, 0.0]) + pairs("v", [NAN], [1.0])
    found = personal_metrics([data])
    assert found.gain.value == 1.0 and (found.gain.n, found.gain.missing) == (1, 1)
    assert found.missing == {"personal": 2, "generic": 1, "swapped": 4}
    assert found.swapped.value is None and found.profile_is_used is None


def test_the_worst_tenth_and_the_worst_user() -> None:
    data = [p for i in range(20) for p in pairs(f"u{i}", [i / 20] * 8, [0.5] * 8)]
    data += pairs("few", [0.0] * 7, [0.5] * 7)
    found = personal_metrics([data])
    # 21 users: the worst 3 have 0, 0 and 1/20; the one with seven pairs is too few to be named
    assert found.worst_decile.value == pytest.approx((0 + 0 + 1 / 20) / 3)
    assert found.worst_user == 0.0
    assert worst_tenth(np.array([0.4, 0.9])) == 0.4
    assert personal_metrics([pairs("few", [0.0] * 7, [0.5] * 7)]).worst_user is None


def test_a_profile_that_carries_the_gain_is_told_from_one_that_does_not() -> None:
    rng = np.random.default_rng(0)

    def users(swapped_rate: float) -> list[UserPair]:
        def draw(rate: float) -> list[float]:
            return [float(x) for x in rng.random(24) < rate]

        return [p for u in range(40) for p in pairs(f"u{u}", draw(0.85), draw(0.6), draw(swapped_rate))]

    assert personal_metrics([users(0.58)]).profile_is_used is True
    assert personal_metrics([users(0.85)]).profile_is_used is False


def test_intervals_draw_users_not_pairs() -> None:
    few = personal_metrics([[p for u in range(10) for p in pairs(f"u{u}", [float(u % 2)] * 4, [0.5] * 4)]])
    many = personal_metrics(
        [[p for u in range(10) for p in pairs(f"u{u}", [float(u % 2)] * 400, [0.5] * 400)]]
    )
    assert few.personal.low == many.personal.low, "more pairs of the same users do not help"


def test_a_perfect_accuracy_keeps_an_interval() -> None:
    found = personal_metrics([[p for u in range(5) for p in pairs(f"u{u}", [1.0] * 4, [0.0] * 4)]])
    assert found.personal.low == pytest.approx(5 / (5 + 1.959964**2), abs=1e-5)


def test_subsets_are_reported_where_they_exist() -> None:
    data = [*pairs("u", [1.0, 0.0], [0.0, 0.0]), UserPair("v", 1.0, 0.0, equal_quality=True, seen=True)]
    found = by_subset([data])
    assert list(found) == ["equal quality", "seen users", "unseen users"]
    assert found["equal quality"].pairs == 1 and found["unseen users"].personal.value == 0.5
    assert list(by_subset([pairs("u", [1.0], [0.0])])) == ["unseen users"]


def test_no_pairs_is_not_measured() -> None:
    found = personal_metrics([])
    assert found.gain.value is None and found.harmed.value is None and found.worst_decile.value is None
