import random
from collections import Counter

import pytest

from axiomrm.data.trajectory import Message, Outcome, Trajectory
from axiomrm.errors import ConfigError, DataError
from axiomrm.personalization.profile import profile_of
from axiomrm.personalization.simulate import (
    FEATURES,
    Population,
    SimulatedUser,
    derangement,
    draw_pairs,
    draw_users,
    quality_of,
)


def _recording(name: str, task: str, oracle: list[int], score: float | None = 1.0) -> Trajectory:
    messages = tuple(Message(role="assistant", content=name) for _ in oracle)
    return Trajectory(
        messages=messages, id=name, task_id=task, outcome=Outcome(score=score), metadata={"oracle": oracle}
    )


def _user(tastes: dict[str, float], quality: float = 0.0, steepness: float = 50.0) -> SimulatedUser:
    return SimulatedUser("u", profile_of("u", {}), tastes, quality, steepness)


def test_utility_by_hand() -> None:
    user = _user({"short": 0.75, "casual": -0.25}, quality=0.5)
    # 0.5·(0.75·(+1) − 0.25·(2·0.75 − 1)) + 0.5·(2·0.5 − 1) = 0.5·0.625
    assert user.utility({"short": 1.0, "casual": 0.75}, 0.5) == pytest.approx(0.3125)
    assert user.utility({"short": None}, 1.0) == pytest.approx(0.5)  # nothing shows it: neither liked nor not


def test_quality_is_outcome_and_share_of_right_turns_and_never_made_up() -> None:
    outcome, right = quality_of(_recording("a", "t", [1, 1, -1, 0]))
    assert outcome == 1.0 and right == pytest.approx(2 / 3)
    for missing in (_recording("a", "t", [1], score=None), _recording("a", "t", [0])):
        with pytest.raises(DataError, match="'a'"):
            quality_of(missing)


def test_users_are_sparse_signed_mixtures_of_which_the_profile_shows_a_part() -> None:
    users = draw_users(400, random.Random(0))
    assert all(sum(map(abs, u.tastes.values())) == pytest.approx(1) for u in users)
    assert sum(max(map(abs, u.tastes.values())) > 0.5 for u in users) > 200
    signs = Counter(w > 0 for u in users for w in u.tastes.values())
    assert 0.4 < signs[True] / sum(signs.values()) < 0.6
    held = Counter(v.key for u in users for v in u.profile.values)
    assert len(held) == len(FEATURES) and max(held.values()) < 300  # some slots are absent
    big = [
        (u.tastes["casual"] > 0, v.value)
        for u in users
        for v in u.profile.values
        if v.key == "stated.tone" and abs(u.tastes["casual"]) > 0.15
    ]
    right = sum(liked == (value == "casual") for liked, value in big) / len(big)
    assert 0.85 < right < 1.0  # a reflection, but not a perfect one


def test_the_same_seed_draws_the_same_users_and_prefixes_keep_sets_apart() -> None:
    first, again = draw_users(5, random.Random(7)), draw_users(5, random.Random(7))
    assert first == again
    other = draw_users(5, random.Random(8), prefix="h")
    assert not {u.id for u in first} & {u.id for u in other}
    with pytest.raises(ConfigError, match="at least 2"):
        draw_users(1, random.Random(0))


BEHAVIOUR: dict[str, dict[str, float | None]] = {
    "a": {"short": 1.0, "casual": 1.0},
    "b": {"short": 0.0, "casual": 0.0},
    "c": {"short": 1.0, "casual": 0.0},
    "d": {"short": 0.0, "casual": 1.0},
}


def _world() -> list[Trajectory]:
    return [
        _recording("a", "t1", [1, 1]),
        _recording("b", "t1", [1, 1]),
        _recording("c", "t1", [1, -1], score=0.0),
        _recording("d", "t2", [1, 1]),
    ]


