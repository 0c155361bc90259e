"""The headline's numbers on hand-worked curves: crossing, censoring, area, choice of rates, intervals."""

import importlib
import itertools
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from axiomrm.stages.policy import success

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
choice: Any = importlib.import_module("policy_headline.choice")
curves: Any = importlib.import_module("policy_headline.curves")
one_run: Any = importlib.import_module("policy_headline.one_run")
runs: Any = importlib.import_module("policy_headline.runs")
scales: Any = importlib.import_module("policy_headline.scale")
stats: Any = importlib.import_module("policy_headline.stats")
report: Any = importlib.import_module("policy_headline.report")
tables: Any = importlib.import_module("policy_headline.tables")


def row(*success: float | None, budget: int | None = None, **more: Any) -> dict[str, Any]:
    """A run evaluated every 32 rollouts, from none on."""
    curve = [
        {"iteration": i, "rollouts": 32 * i, "success": s, "turns": 100.0 * i, "updates": i, "seconds": 1.0, "kl": 0.1 * i}
        for i, s in enumerate(success)
    ]  # fmt: skip
    found = {
        "curve": curve,
        "budget": budget or 32 * (len(success) - 1),
        "learning_rate": 1e-4,
        "seed": 1,
        "alarms": {},
    }
    return found | more


def test_a_crossing_counts_at_the_first_of_two_evaluations_that_reach_the_target() -> None:
    lucky = row(0.1, 0.6, 0.4, 0.5, 0.7, 0.3)
    found = curves.crossing(lucky, 0.5, 2)
    assert (found.rollouts, found.censored, found.point["turns"]) == (96.0, False, 300.0)
    assert curves.crossing(lucky, 0.5, 1).rollouts == 32.0


def test_one_good_last_evaluation_is_no_crossing() -> None:
    found = curves.crossing(row(0.1, 0.2, 0.9), 0.5, 2)
    assert (found.rollouts, found.censored) == (64.0, True)
    assert found.point["rollouts"] == 64
    assert curves.crossing(row(0.1, 0.2, 0.9, budget=320), 0.5, 2).rollouts == 320.0


def test_a_missing_evaluation_is_left_out_and_is_no_failure() -> None:
    assert curves.crossing(row(0.1, 0.6, None, 0.6), 0.5, 2).rollouts == 32.0
    assert math.isnan(curves.auc(row(None, None)))
    assert math.isnan(curves.final(row(None, None)))


def test_a_run_that_ended_early_keeps_its_last_success_to_the_budget() -> None:
    early = row(0.0, 0.8, 0.8, budget=128)
    # trapezoids: 0.4 * 32 + 0.8 * 32 + 0.8 * 64, over 128 rollouts
    assert curves.auc(early) == pytest.approx(0.7)
    assert curves.auc(row(0.0, 0.8, 0.8)) == pytest.approx(0.6)
    assert curves.final(row(0.1, 0.2, 0.4)) == pytest.approx(0.3)


def test_the_ratio_takes_the_better_rival_and_its_interval_is_that_of_all_draws() -> None:
    values = {"a": [100.0, 300.0], "b": [400.0, 400.0], "ours": [50.0, 50.0]}
    found = stats.stratified(values, stats.ratio(["a", "b"], "ours"), draws=4000)
    assert found.value == pytest.approx(4.0)
    # a draws 100, 200 or 300 on average with 1/4, 1/2, 1/4: ratios 2, 4, 6
    assert (found.low, found.high) == (2.0, 6.0)
    worse = stats.stratified({"a": [1.0, 3.0], "ours": [2.0, 4.0]}, stats.ratio(["a"], "ours"), draws=20000)
    exact = sorted(
        (x + y) / (u + v)
        for x, y in itertools.product((1, 3), repeat=2)
        for u, v in itertools.product((2, 4), repeat=2)
    )
    assert worse.value == pytest.approx(2 / 3)
    assert (worse.low, worse.high) == (pytest.approx(exact[0]), pytest.approx(exact[-1]))


