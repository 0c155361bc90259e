import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.errors import ConfigError, JudgeError
from axiomrm.policy_opt.algorithms.base import Guardable
from axiomrm.policy_opt.algorithms.build import build_algorithm
from axiomrm.policy_opt.algorithms.grpo import GRPO
from axiomrm.policy_opt.algorithms.presets import PRESETS
from axiomrm.policy_opt.config import GRPOConfig, PolicyConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.monitoring.config import MonitorConfig
from axiomrm.policy_opt.monitoring.monitors import Monitors
from axiomrm.policy_opt.monitoring.spot_checks import read_spot_checks
from axiomrm.policy_opt.monitoring.watch import Watch
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode, TurnScores


class Flatterer:
    """A judge that pays more from call to call, whatever was said; it remembers how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, trajectories: Any) -> list[TurnScores]:
        self.calls += 1
        pay = 0.1 * self.calls
        return [
            TurnScores(
                [pay] * len(t.turns),
                [None] * len(t.turns),
                "flatterer",
                "none",
                parts=[{"pay": pay}] * len(t.turns),
                critiques=[{"pay": "how kind"}] * len(t.turns),
            )
            for t in trajectories
        ]

    def state_dict(self) -> dict[str, Any]:
        return {"calls": self.calls}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.calls = state["calls"]


def config(**options: Any) -> PolicyConfig:
    return PolicyConfig(
        **{
            "iterations": 6, "tasks_per_iteration": 1, "group_size": 4, "learning_rate": 1e-4,
            "algorithm": ProcessReplayConfig(reuse=0, calibrate_beta=False),
            "rollout": RolloutConfig(max_turn_tokens=4), "monitors": MonitorConfig(warmup=2),
            **options,
        }
    )  # fmt: skip


def trainer(toy: Any, folder: Path, **options: Any) -> Any:
    made = toy.trainer(folder, config(**options), turn_judge=Flatterer())
    made.env_factory = lambda: toy.env(3, dense=False)
    return made


def test_a_gamed_judge_loses_its_say_the_evidence_is_kept_and_a_resumed_run_still_knows(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        whole = trainer(toy, tmp_path / "a", on_hack="guard")
        rows = whole.run()
    fired = next(i for i, row in enumerate(rows) if "monitor/divergence" in row)
    assert [row["advantage/beta_eff"] > 0 for row in rows] == [i < fired for i in range(6)] and fired < 5
    assert "divergence" in caplog.text
    read = read_spot_checks(tmp_path / "a" / "alarms.jsonl")
    assert read[0]["iteration"] == fired and read[0]["trajectory"]["turn_rewards"]
    assert read[0]["trajectory"]["metadata"]["turn_critiques"] == [{"pay": "how kind"}] * 3
    trainer(toy, tmp_path / "b", on_hack="guard", iterations=fired + 1).run()
    resumed = trainer(toy, tmp_path / "b", on_hack="guard")
    again = resumed.run()
    assert again[-1]["advantage/beta_eff"] == 0.0 and resumed.turn_judge.calls == 6
    strip = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in (rows[-1], again[-1])]
    assert json.dumps(strip[0], sort_keys=True) == json.dumps(strip[1], sort_keys=True)


def test_a_run_can_stop_at_a_gamed_judge_and_stays_stopped(toy: Any, tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match="rises"):
        trainer(toy, tmp_path, on_hack="stop").run()
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert 2 < len(rows) < 6 and "monitor/divergence" in rows[-1]
    with pytest.raises(JudgeError, match="rises"):
        trainer(toy, tmp_path, on_hack="stop").run()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == len(rows)


def test_an_algorithm_that_needs_turn_rewards_cannot_be_guarded(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="GRPO cannot drop turn rewards"):
        Watch(Monitors(MonitorConfig()), "guard", tmp_path, GRPO(GRPOConfig()))


@pytest.mark.parametrize("preset", PRESETS)
def test_a_configuration_says_so_before_a_run_begins(preset: str) -> None:
    made: Any = build_algorithm(PRESETS[preset])
    values = {"algorithm": PRESETS[preset].model_dump(), "on_hack": "guard", "group_size": 2}
    if isinstance(made, Guardable):
        if getattr(PRESETS[preset], "alpha", 1):
            assert PolicyConfig.model_validate(values).on_hack == "guard"
        return
    with pytest.raises(ValueError, match=f"on_hack 'guard': {type(made).__name__} cannot drop turn rewards"):
        PolicyConfig.model_validate(values)


def test_rows_hold_the_diagnostics_and_the_tracker_gets_each_row_once(toy: Any, tmp_path: Path) -> None:
    class Kept:
        def __init__(self) -> None:
            self.rows: list[tuple[int, dict[str, float]]] = []

        def log(self, iteration: int, metrics: Any) -> None:
            self.rows.append((iteration, dict(metrics)))

        def close(self) -> None:
            pass

    made = trainer(toy, tmp_path, iterations=2)
    made.tracker = Kept()
    rows = made.run()
    assert [i for i, _ in made.tracker.rows] == [0, 1]
    assert rows[0]["part/pay_mean"] == pytest.approx(0.1) and rows[0]["part/pay_missing_share"] == 0.0
    assert rows[0]["advantage/group_size_mean"] == 4.0 and rows[0]["advantage/baseline_first_share"] == 1.0
    assert rows[0]["offpolicy/rho_mean"] == pytest.approx(1.0, abs=1e-4)
    assert (
        rows[0]["reward/success_type_copy"]
        == rows[0]["reward/success_turns_to4"]
        == rows[0]["reward/success"]
    )


def test_a_checkpoint_from_before_a_field_existed_is_read_with_its_default(toy: Any, tmp_path: Path) -> None:
    trainer(toy, tmp_path, iterations=1, monitors=MonitorConfig()).run()
    state = next(tmp_path.glob("checkpoint-*")) / "state.json"
    old = json.loads(state.read_text())
    for name in ("on_hack", "monitors"):
        del old["config"][name]
    state.write_text(json.dumps(old))
    assert len(trainer(toy, tmp_path, iterations=2, monitors=MonitorConfig()).run()) == 2


def test_the_default_monitors_are_those_of_the_configuration() -> None:
    assert Monitors().config == PolicyConfig().monitors == MonitorConfig()


class Flattered(Flatterer):
    """Two criteria: what the turn is worth, and one that pays more from call to call."""

    def __call__(self, trajectories: Any) -> list[TurnScores]:
        self.calls += 1
        return [self._scores(t) for t in trajectories]

    def _scores(self, trajectory: Trajectory) -> TurnScores:
        worth = [0.1 * int(trajectory.id.split("#")[1])] * len(trajectory.turns)  # by the rollout's number
        pay = 0.1 * self.calls
        return TurnScores(
            [w + pay for w in worth],
            [None] * len(worth),
            "flattered",
            "none",
            parts=[{"worth": w, "pay": pay} for w in worth],
        )


def by_criteria(toy: Any, folder: Path, **options: Any) -> Any:
    algorithm = ProcessReplayConfig(window=4, calibrate_beta=False, rescore_turns=100)
    made = toy.trainer(folder, config(algorithm=algorithm, **options), turn_judge=Flattered())
    made.env_factory = lambda: toy.env(3, dense=False)
    return made


def stripped(rows: Sequence[Any]) -> str:
    kept = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]
    return json.dumps(kept, sort_keys=True)


def test_a_guard_leaves_out_what_is_gamed_and_the_rest_goes_on_teaching(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[list[dict[str, float]]] = []
    stored: list[list[StepRecord]] = []

    def keep(iteration: int, metrics: Any, episodes: list[Episode]) -> None:
        stored.append([step for record in whole.algorithm.buffer.records for step in record.steps])
        seen.append([step.r_parts for e in episodes for step in e.record.steps])
        for e in episodes:
            for step in e.record.steps:
                assert step.r_local == pytest.approx(sum(step.r_parts.values()))

    whole = by_criteria(toy, tmp_path / "a", on_hack="guard")
    whole.on_iteration = keep
    with caplog.at_level(logging.WARNING):
        rows = whole.run()
    fired = next(i for i, row in enumerate(rows) if "monitor/divergence" in row)
    assert 2 <= fired < 5 and f"iteration {fired}: on_hack guard: the turn reward goes on without 'pay'" in (
        caplog.text
    )
    assert [row["guard/criteria_left_out"] for row in rows] == [float(i >= fired) for i in range(6)]
    assert all(row["guard/outcomes_alone"] == 0 and row["advantage/beta_eff"] > 0 for row in rows)
    assert [{name for own in parts for name in own} for parts in seen] == [
        {"worth"} if i >= fired else {"worth", "pay"} for i in range(6)
    ]
    # What was stored before was scored again without it, so that no step of the whole judge is replayed.
    assert {step.policy_version for step in stored[fired]} == {fired - 1, fired}
    assert {step.judge_revision for step in stored[fired]} == {"flattered without pay"}
    assert not any("pay" in step.r_parts for step in stored[fired])
    evidence = (tmp_path / "a" / "alarms.jsonl").read_text().splitlines()[0]
    assert "pay" in json.loads(evidence)["trajectory"]["metadata"]["turn_parts"][0]

    by_criteria(toy, tmp_path / "b", on_hack="guard", iterations=fired + 1).run()
    resumed = by_criteria(toy, tmp_path / "b", on_hack="guard")
    assert stripped(resumed.run()) == stripped(rows)
    assert resumed.watch.left_out == {"pay"}


def test_only_a_guard_leaves_anything_out(toy: Any, tmp_path: Path) -> None:
    made = by_criteria(toy, tmp_path)
    rows = made.run()
    assert any("monitor/divergence" in row for row in rows) and not made.watch.left_out
    assert not any(name.startswith("guard/") for row in rows for name in row)


def guarded(watch: Watch) -> bool:
    algorithm: Any = watch.algorithm
    return bool(algorithm.guarded)


def talk(group: str, parts: dict[str, float]) -> Episode:
    step = StepRecord("t", 0, 0, 1, 2, 0, np.zeros(1, dtype=np.float32), sum(parts.values()), parts)
    step.judge_revision = "judge"
    said = (Message(role="assistant", content="word"),)
    return Episode(TrajectoryRecord("t", "t", group, [], [step], 0, outcome=0.0), Trajectory(messages=said))


def test_where_nothing_would_be_left_or_nothing_can_be_named_outcomes_teach_alone(tmp_path: Path) -> None:
    def watched(*rows: Any) -> Watch:
        algorithm: Any = build_algorithm(ProcessReplayConfig(calibrate_beta=False))
        watch = Watch(Monitors(MonitorConfig(warmup=2)), "guard", tmp_path, algorithm)
        for k, own in enumerate(rows):
            last = watch.look(k, [talk(name, own) for name in "gh"])
        assert last["guard/outcomes_alone"] == float(algorithm.guarded)
        return watch

    both = watched(*[{"a": 0.1, "b": 0.1}] * 2, *[{"a": 0.9, "b": 0.9}] * 2)
    assert both.left_out == {"a", "b"} and guarded(both)
    alone = watched(*[{"a": 0.1}] * 2, *[{"a": 0.9}] * 2)
    assert not alone.left_out and guarded(alone)
    one = watched(*[{"a": 0.1, "b": 0.1}] * 2, *[{"a": 0.1, "b": 0.9}] * 2)
    assert one.left_out == {"b"} and not guarded(one)
    # What is left is watched on: its rise is measured from after the alarm.
    later = watched(*[{"a": 0.1, "b": 0.1}] * 2, {"a": 0.1, "b": 0.9}, *[{"a": 0.1}] * 2, *[{"a": 0.8}] * 2)
    assert later.left_out == {"b"} and guarded(later)


def test_a_checkpoint_of_before_criteria_were_left_out_keeps_its_guard(tmp_path: Path) -> None:
    algorithm: Any = build_algorithm(ProcessReplayConfig(calibrate_beta=False))
    watch = Watch(Monitors(MonitorConfig(warmup=2)), "guard", tmp_path, algorithm)
    state = watch.state_dict() | {"gamed": True}
    old = {key: value for key, value in state.items() if key not in ("left_out", "outcomes_alone")}
    watch.load_state_dict(old)
    assert algorithm.guarded and not watch.left_out
