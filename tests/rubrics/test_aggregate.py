"""Aggregation, worked by hand: scales, gates, severities, turns, ranking, contributions."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.rubrics import Aggregate, Rubric, aggregate
from axiomrm.rubrics.added import added


def _rubric(
    items: dict[str, dict[str, Any]], axioms: dict[str, dict[str, Any]] | None = None, **policy: Any
) -> Rubric:
    base = [{"id": "ax.base", "statement": "Serves.", "type": "premise"}]
    extra = [{"id": k, "statement": f"Keeps {k}.", **v} for k, v in (axioms or {}).items()]
    given = {"derived_from": ["ax.base"], "derivation": "given"}
    theorems = [{"id": k, "statement": f"Says {k}.", **given, **v} for k, v in items.items()]
    header = {"id": "hand", "version": "1.0.0"}
    body = {
        "schema": "atr/1",
        "rubric": header,
        "axioms": base + extra,
        "theorems": theorems,
        "policy": policy,
    }
    return Rubric.loads(json.dumps(body), "hand.json")


def _v(value: float, label: str = "") -> Scored:
    return Scored(value=value, label=label)


SIGNS: dict[str, dict[str, Any]] = {
    "a": {"weight": 2},
    "b": {"weight": 1},
    "p": {"weight": 1, "polarity": "penalty"},
}


def _run(rubric: Rubric, **verdicts: Any) -> Aggregate:
    return aggregate(rubric.bind({}), verdicts)


def test_net_subtracts_the_penalty_in_units_of_the_reward_weight() -> None:
    # m⁺ = (2·1 + 1·0.5)/3, m⁻ = 0.6, W⁻/W⁺ = 1/3
    got = _run(_rubric(SIGNS), a=_v(1), b=_v(0.5), p=_v(0.6))
    assert got.reward == pytest.approx(2.5 / 3 - 0.2)
    assert got.unclipped == pytest.approx(2.5 / 3 - 0.2)
    assert {c.id: c.amount for c in got.contributions} == pytest.approx({"a": 2 / 3, "b": 0.5 / 3, "p": -0.2})


def test_signed_weights_mean_exactly_what_they_say() -> None:
    got = _run(_rubric(SIGNS, scale="signed"), a=_v(1), b=_v(0.5), p=_v(0.6))
    assert got.reward == pytest.approx(2 + 0.5 - 0.6)


def test_only_penalties_start_from_one() -> None:
    got = _run(_rubric({"p": {"polarity": "penalty"}}), p=_v(0.25))
    assert (got.reward, got.unclipped) == (0.75, 0.75)


SOFT = {"soft": {"type": "soft", "caps": {"minor": 0.7, "major": 0.3}}}


@pytest.mark.parametrize(
    ("verdict", "gate"), [(_v(1), 1), (_v(0, "minor"), 0.7), (_v(0, "major"), 0.3), (_v(0, "odd"), 0.3)]
)
def test_a_soft_axiom_caps_by_severity_and_an_unknown_label_counts_as_gravest(
    verdict: Scored, gate: float
) -> None:
    got = _run(_rubric({"a": {}}, SOFT), a=_v(0.9), soft=verdict)
    assert (got.gate, got.reward) == (gate, min(gate, 0.9))


def test_a_signed_gate_violation_gives_the_lowest_reward() -> None:
    got = _run(
        _rubric(SIGNS, {"hard": {"type": "hard"}}, scale="signed"), a=_v(1), b=_v(1), p=_v(0), hard=_v(0)
    )
    assert got.reward == -1 and got.violated_axioms == ("hard",)


def test_a_turn_axiom_violated_once_closes_the_gate_of_the_trajectory() -> None:
    rubric = _rubric({"a": {}}, {"hard": {"type": "hard", "evidence": {"level": "turn"}}})
    assert _run(rubric, a=_v(1), hard=[_v(1), None, _v(0)]).reward == 0
    assert _run(rubric, a=_v(1), hard=[_v(1), None]).reward == 1
    unknown = _run(rubric, a=_v(1), hard=[_v(1), CannotAssess(reason="cut off")])
    assert (
        unknown.reward is None
        and unknown.gate is None
        and unknown.interval == (0, 1)
        and not unknown.passes_gate
    )


def test_turns_are_reduced_over_where_the_item_applied() -> None:
    def turn(how: str) -> Rubric:
        return _rubric({"a": {"evidence": {"level": "turn", "reduce": how}}})

    verdicts = [_v(0.2), None, _v(1.0), _v(0.6)]
    want = {"mean": 0.6, "min": 0.2, "max": 1.0, "any": 1.0, "all": 0.2, "last": 0.6}
    assert {how: _run(turn(how), a=verdicts).reward for how in want} == pytest.approx(want)


def test_too_few_scored_turns_leave_the_point_absent() -> None:
    rubric = _rubric({"a": {"evidence": {"level": "turn", "reduce": "mean"}}}, min_coverage=0.0)
    got = _run(rubric, a=[_v(1), Failed(kind="timeout"), Failed(kind="timeout")])
    assert (
        got.reward is None
        and got.interval == pytest.approx((1 / 3, 1))
        and got.coverage == pytest.approx(1 / 3)
    )


def test_a_base_outside_of_what_is_possible_is_brought_back() -> None:
    # t can be at most 0.05 whatever the two missing turns say, so the mean over `a` alone (0.9) is impossible.
    items = {"a": {}, "t": {"evidence": {"level": "turn", "reduce": "min"}, "on_cannot_assess": "skip"}}
    missing = Failed(kind="timeout")
    got = _run(_rubric(items, min_coverage=0.0), a=_v(0.9), t=[_v(0.05), missing, missing])
    assert got.interval == pytest.approx((0.45, 0.475)) and got.reward == pytest.approx(0.475)


def test_two_violators_still_compare() -> None:
    rubric = _rubric({"a": {}}, {"hard": {"type": "hard"}, **SOFT})
    runs = {
        "clean": _run(rubric, a=_v(0.2), hard=_v(1), soft=_v(1)),
        "capped": _run(rubric, a=_v(0.9), hard=_v(1), soft=_v(0, "major")),
        "violator": _run(rubric, a=_v(0.9), hard=_v(0), soft=_v(1)),
        "worse violator": _run(rubric, a=_v(0.1), hard=_v(0), soft=_v(1)),
    }
    keys = {name: run.rank_key for name, run in runs.items()}
    assert all(k is not None for k in keys.values())
    assert sorted(keys, key=lambda n: keys[n] or (False, 0.0, 0.0), reverse=True) == list(keys)


def test_an_abstention_has_no_rank_and_says_why() -> None:
    got = _run(_rubric(SIGNS), a=_v(1), b=Failed(kind="timeout"), p=Failed(kind="timeout"))
    assert got.reward is None and got.rank_key is None
    assert (
        "coverage 0.5 is below 0.6" in got.reason
        and "no applicable penalty criterion has a value" in got.reason
    )


def test_weights_that_reach_the_bound_up_to_rounding_reach_it() -> None:
    items: dict[str, dict[str, Any]] = {f"i{k}": {"weight": 0.1} for k in range(10)}
    verdicts: dict[str, Any] = {f"i{k}": _v(1) if k < 6 else Failed(kind="timeout") for k in range(10)}
    assert _run(_rubric(items), **verdicts).reward == 1


# --- what each adds ---------------------------------------------------------------------------------------------


def parts(rubric: Any, **verdicts: Any) -> dict[str, float]:
    return added(rubric.bind({}), verdicts)


def test_net_parts_are_shares_of_the_means_and_a_penalty_takes() -> None:
    found = parts(_rubric(SIGNS), a=_v(1), b=_v(0.75), p=_v(0.6))  # 2/3 + .75/3 - .6/3; without a .25 - .2
    assert found == pytest.approx({"a": 2 / 3, "b": 0.25, "p": -0.2})
    assert parts(_rubric(SIGNS, scale="signed"), a=_v(1), b=_v(0.5), p=_v(0.6)) == pytest.approx(
        {"a": 2, "b": 0.5, "p": -0.6}
    )
    assert parts(_rubric({"p": {"polarity": "penalty"}}), p=_v(0.25)) == {"p": -0.25}


def test_a_part_is_what_the_reward_would_lack_so_bounds_and_gates_take_of_it() -> None:
    signs = _rubric(SIGNS)
    # .5·1/3 - 1/3 is below 0, where the reward ends: without the penalty it were 1/6, without b still 0.
    assert parts(signs, a=_v(0), b=_v(0.5), p=_v(1)) == pytest.approx({"a": 0, "b": 0, "p": -1 / 6})
    axioms = {"hard": {"type": "hard"}}
    kept, broken = _v(1, "kept"), _v(0, "violated")
    gated = _rubric({"a": {"weight": 2}, "b": {"weight": 1}}, axioms)
    assert parts(gated, a=_v(1), b=_v(0.5), hard=kept) == pytest.approx({"a": 2 / 3, "b": 0.5 / 3})
    assert aggregate(gated.bind({}), {"a": _v(1), "b": _v(0.5), "hard": broken}).reward == 0
    assert parts(gated, a=_v(1), b=_v(0.5), hard=broken) == {"a": 0, "b": 0}


def test_what_has_no_score_adds_nothing_that_is_known_and_the_others_share_its_weight() -> None:
    rubric = _rubric({"a": {"weight": 2}, "b": {"weight": 1}}, min_coverage=0)
    for missing in (CannotAssess(reason="no tool"), Failed(kind="timeout", detail="slow")):
        found = parts(rubric, a=_v(0.5), b=missing)
        reward = aggregate(rubric.bind({}), {"a": _v(0.5), "b": missing}).reward
        assert found["a"] == pytest.approx(reward) and math.isnan(found["b"])
    nothing = parts(rubric, a=Failed(kind="timeout", detail="slow"), b=Failed(kind="timeout", detail="slow"))
    assert all(math.isnan(value) for value in nothing.values()) and set(nothing) == {"a", "b"}
    assert all(math.isnan(v) for v in parts(_rubric({"a": {}, "b": {}}), a=_v(0.5)).values())  # no reward


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.lists(st.floats(0.1, 9), min_size=3, max_size=3))
def test_without_gates_and_penalties_the_parts_are_the_reward(
    values: list[float], weights: list[float]
) -> None:
    rubric = _rubric({name: {"weight": w} for name, w in zip("abc", weights, strict=True)})
    verdicts = {name: _v(value) for name, value in zip("abc", values, strict=True)}
    reward = aggregate(rubric.bind({}), verdicts).reward
    assert math.fsum(parts(rubric, **verdicts).values()) == pytest.approx(reward)