def test_arms_are_strata_so_runs_never_change_their_arm() -> None:
    found = stats.stratified({"a": [1.0] * 3, "ours": [2.0] * 3}, stats.ratio(["a"], "ours"), draws=50)
    assert (found.value, found.low, found.high) == (0.5, 0.5, 0.5)
    assert stats.stratified({"a": [], "ours": [1.0]}, stats.ratio(["a"], "ours")).value is None
    assert stats.stratified({"ours": [1.0]}, stats.mean_of("ours"), draws=50).low is None


def test_probability_of_improvement_takes_censored_runs_as_later_and_as_ties() -> None:
    reached = [curves.Reached(64.0, False, {}), curves.Reached(128.0, True, {})]
    assert stats.order(reached) == [64.0, math.inf]
    ranks = {
        "ours": stats.order(reached),
        "other": stats.order([curves.Reached(128.0, False, {}), reached[1]]),
    }
    # 64 beats both; the censored one loses to 128 and ties with the censored one: (1 + 1 + 0 + 0.5) / 4
    assert stats.stratified(ranks, stats.better("ours", "other"), draws=100).value == pytest.approx(0.625)


def test_a_median_among_censored_runs_is_a_bound() -> None:
    done, never = curves.Reached(64.0, False, {}), curves.Reached(128.0, True, {})
    assert stats.median_text([done, done, never]) == "64"
    assert stats.median_text([done, never, never]) == "> 128"
    assert stats.median_text([done, never]) == "> 64"
    assert stats.median_text([]) == "not measured"


def scale(**fields: Any) -> Any:
    return scales.Scale.model_validate(
        {"arms": {"grpo": {"kind": "grpo"}}, "few": [], "tuning_seeds": [9], **fields}
    )


def chosen(scores: dict[float, int], **fields: Any) -> Any:
    """The choice when the rate r crosses at ``scores[r]`` evaluations."""

    def found(rate: float) -> list[dict[str, Any]] | None:
        return None if rate not in scores else [row(*(float(i >= scores[rate]) for i in range(9)))]

    return choice.choose(scale(**fields), [1.0, 3.0, 9.0], found)


def test_a_best_rate_in_the_middle_ends_the_tuning() -> None:
    found = chosen({1.0: 5, 3.0: 2, 9.0: 4})
    assert (found.rate, found.interior, found.grid) == (3.0, True, [1.0, 3.0, 9.0])


def test_a_best_rate_at_an_end_asks_for_one_beyond() -> None:
    waiting = chosen({1.0: 5, 3.0: 4, 9.0: 2})
    assert (waiting.rate, waiting.grid) == (None, [1.0, 3.0, 9.0, 27.0])
    below = chosen({1.0: 2, 3.0: 4, 9.0: 5}, widen_factor=4.0)
    assert below.grid == [0.25, 1.0, 3.0, 9.0]
    done = chosen({1.0: 5, 3.0: 4, 9.0: 2, 27.0: 3})
    assert (done.rate, done.interior) == (9.0, True)


def test_widening_ends_and_says_that_the_best_is_at_the_edge() -> None:
    found = chosen({1.0: 6, 3.0: 5, 9.0: 4, 27.0: 3, 81.0: 2})
    assert (found.rate, found.interior, len(found.grid)) == (81.0, False, 5)
    assert chosen({1.0: 6, 3.0: 5, 9.0: 4}, max_widenings=0).rate == 9.0


def test_rates_that_never_cross_are_told_apart_by_their_area() -> None:
    some = {1.0: row(0.1, 0.1, 0.1), 3.0: row(0.1, 0.3, 0.3), 9.0: row(0.1, 0.2, 0.2)}
    found = choice.choose(scale(), [1.0, 3.0, 9.0], lambda rate: [some[rate]])
    assert (found.rate, found.interior) == (3.0, True)


def test_seeds_that_tune_do_not_measure() -> None:
    with pytest.raises(ValidationError, match=r"\[2\] both tune and measure"):
        scale(tuning_seeds=[2])


