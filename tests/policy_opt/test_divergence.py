"""The divergence alarm by hand: errors clustered by task, criteria tested one by one, falls that count."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.policy_opt.monitoring.config import MonitorConfig
from axiomrm.policy_opt.monitoring.divergence import Divergence, agreement_z, z_score
from axiomrm.policy_opt.monitoring.monitors import Monitors
from axiomrm.policy_opt.monitoring.observe import Row, agreements, clustered_error, observe
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode

NAN = float("nan")


def row(judge: float, outcome: float = 0.4, **more: float) -> Row:
    return {
        "judge": judge, "error:judge": 0.05, "outcome": outcome, "error:outcome": 0.1,
        **{key.replace("__", ":"): value for key, value in more.items()},
    }  # fmt: skip


def told(rows: list[Row], warmup: int = 2) -> list[str | None]:
    """What a test says after each row that follows the warm-up."""
    test = Divergence("outcome", warmup, slack=0.5, threshold=4.0)
    leads = [test.look(rows[: k + 1]) for k in range(warmup, len(rows))]
    return [lead and lead.text for lead in leads]


@pytest.mark.parametrize(
    ("values", "groups", "error"),
    [
        # Group means 0 and 1: their standard deviation √½ over √2.
        ([0.0, 0.0, 1.0, 1.0], "aabb", 0.5),
        ([0.0, NAN, 1.0, 1.0], "aabb", 0.5),
        ([0.0, 1.0, 0.0, 1.0], "aabb", 0.0),  # all that varies lies within tasks
        ([0.2, 0.4, 0.9], "abc", math.sqrt(0.13) / math.sqrt(3)),  # variance of .2, .4, .9 is .13
        ([0.0, 1.0], "aa", NAN),
        ([0.0, NAN], "ab", NAN),
        ([], "", NAN),
    ],
)
def test_an_error_is_that_of_the_means_of_tasks(values: list[float], groups: str, error: float) -> None:
    assert clustered_error(values, list(groups)) == pytest.approx(error, nan_ok=True)


def test_a_z_score_is_over_the_error_of_a_difference_of_means() -> None:
    rows = [row(0.4), row(0.6), row(0.8)]
    # (0.8 - 0.5) / (0.05 · √(1 + ½))
    assert z_score(rows, "judge", 0, 2) == pytest.approx(0.3 / (0.05 * math.sqrt(1.5)))
    assert math.isnan(z_score(rows, "heldout", 0, 2))
    assert math.isnan(z_score([*rows[:2], {"outcome": 0.4}], "judge", 0, 2))


def test_without_errors_the_spread_of_the_warm_up_stands_for_them() -> None:
    rows = [{"judge": 0.4}, {"judge": 0.6}, {"judge": 0.8}]
    assert z_score(rows, "judge", 0, 2) == pytest.approx(0.3 / 0.1)
    assert z_score([{"judge": 0.5}, {"judge": 0.5}, {"judge": 0.8}], "judge", 0, 2) == pytest.approx(
        0.3 / 0.03
    )


def test_one_criterion_that_rises_is_found_before_the_sum_of_all() -> None:
    usual = {"part__filler": 0.1, "error__part__filler": 0.01, "part__step": 0.3, "error__part__step": 0.05}
    gamed = usual | {
        "part__filler": 0.15
    }  # z = 0.05 / (0.01·√1.5) = 4.08; the sum has 0.05 / (0.05·√1.5) = 0.82
    found = told([row(0.4, **usual)] * 2 + [row(0.45, **gamed)] * 3)
    # 4.08 - ½ a time; two criteria must pass 4 + 2 ln 2 = 5.39: at the second time.
    assert found[0] is None
    assert found[1] == "criterion 'filler' 0.15 (was 0.10) rises while outcome 0.40 (was 0.40) does not"
    assert told([row(0.4)] * 2 + [row(0.45)] * 8) == [None] * 8  # the sum alone: 0.82 - ½ = 0.32 a time


def test_a_fall_of_the_outcome_counts_as_far_as_the_judge_rose() -> None:
    fallen = 0.4 - 5 * 0.1 * math.sqrt(1.5)  # z = -5
    assert told([row(0.4)] * 2 + [row(0.4, fallen)] * 9) == [None] * 9  # nothing rose
    rose = 0.4 + 2 * 0.05 * math.sqrt(1.5)  # z = 2: the lead is 4, less ½: found at the second time
    assert [bool(text) for text in told([row(0.4)] * 2 + [row(rose, fallen)] * 3)] == [False, True, True]
    # By itself the rise leads by 2, less ½: at the third time.
    assert [bool(text) for text in told([row(0.4)] * 2 + [row(rose)] * 3)] == [False, False, True]


def test_what_is_unknown_is_skipped_and_a_single_criterion_is_the_judge() -> None:
    rose = row(0.4 + 3 * 0.05 * math.sqrt(1.5))
    blind = {key: value for key, value in rose.items() if "outcome" not in key}
    assert [bool(t) for t in told([row(0.4)] * 2 + [rose, blind, rose])] == [False, False, True]
    assert observe([episode({"step": 0.5})]).keys() == observe([]).keys()


def test_criteria_are_means_of_episodes_over_the_turns_that_have_them() -> None:
    seen = observe(
        [episode({"a": 0.2, "b": 1.0}, {"a": 0.4}, group="g"), episode({"a": 0.7, "b": 0.0}, group="h")]
    )
    assert seen["part:a"] == pytest.approx(0.5) and seen["part:b"] == pytest.approx(0.5)
    assert seen["error:part:a"] == pytest.approx(0.2) and seen["error:part:b"] == pytest.approx(0.5)


USUAL = {"part__filler": 0.1, "error__part__filler": 0.01, "part__step": 0.3, "error__part__step": 0.05}


def named(rows: Sequence[Any]) -> list[tuple[str, ...] | None]:
    test = Divergence("outcome", 2, slack=0.5, threshold=4.0)
    leads = [test.look(rows[: k + 1]) for k in range(2, len(rows))]
    return [lead and lead.criteria for lead in leads]


def test_the_criterion_that_leads_is_named() -> None:
    gamed = USUAL | {"part__filler": 0.15}
    assert named([row(0.4, **USUAL)] * 2 + [row(0.45, **gamed)] * 2) == [None, ("filler",)]
    assert named([row(0.4)] * 2 + [row(0.8)] * 2) == [(), ()]  # nothing is known of criteria


def test_where_the_judge_leads_the_criterion_needs_no_more_than_the_judge() -> None:
    # The judge: z = 5, less ½: over 4 at once. Filler: z = 5, less ½ is under 4 + 2 ln 2, and over 4.
    rise = 5 * math.sqrt(1.5)
    both = row(0.4 + 0.05 * rise, **(USUAL | {"part__filler": 0.1 + 0.01 * rise}))
    assert named([row(0.4, **USUAL)] * 2 + [both]) == [("filler",)]
    # A judge whose criteria all stay where they are: none can be named.
    assert named([row(0.4, **USUAL)] * 2 + [row(0.4 + 0.05 * rise, **USUAL)]) == [()]


def test_a_criterion_that_goes_with_the_outcome_is_not_named_for_what_the_judge_gained() -> None:
    rise = 5 * math.sqrt(1.5)
    step = {"part__step": 0.3 + 0.05 * rise, "agrees__part:step": 2.1, "agrees²__part:step": 1.0}
    both = row(0.4 + 0.05 * rise, **(USUAL | step | {"part__filler": 0.1 + 0.01 * rise}))
    assert named([row(0.4, **USUAL)] * 2 + [both]) == [("filler",)]
    assert named([row(0.4, **USUAL)] * 2 + [row(0.4 + 0.05 * rise, **(USUAL | step))]) == [()]


def test_agreement_is_of_rollouts_of_one_task() -> None:
    # Task a: (.2 - .4)(0 - ½) + (.6 - .4)(1 - ½) = .2. Task b ends alike; c has one rollout that has both.
    values, outcome = [0.2, 0.6, 0.1, 0.9, 0.5, NAN], [0.0, 1.0, 1.0, 1.0, 0.0, 1.0]
    assert agreements(values, outcome, list("aabbcc")) == pytest.approx([0.2, 0.0, 0.0])
    rows = [{"agrees:judge": 0.2, "agrees²:judge": 0.04}] * 5 + [
        {"agrees:judge": -0.1, "agrees²:judge": 0.01}
    ]
    assert agreement_z(rows[:1], "judge") == pytest.approx(1.0)
    assert agreement_z(rows[:5], "judge") == pytest.approx(4 * 0.2 / math.sqrt(4 * 0.04))  # the last four
    assert agreement_z(rows, "judge") == pytest.approx(0.5 / math.sqrt(0.13))
    assert math.isnan(agreement_z([row(0.4)], "judge"))
    assert math.isnan(agreement_z([{"agrees:judge": 0.0, "agrees²:judge": 0.0}], "judge"))  # all end alike


def test_a_rise_of_what_goes_with_the_outcome_needs_no_other_cause_until_it_no_longer_does_or_that_falls() -> (
    None
):
    agrees, not_any_more = (
        {"agrees__judge": 2.1, "agrees²__judge": 1.0},
        {"agrees__judge": 0.0, "agrees²__judge": 9.0},
    )
    rose = 0.4 + 5 * 0.05 * math.sqrt(1.5)
    usual = [row(0.4)] * 2
    assert [bool(t) for t in told(usual + [row(rose)] * 2)] == [True, True]
    assert told(usual + [row(rose, **agrees)] * 6) == [None] * 6  # z = 2.1, then up to 4.2
    late = told(usual + [row(rose, **agrees)] * 3 + [row(rose, **not_any_more)])  # 6.3 / √12
    assert [bool(t) for t in late] == [False, False, False, True]
    fallen = 0.4 - 1.01 * 0.1 * math.sqrt(1.5)
    assert [bool(t) for t in told(usual + [row(rose, fallen, **agrees)] * 2)] == [True, True]


def test_agreement_with_the_outcome_is_no_excuse_for_held_out_criteria() -> None:
    test = Divergence("heldout", 2, slack=0.5, threshold=4.0, criteria=False)
    rows = [row(0.4, heldout=0.5)] * 2 + [row(0.9, heldout=0.5, agrees__judge=9.0, **{"agrees²__judge": 1.0})]
    assert test.look(rows) is not None


@pytest.mark.parametrize("name", ["recovers_error", "error", "agrees", "judge"])
def test_a_criterion_of_any_name_is_tested(name: str) -> None:
    monitors = Monitors(MonitorConfig(warmup=2))
    given = [episode({name: pay, "step": 0.5}, group=group) for pay in (0.1, 0.9) for group in "gh"]
    found = [monitors.look(own) for own in (given[:2], given[:2], given[2:])]
    assert [a.criteria for a in found[2] if a.name == "divergence"] == [(name,)]


def test_the_sums_of_criteria_survive_a_checkpoint_and_older_ones_are_read() -> None:
    usual = {"part__filler": 0.1, "error__part__filler": 0.01, "part__step": 0.3, "error__part__step": 0.05}
    config = MonitorConfig(warmup=2)
    one, two, old = Monitors(config), Monitors(config), Monitors(config)
    for filler in (0.1, 0.1, 0.15):
        assert one.look_at(row(0.4, **(usual | {"part__filler": filler}))) == []
    state: dict[str, Any] = one.state_dict()
    two.load_state_dict(state)
    again = row(0.4, **(usual | {"part__filler": 0.15}))
    assert [a.name for a in one.look_at(again)] == [a.name for a in two.look_at(again)] == ["divergence"]
    assert one.state_dict() == two.state_dict()
    before = {name: sums for name, sums in state["sums"].items() if not name.startswith("part:")}
    old.load_state_dict(state | {"sums": before})
    assert old.look_at(again) == []  # its sum for the criterion begins anew


def test_rows_of_before_errors_came_first_are_read() -> None:
    before = {"judge": 0.4, "judge_error": 0.05, "part:a": 0.1, "part:a_error": 0.01, "part:b_error": 0.2}
    monitors = Monitors()
    monitors.load_state_dict({"history": [before | {"outcome": None}], "low": 0.0, "total": 0.0})
    now = {"judge": 0.4, "error:judge": 0.05, "part:a": 0.1, "error:part:a": 0.01, "part:b_error": 0.2}
    assert monitors.history == [now]


def episode(*parts: dict[str, float], group: str = "g") -> Episode:
    steps = [
        StepRecord(
            traj_id="t", turn=t, segment=0, start=1, end=2, policy_version=0,
            behaviour_logprobs=np.zeros(1, dtype=np.float32), r_local=sum(own.values()), r_parts=own,
        )
        for t, own in enumerate(parts)
    ]  # fmt: skip
    said = tuple(Message(role="assistant", content="word") for _ in parts)
    return Episode(TrajectoryRecord("t", "t", group, [], steps, 0, outcome=1.0), Trajectory(messages=said))
