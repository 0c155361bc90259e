"""How many groups the audit wants to have seen before it says anything, and who has a say in a reward."""

import math
from collections.abc import Sequence

import pytest

from axiomrm.cli_audit import lines
from axiomrm.data.trajectory import Message, Outcome, Trajectory
from axiomrm.policy_opt.audit.rollouts import audit
from axiomrm.policy_opt.criterion_shares import criterion_shares

NAN = math.nan


def rollout(name: str, group: str, outcome: float, *parts: dict[str, float]) -> Trajectory:
    """A turn for each of ``parts``, rewarded by their sum."""
    return Trajectory(
        id=name,
        group_id=group,
        messages=tuple(Message(role="assistant", content=f"{name} {i}") for i in range(len(parts))),
        outcome=Outcome(score=outcome),
        turn_rewards=tuple(sum(part.values()) for part in parts),
        metadata={"turn_parts": parts},
    )


def tasks(n: int, *, rare_in: int, rare: float) -> list[Trajectory]:
    """A judge of steps that is right, and in the first tasks a criterion that pays ``rare`` to failures, on a
    turn of its own."""
    made = []
    for task in range(n):
        for i in range(4):
            outcome = float(i % 2)
            parts = {"refund": rare * (1 - outcome)} if task < rare_in else {"step": outcome}
            made.append(rollout(f"{task}/{i}", str(task), outcome, {"step": outcome}, parts))
    return made


@pytest.mark.parametrize("reward", [-1.0, 1.0])
def test_one_group_has_no_interval_no_grade_but_weak_and_no_beta(reward: float) -> None:
    found = audit([rollout(str(i), "t", float(i), {"step": reward * i}) for i in range(2)])
    assert found.disc.value == pytest.approx(reward)
    assert (found.disc.low, found.disc.high, found.disc.n) == (None, None, 1)
    assert found.verdict == "weak" and found.reasons == ("1 informative groups; 20 are needed",)
    assert found.suggested_beta == 0.0
    assert any(f"disc {reward:.2f} (no interval) over 1 groups" in line for line in lines(found))


@pytest.mark.parametrize(("groups", "grade"), [(19, "weak"), (20, "harmful")])
def test_a_reward_is_harmful_from_twenty_groups_on(groups: int, grade: str) -> None:
    made = [rollout(f"{g}/{i}", str(g), float(i), {"step": 1.0 - i}) for g in range(groups) for i in range(2)]
    found = audit(made)
    assert found.disc.high == pytest.approx(-1.0)
    assert (found.verdict, found.suggested_beta) == (grade, 0.0)


@pytest.mark.parametrize(("rollouts", "grade"), [(38, "weak"), (40, "harmful")])
def test_pooled_it_takes_forty_rollouts(rollouts: int, grade: str) -> None:
    found = audit([rollout(str(i), str(i), float(i % 2), {"step": 1.0 - i % 2}) for i in range(rollouts)])
    assert found.pooled and found.verdict == grade


def test_no_beta_is_suggested_from_too_few_groups_and_the_usual_one_from_enough() -> None:
    def beta(groups: int) -> float:
        return audit(tasks(groups, rare_in=0, rare=0.0)).suggested_beta

    assert (beta(19), beta(20)) == (0.0, 0.5)


def test_a_criterion_of_one_task_with_next_to_no_variance_is_no_harm() -> None:
    found = audit(tasks(30, rare_in=1, rare=0.001))
    rare = found.items["refund"]
    assert rare.disc.value is not None and rare.disc.value < -0.8
    assert (rare.disc.low, rare.disc.high, rare.disc.n) == (None, None, 1)
    assert rare.variance_share is not None and rare.variance_share < 0.01
    assert found.verdict == "ok" and found.suggested_beta == 0.5
    assert "  refund: disc -1.00 (no interval), 0% of the reward's variance" in lines(found)


def test_a_criterion_that_seems_to_do_harm_in_few_tasks_is_weak_and_in_many_harmful() -> None:
    few, many = audit(tasks(60, rare_in=19, rare=2.0)), audit(tasks(60, rare_in=20, rare=2.0))
    assert few.items["refund"].variance_share == pytest.approx(
        many.items["refund"].variance_share or NAN, abs=0.05
    )
    assert few.verdict == "weak" and few.reasons == (
        "criterion 'refund': 19 informative groups; 20 are needed",
    )
    assert many.verdict == "harmful" and "'refund' goes against" in many.reasons[0]


def test_a_criterion_has_no_say_in_a_reward_that_never_varies() -> None:
    made = [
        rollout(f"{g}/{i}", str(g), float(i), {"step": float(i), "chat": -float(i)})
        for g in range(30)
        for i in range(2)
    ]
    found = audit(made)
    assert [item.variance_share for item in found.items.values()] == [None, None]
    assert found.verdict == "weak" and found.suggested_beta == 0.0


# --- shares -------------------------------------------------------------------------------------------------


def shares(rewards: Sequence[float], *parts: dict[str, float]) -> dict[str, float]:
    return criterion_shares(rewards, parts)


def test_a_part_that_is_absent_gives_nothing_to_its_turn() -> None:
    # rewards 0, 2, 1, 3: mean 1.5, squares 5. step 0 2 . .: 2 · 0.5 = 1; talk . . 1 3: -0.5 + 3 · 1.5 = 4
    found = shares(
        [0.0, 2.0, 1.0, 3.0], {"step": 0.0}, {"step": 2.0, "talk": NAN}, {"talk": 1.0}, {"talk": 3.0}
    )
    assert found == pytest.approx({"step": 0.2, "talk": 0.8})


def test_a_turn_without_a_reward_or_without_any_part_tells_nothing_of_shares() -> None:
    known = ({"step": 0.0}, {"step": 2.0}, {"talk": 1.0}, {"talk": 3.0})
    found = shares([0.0, 2.0, 1.0, 3.0, NAN, 0.7], *known, {"step": 9.0, "talk": NAN}, {})
    assert found == pytest.approx({"step": 0.2, "talk": 0.8})


def test_there_are_no_shares_of_a_single_part_of_a_constant_or_of_two_turns() -> None:
    assert shares([0.0, 1.0, 2.0], {"a": 0.0}, {"a": 1.0}, {"a": 2.0}) == {}
    assert shares([1.0] * 3, {"a": 1.0}, {"b": 1.0}, {"b": 1.0}) == {}
    assert shares([0.0, 1.0], {"a": 0.0, "b": 0.0}, {"a": 1.0, "b": 0.0}) == {}