def test_a_sweep_at_the_headlines_setting_is_the_headlines_run() -> None:
    frozen = scales.read_scale(scales.FROZEN)
    planner = runs.Planner(frozen, "weights")
    fresh = planner.run("fresh", "process_replay", 1e-4, 1)
    points = {
        v: planner.run("sweep", arm, 1e-4, 1, **c)
        for sweep in ("horizon", "noise", "hack", "dose")
        for arm, c in planner._points(sweep, "grpo", 1)
        for v in [f"{arm} {c['variant']}"]
    }
    same = {name for name, run in points.items() if run.digest == fresh.digest}
    assert same >= {
        "process_replay T=8",
        "process_replay noise=0.15",
        "process_replay pay=0 warn",
        f"process_replay U={frozen.arms['process_replay'].reuse}",
    }
    assert points["process_replay T=4"].policy.rollout.max_turns == 12
    assert points["grpo_k U=3"].policy.algorithm.passes == 4


def test_a_run_is_another_one_as_soon_as_a_setting_differs() -> None:
    planner = runs.Planner(scale(), "weights")
    first = planner.run("fresh", "grpo", 1e-4, 1)
    others = [
        planner.run("fresh", "grpo", 3e-4, 1),
        planner.run("fresh", "grpo", 1e-4, 2),
        planner.run("tune", "grpo", 1e-4, 1),
        runs.Planner(scale(), "other weights").run("fresh", "grpo", 1e-4, 1),
        runs.Planner(scale(noise=0.3), "weights").run("fresh", "grpo", 1e-4, 1),
    ]
    assert len({first.digest, *(r.digest for r in others)}) == 6
    assert planner.run("sweep-noise", "grpo", 1e-4, 1, variant="noise=0.15").digest == first.digest


SLOW, FAST, NEVER = row(0.1, 0.1, 0.1, 0.6, 0.6), row(0.1, 0.6, 0.6, 0.6, 0.6), row(*[0.1] * 5)


def test_regions_in_which_ours_loses_are_named() -> None:
    few, numbers = scale(fresh_seeds=[1, 2]), dict[str, Any]()
    lines = tables.losing(few, "noise=0.45", {"process_replay": [SLOW] * 2, "grpo": [FAST] * 2}, numbers)
    # areas of (.1 + .1)/2, .1, .35, .6 and of .35, .6, .6, .6, over four intervals
    assert lines == [
        "- noise=0.45: grpo needs fewer rollouts, ratio 0.33 [0.33, 0.33], AUC difference -0.25 [-0.25, -0.25]."
    ]
    assert numbers["losing: noise=0.45, grpo"]["ratio"]["value"] == pytest.approx(1 / 3)
    assert tables.losing(few, "", {"process_replay": [FAST] * 2, "grpo": [SLOW] * 2}, {}) == []
    half = tables.losing(few, "x", {"process_replay": [NEVER] * 2, "grpo": [SLOW, NEVER]}, {})
    assert half[0].startswith("- x: grpo needs fewer rollouts, ratio 0.88")  # (96 + 128) over 256


def test_where_neither_crosses_the_area_decides_and_is_not_called_rollouts() -> None:
    few, dull, worse = scale(fresh_seeds=[1, 2]), row(0.1, 0.2, 0.2), row(0.1, 0.1, 0.1)
    lines = tables.losing(few, "x", {"process_replay": [worse] * 2, "grpo": [dull] * 2}, {})
    # 0.1 against (0.15 + 0.2) / 2
    text = "AUC difference -0.08 [-0.08, -0.08]"
    assert lines == [f"- x: grpo has the greater area, neither crosses, {text}."]
    assert tables.losing(few, "x", {"process_replay": [dull] * 2, "grpo": [worse] * 2}, {}) == []
    assert tables.losing(few, "x", {"process_replay": [dull] * 2, "grpo": [dull] * 2}, {}) == []
    longer = row(0.1, 0.1, 0.1, budget=128)  # "> 64" against "> 128" says nothing
    assert tables.losing(few, "x", {"process_replay": [longer] * 2, "grpo": [worse] * 2}, {}) == []