def test_pairs_are_of_one_task_differ_in_two_habits_and_know_equal_quality() -> None:
    pairs = draw_pairs(
        [_user({"short": 1.0})], _world(), lambda t: BEHAVIOUR[t.id], random.Random(0), per_user=1
    )
    [pair] = pairs  # a–c and b–c differ in one habit only, d stands alone in its task
    assert {pair.a, pair.b} == {"a", "b"} and pair.equal_quality and pair.task_id == "t1"
    assert (pair.a if pair.choice == "a" else pair.b) == "a"  # likes short, and is steep


def test_choices_follow_the_hidden_tastes_with_noise_not_the_stated_slots() -> None:
    liar = SimulatedUser("u", profile_of("u", {"stated.verbosity": 5}), {"short": 1.0}, 0.0, 1.0)
    world = [_recording(f"{k}{i}", f"t{i}", [1]) for i in range(400) for k in "ab"]
    pairs = draw_pairs([liar], world, lambda t: BEHAVIOUR[t.id[0]], random.Random(1), per_user=400)
    chosen = sum((p.a if p.choice == "a" else p.b)[0] == "a" for p in pairs) / 400
    assert chosen == pytest.approx(0.88, abs=0.05)  # σ(1·(1 − (−1))) = 0.881
    first = sum(p.choice == "a" for p in pairs) / 400
    assert 0.4 < first < 0.6  # the better one stands in either place


def test_unequal_quality_is_never_flagged_equal() -> None:
    world = [
        _recording("a", "t", [1, 1]),
        _recording("b", "t", [1, -1]),
        _recording("b2", "t", [1, 1], score=0.0),
        _recording("b3", "t", [1, 1, 1]),
    ]
    pairs = draw_pairs(
        [_user({"short": 1.0})], world, lambda t: BEHAVIOUR[t.id[0]], random.Random(0), per_user=3
    )
    flagged = {frozenset((p.a, p.b)): p.equal_quality for p in pairs}
    assert flagged == {
        frozenset(("a", "b")): False,  # a wrong turn
        frozenset(("a", "b2")): False,  # another outcome
        frozenset(("a", "b3")): True,
    }


def test_too_few_pairs_and_twin_ids_are_errors() -> None:
    user = [_user({"short": 1.0})]
    with pytest.raises(DataError, match="1 pairs"):
        draw_pairs(user, _world(), lambda t: BEHAVIOUR[t.id], random.Random(0), per_user=2)
    twins = [_recording("a", "t", [1]), _recording("a", "t", [1])]
    with pytest.raises(DataError, match="share an id"):
        draw_pairs(user, twins, lambda t: BEHAVIOUR[t.id], random.Random(0))


def test_a_swap_gives_nobody_their_own_profile_and_uses_each_once() -> None:
    for n in (2, 3, 30):
        users = draw_users(n, random.Random(n))
        swapped = derangement(users, random.Random(0))
        assert set(swapped) == set(swapped.values()) == {u.id for u in users}
        assert all(a != b for a, b in swapped.items())


def test_a_swap_prefers_profiles_with_other_slots() -> None:
    slots: list[dict[str, str]] = [{"stated.tone": "formal"}] * 2 + [{"stated.tone": "casual"}] * 2
    users = [SimulatedUser(f"u{i}", profile_of(f"u{i}", s), {}, 0.0, 1.0) for i, s in enumerate(slots)]
    swapped = derangement(users, random.Random(3), tries=200)
    assert {swapped["u0"], swapped["u1"]} == {"u2", "u3"}


def test_a_population_without_noise_states_every_big_taste_the_right_way() -> None:
    population = Population(p_stated=1.0, p_stated_small=0.0, p_wrong_way=0.0, stated_above=0.3)
    for user in draw_users(50, random.Random(2), population):
        big = {f for f, w in user.tastes.items() if abs(w) >= 0.3}
        assert len(user.profile.values) == len(big)
        for value in user.profile.values:
            if value.key == "stated.use_name":
                assert value.value == (user.tastes["named"] > 0)
