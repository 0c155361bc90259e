import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Outcome, Task, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.errors import DataError
from axiomrm.personalization.examples import OracleLabel, personal_examples
from axiomrm.personalization.judging import Learned, PersonalScorer, Unit, UserRubrics
from axiomrm.personalization.learn import evaluate_personal, learn_weights
from axiomrm.personalization.profile import PURPOSES, Purpose, profile_of
from axiomrm.personalization.simulate import SimulatedUser, UserPair
from axiomrm.rubrics.rubric import Rubric

DESK = Rubric.load("service_desk_steps")
STEP, CASUAL, FORMAL = "Is this step right and needed?", "Are the replies casual?", "Are the replies formal?"
NAMED = "Is the user's name used?"
SWAP = {"u1": "u2", "u2": "u1"}


def _user(
    name: str, purposes: tuple[Purpose, ...] = (*PURPOSES, "rm_training"), **slots: Any
) -> SimulatedUser:
    profile = profile_of(name, {f"stated.{k}": v for k, v in slots.items()}, purposes=purposes)
    return SimulatedUser(name, profile, {}, 0.0, 1.0)


def _dialogue(name: str, turns: int = 2) -> Trajectory:
    said = tuple(Message(role="assistant", content=f"{name} {i}") for i in range(turns))
    return Trajectory(messages=said, id=name, task_id="t", task=Task(id="t"), outcome=Outcome(score=1.0))


USERS = [_user("u1", tone="casual"), _user("u2", tone="formal")]
TALKS = {name: _dialogue(name) for name in ("a", "b")}
PAIR = UserPair("u1", "a", "b", "t", "a", True)


def _verdicts(**more: Verdict) -> dict[Unit, Verdict]:
    """a: casual, all steps right; b: formal, all steps right."""
    table: dict[Unit, Verdict] = {}
    for name, casual in (("a", 0.9), ("b", 0.2)):
        table |= {Unit(name, STEP, t): Scored(value=1.0) for t in (0, 1)}
        table[Unit(name, CASUAL, None)] = Scored(value=casual)
        table[Unit(name, FORMAL, None)] = Scored(value=1 - casual)
    return table


def test_the_three_arms_by_hand() -> None:
    scorer = PersonalScorer(UserRubrics(DESK, USERS), TALKS, _verdicts())
    found = scorer.pair(PAIR, SWAP)
    # generic: equal, a tie; own profile: casual a wins; the other's: formal b wins
    assert (found.generic, found.personal, found.swapped) == (0.5, 1.0, 0.0)
    share = 0.4 * 2 / 10  # one stated slot
    result = scorer.personal("u1", "a")
    assert result is not None and result.reward == pytest.approx((1 - share) * 1.0 + share * 0.9)


@pytest.mark.parametrize("bad", [None, Failed(kind="timeout")])
@pytest.mark.parametrize("unit", [Unit("b", STEP, 1), Unit("a", CASUAL, None), Unit("a", FORMAL, None)])
def test_a_missing_verdict_leaves_the_pair_unscored(bad: Verdict | None, unit: Unit) -> None:
    table = _verdicts()
    if bad is None:
        del table[unit]
    else:
        table[unit] = bad
    found = PersonalScorer(UserRubrics(DESK, USERS), TALKS, table).pair(PAIR, SWAP)
    assert not found.scored
    assert (found.generic is None) == (unit.ask == STEP)
    assert (found.personal is None) == (unit.ask in (STEP, CASUAL))


def test_cannot_assess_is_an_answer_that_takes_no_side() -> None:
    table = _verdicts()
    table[Unit("a", CASUAL, None)] = CannotAssess(reason="nothing said")
    scorer = PersonalScorer(UserRubrics(DESK, USERS), TALKS, table)
    a, generic = scorer.personal("u1", "a"), scorer.generic("a")
    assert a is not None and generic is not None
    assert a.reward == generic.reward == 1.0


def test_units_are_asked_once_and_are_all_that_is_needed() -> None:
    rubrics = UserRubrics(DESK, USERS)
    units = rubrics.units([PAIR, PAIR], TALKS, SWAP)
    assert sorted(units, key=repr) == sorted(_verdicts(), key=repr)
    assert Unit("a", FORMAL, None) not in rubrics.units([PAIR], TALKS)  # without the swapped arm


def test_the_other_persons_whole_profile_is_swapped_in() -> None:
    learned = {"u1": Learned(40.0, {"pt.tone": 1.0}), "u2": Learned()}
    rubrics = UserRubrics(DESK, USERS, learned)
    assert rubrics.compiled("u1", TALKS["a"]).share > rubrics.compiled("u2", TALKS["a"]).share
    with pytest.raises(DataError, match="u9"):
        rubrics.compiled("u9", TALKS["a"])


def _many(n: int) -> tuple[dict[str, Trajectory], dict[Unit, Verdict]]:
    rng = random.Random(0)
    talks: dict[str, Trajectory] = {}
    table: dict[Unit, Verdict] = {}
    for i in range(n):
        talks[f"d{i}"] = _dialogue(f"d{i}", 1)
        table[Unit(f"d{i}", STEP, 0)] = Scored(value=1.0)
        for ask in (CASUAL, NAMED):
            table[Unit(f"d{i}", ask, None)] = Scored(value=float(rng.random() < 0.5))
    return talks, table