def test_crossing_at_the_same_time_is_no_loss_whatever_the_areas() -> None:
    ours, other = row(0.1, 0.1, 0.6, 0.6, 0.6), row(0.1, 0.1, 0.6, 0.9, 0.9)
    assert tables.losing(scale(), "x", {"process_replay": [ours] * 2, "grpo": [other] * 2}, {}) == []


def test_a_loss_says_which_arm_lacks_runs() -> None:
    arms = {"process_replay": [SLOW] * 3, "grpo": [FAST]}
    assert "x: grpo (1 of 3 runs) needs" in tables.losing(scale(), "x", arms, {}, 3)[0]
    arms = {"process_replay": [SLOW] * 2, "grpo": [FAST] * 3}
    assert tables.losing(scale(), "x", arms, {}, 3)[0].endswith("; process_replay (2 of 3 runs).")


def test_costs_of_censored_runs_are_restricted_means_and_marked() -> None:
    reached = tables.times(scale(), [FAST, NEVER])
    # turns: 100 at the crossing, 400 of the whole run; the KL is that of the run that crossed
    assert tables._costs(reached) == ["250 (1 censored)", "2 (1 censored)", "1 (1 censored)"]
    assert tables._kl(reached) == "0.100 (n=1)"
    assert tables._costs(tables.times(scale(), [FAST, SLOW])) == ["200", "2", "1"]
    assert tables._kl(tables.times(scale(), [NEVER])) == "not measured"


def shown(arms: dict[str, list[dict[str, Any]]], **fields: Any) -> tuple[str, dict[str, Any]]:
    two = {"grpo": {"kind": "grpo"}, "grpo_k": {"kind": "grpo", "passes": 4}}
    numbers: dict[str, Any] = {}
    return "\n".join(tables.headline(scale(arms=two, **fields), arms, numbers)), numbers


def test_a_rival_that_lacks_runs_does_not_decide_the_headline() -> None:
    middle = row(0.1, 0.1, 0.6, 0.6, 0.6)
    text, numbers = shown({"grpo": [middle] * 5, "grpo_k": [FAST], "process_replay": [FAST] * 5})
    assert numbers["better outcome-GRPO over process_replay"]["value"] == 2.0
    assert "| grpo_k (1 of 5 runs) | process_replay | 1.00 |" in text
    assert "Headline ratio not decided, runs are missing: grpo_k (1 of 5 runs)." in text
    assert "the interval" not in text


def test_a_rival_without_a_run_and_ours_without_all_leave_the_headline_open() -> None:
    text, numbers = shown({"grpo": [SLOW] * 5, "process_replay": [FAST] * 4, "process": [FAST] * 5})
    assert "runs are missing: grpo_k (0 of 5 runs), process_replay (4 of 5 runs)." in text
    assert "| better outcome-GRPO | process_replay (4 of 5 runs) |" in text
    assert "So far: process_replay (4 of 5 runs)." in text
    assert "better outcome-GRPO over process_replay" in numbers
    assert not shown({"grpo": [SLOW], "process_replay": [FAST] * 5})[1].get(
        "better outcome-GRPO over process_replay"
    )
    whole, _ = shown({a: [SLOW] * 5 for a in ("grpo", "grpo_k", "process_replay", "process")})
    assert "Headline ratio 1.00: the interval does not exclude 1" in whole and "So far" not in whole


def test_tables_say_how_many_runs_are_missing_still() -> None:
    found = [r | {"curve": [p | {"solved": {}} for p in r["curve"]]} for r in (FAST, SLOW)]
    text = "\n".join(tables.arm_table(scale(fresh_seeds=[1, 2, 3]), {"grpo": found}, {}))
    assert "| grpo | 0.0001 | 2 of 3 | 64 [32, 96] |" in text
    assert "env turns to 50%, restricted mean" in text and "nats a token, one iteration behind" in text
    sweep = tables.sweep_table(scale(sweep_seeds=[1, 2]), "noise", {("grpo", "noise=0"): found}, {})
    assert "| noise=0 | grpo | 2 | 64 [32, 96] |" in "\n".join(sweep)


def test_the_commits_of_the_rows_are_listed_by_stage() -> None:
    numbers: dict[str, Any] = {}
    rows = [{"stage": "tune", "commit": "a" * 40}] * 2 + [
        {"stage": "fresh", "commit": c} for c in ("b" * 40, "")
    ]
    lines = tables.commit_table(rows, numbers)
    assert lines[4:7] == [
        f"| tune | {'a' * 12} | 2 |",
        f"| fresh | {'b' * 12} | 1 |",
        "| fresh | unknown | 1 |",
    ]
    assert numbers["commits"]["tune"] == {"a" * 40: 2}
    assert tables.commit_table([], numbers) == []


def test_the_report_counts_only_rows_of_its_own_settings(tmp_path: Path) -> None:
    planner = runs.Planner(scale(rates=[1e-4]), "weights")
    run = planner.run("tune", "grpo", 1e-4, 9)
    other = SLOW | {"digest": "of other settings", "commit": "old"}
    rows = {"tune": [SLOW | {"digest": run.digest, "commit": "new"}, other]}
    found = report.Rows(planner, rows)
    assert found.counted() == []
    found.of("tune")
    assert [r["commit"] for r in found.counted()] == ["new"]


def test_the_headline_says_whether_its_interval_excludes_one_and_who_was_censored() -> None:
    arms = {
        "grpo": [SLOW, SLOW, NEVER],
        "grpo_k": [NEVER] * 3,
        "process": [SLOW] * 3,
        "process_replay": [FAST] * 3,
    }
    text, numbers = shown(arms, fresh_seeds=[1, 2, 3])
    # (96 + 96 + 128) / 3 over 32
    assert numbers["better outcome-GRPO over process_replay"]["value"] == pytest.approx(10 / 3)
    assert "the interval excludes 1, the aim of 3 is reached" in text
    assert "1 runs of grpo never crossed and count with the budget, which makes the ratio too small" in text
    assert numbers["process over process_replay"]["value"] == pytest.approx(3.0)
    assert numbers["process_replay better than grpo"]["value"] == 1.0


def test_the_trained_judges_row_needs_a_judge_and_is_another_run_with_another_one() -> None:
    frozen = scales.read_scale(scales.FROZEN)
    with pytest.raises(SystemExit, match="needs --judge FOLDER"):
        runs.Planner(frozen, "weights")._trained(1e-4, 1)
    a, b = (runs.Planner(frozen, "weights", judge)._trained(1e-4, 1) for judge in ("one", "two"))
    assert a.judge.level == "turn" and a.split == "heldout" and a.digest != b.digest


def test_the_kind_that_training_does_not_have_is_told_apart() -> None:
    rows = [row(0.5, 0.5), row(0.5, 0.5)]
    for found in rows:
        found["curve"][-1]["solved"] = {"cancel": [1, 2], "return": [0, 1], "status": [2, 2]}
    assert tables.kinds(rows) == ("0.75 (n=8)", "0.00 (n=2)")
    rows[0]["curve"][-1]["solved"] = rows[1]["curve"][-1]["solved"] = {}
    assert tables.kinds(rows) == ("not measured", "not measured")


def test_success_leaves_out_the_kind_that_training_does_not_have() -> None:
    def episode(kind: str, outcome: float) -> Any:
        return SimpleNamespace(record=SimpleNamespace(task_type=kind, outcome=outcome))

    told = [episode("cancel", 1.0), episode("return", 0.0), episode("status", 0.0)]
    assert success(one_run.of_training_kinds(told)) == 0.5
    assert success(one_run.of_training_kinds([episode("return", 1.0)])) is None
    assert one_run.solved_by_type(told) == {"cancel": [1, 1], "return": [0, 1], "status": [0, 1]}