def _choices(user: str, table: dict[Unit, Verdict], ids: list[str], ask: str) -> list[UserPair]:
    """Choices by one question alone; pairs that it does not tell apart are left out."""
    out = []
    for a, b in zip(ids[::2], ids[1::2], strict=True):
        x, y = table[Unit(a, ask, None)], table[Unit(b, ask, None)]
        assert isinstance(x, Scored) and isinstance(y, Scored)
        if x.value != y.value:
            out.append(UserPair(user, a, b, "t", "a" if x.value > y.value else "b", True))
    return out


def test_earlier_choices_say_which_of_two_stated_wishes_counts() -> None:
    users = [_user("u1", tone="casual", use_name=True), _user("u2", tone="casual", use_name=True)]
    talks, table = _many(200)
    ids = list(talks)
    history = _choices("u1", table, ids[:100], NAMED) + _choices("u2", table, ids[:100], CASUAL)
    scorer = PersonalScorer(UserRubrics(DESK, users), talks, table)
    learned = learn_weights(scorer, history)
    assert learned["u1"].n_events == sum(p.user == "u1" for p in history)
    assert learned["u1"].weights["pt.name"] == 1.0 > 0.6 > learned["u1"].weights["pt.tone"]
    assert learned["u2"].weights["pt.tone"] == 1.0 > 0.6 > learned["u2"].weights["pt.name"]
    held = _choices("u1", table, ids[100:], NAMED) + _choices("u2", table, ids[100:], CASUAL)
    flat = evaluate_personal(scorer, [], held, SWAP)
    taught = evaluate_personal(scorer, history, held, SWAP)
    assert taught.all.personal.value == 1.0 > flat.all.personal.value
    assert taught.all.swapped.value < taught.all.personal.value  # the other's weights come with the swap


def test_a_choice_with_a_failed_verdict_teaches_nothing() -> None:
    users = [_user("u1", tone="casual", use_name=True), _user("u2")]
    talks, table = _many(20)
    history = _choices("u1", table, list(talks), NAMED)
    for pair in history:
        table[Unit(pair.a, NAMED, None)] = Failed(kind="no_verdict")
    learned = learn_weights(PersonalScorer(UserRubrics(DESK, users), talks, table), history)
    assert learned["u1"] == Learned(0.0, {})


def _label(trajectory: Trajectory, ask: str) -> OracleLabel | None:
    number = int(trajectory.id[1:])
    if number % 10 == 0:
        return None
    if number % 10 == 1:
        return OracleLabel("X", "nothing")
    return OracleLabel("Y" if number % 10 < 5 else "N", "so", ((0, trajectory.messages[0].content),))


def test_training_rows_are_balanced_and_only_of_what_profiles_ask() -> None:
    recordings = [_dialogue(f"d{i}", 1) for i in range(100)]
    rows = personal_examples(recordings, USERS, random.Random(0), rubric=DESK, label_of=_label, per_label=25)
    assert {(r.criterion_id, r.ask) for r in rows} == {("pt.tone", CASUAL), ("pt.tone", FORMAL)}
    for ask in (CASUAL, FORMAL):
        labels = [r.label for r in rows if r.ask == ask]
        assert (labels.count("Y"), labels.count("N"), labels.count("X")) == (25, 25, 10)
    assert all(r.turn is None and r.source == "oracle" and "personal" in r.tags for r in rows)
    assert all(int(r.trajectory.id[1:]) % 10 for r in rows)  # ambiguous ones make no row
    again = personal_examples(recordings, USERS, random.Random(0), rubric=DESK, label_of=_label, per_label=25)
    assert [(r.ask, r.trajectory.id) for r in rows] == [(r.ask, r.trajectory.id) for r in again]


def test_only_what_may_be_judged_is_asked_and_only_what_may_train_makes_rows() -> None:
    users = [
        _user("u1", PURPOSES, tone="casual"),
        _user("u2", ("criteria_generation",), tone="formal"),
        _user("u3", tone="formal"),
    ]
    rubrics = UserRubrics(DESK, users)
    asked = {u.id: [c.ask for c in rubrics.compiled(u.id, TALKS["a"]).criteria] for u in users}
    assert asked == {"u1": [CASUAL], "u2": [], "u3": [FORMAL]}
    recordings = [_dialogue(f"d{i}", 1) for i in range(20)]
    rows = personal_examples(recordings, users, random.Random(0), rubric=DESK, label_of=_label)
    assert {r.ask for r in rows} == {FORMAL}


def test_a_value_that_has_ended_asks_nothing() -> None:
    began = datetime(2026, 3, 1, tzinfo=UTC)
    profile = profile_of("u1", {}).with_value("stated.tone", "casual", created_at=began)  # lives 365 days
    users = [SimulatedUser("u1", profile, {}, 0.0, 1.0)]
    for days, asked in ((364, [CASUAL]), (365, [])):
        rubrics = UserRubrics(DESK, users, now=began + timedelta(days=days)).with_learned({})
        assert [c.ask for c in rubrics.compiled("u1", TALKS["a"]).criteria] == asked
    with pytest.raises(DataError, match="no time zone"):
        UserRubrics(DESK, users, now=datetime(2026, 3, 1))
