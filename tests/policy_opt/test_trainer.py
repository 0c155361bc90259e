import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from axiomrm.errors import ConfigError, DataError, JudgeError
from axiomrm.policy_opt.config import (
    BestOfKConfig,
    GRPOConfig,
    KLConfig,
    PolicyConfig,
    ProcessReplayConfig,
    RolloutConfig,
)
from axiomrm.policy_opt.rewards.base import TurnScores


def config(**options: Any) -> PolicyConfig:
    defaults: dict[str, Any] = {
        "iterations": 3, "tasks_per_iteration": 2, "group_size": 4, "learning_rate": 3e-3,
        "rollout": RolloutConfig(max_turn_tokens=4),
    }  # fmt: skip
    return PolicyConfig(**(defaults | options))


def untimed(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]


def same(a: list[dict[str, float]], b: list[dict[str, float]]) -> bool:
    return json.dumps(untimed(a), sort_keys=True) == json.dumps(untimed(b), sort_keys=True)


def test_process_and_replay_learn_to_copy(toy: Any, tmp_path: Path) -> None:
    rows = toy.trainer(tmp_path, config(iterations=14, tasks_per_iteration=4, group_size=8)).run()
    assert rows[0]["reward/local_mean"] < 0.5
    assert rows[-1]["reward/success"] > 0.6


@pytest.mark.parametrize(
    "algorithm", [GRPOConfig(passes=2, minibatches=4), BestOfKConfig(keep=4, passes=4, minibatches=2)]
)
def test_the_other_arms_improve_a_single_turn(toy: Any, tmp_path: Path, algorithm: Any) -> None:
    options = config(iterations=16, tasks_per_iteration=4, group_size=8, algorithm=algorithm)
    rows = toy.trainer(tmp_path, options, turns=1).run()
    assert rows[-1]["reward/success"] > rows[0]["reward/success"] + 0.25


@pytest.mark.parametrize("minibatches", [1, 2])
def test_reuse_ends_where_the_policy_moved_too_far_and_spends_no_use_of_what_it_skips(
    toy: Any, tmp_path: Path, minibatches: int
) -> None:
    strict = KLConfig(target_nats_per_token=1e-7)  # whatever the policy moves is too far
    options = config(
        iterations=3, kl=strict, algorithm=ProcessReplayConfig(reuse=3, minibatches=minibatches, window=0)
    )
    trainer = toy.trainer(tmp_path, options)
    used: list[set[int]] = []
    finish = trainer.algorithm.finish

    def watched(version: int) -> Any:
        used.append({step.uses for record in trainer.algorithm.buffer.records for step in record.steps})
        return finish(version)

    trainer.algorithm.finish = watched
    rows = trainer.run()
    # The first minibatch of the run is seen before anything has moved, the second is too far.
    assert [row["policy/updates"] for row in rows] == [2, minibatches, minibatches]
    assert [row["offpolicy/reuse_stopped"] for row in rows] == [1.0, 1.0, 1.0]
    assert used[1] == {1} and used[2] == {1}


class Killed(Exception):
    pass


@pytest.mark.parametrize("algorithm", [ProcessReplayConfig(), GRPOConfig(passes=2)])
@pytest.mark.parametrize("where", ["rollout", "judge", "update", "save"])
def test_a_killed_run_continues_to_the_same_metrics_and_weights(
    toy: Any, tmp_path: Path, algorithm: Any, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = config(iterations=4, algorithm=algorithm, schedule="linear")
    whole = toy.trainer(tmp_path / "a", options)
    expected = whole.run()
    first = toy.trainer(tmp_path / "b", options)
    name = {"rollout": "rollout", "judge": "_score", "update": "_update", "save": "_save"}[where]
    original, calls = getattr(first, name), []

    def dies(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise Killed
        return original(*args)

    monkeypatch.setattr(first, name, dies)
    with pytest.raises(Killed):
        first.run()
    (tmp_path / "b" / "checkpoint-9.partial").mkdir()
    second = toy.trainer(tmp_path / "b", options)
    got = second.run()
    assert same(got, expected)
    on_disk = [json.loads(line) for line in (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()]
    assert [row["iteration"] for row in on_disk] == [0, 1, 2, 3]
    for x, y in zip(whole.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(x, y)
    if algorithm.kind == "process_replay":
        assert json.dumps(whole.algorithm.state_dict()) == json.dumps(second.algorithm.state_dict())


def test_the_metrics_file_is_strict_json(toy: Any, tmp_path: Path) -> None:
    toy.trainer(tmp_path, config(iterations=1)).run()
    json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_a_folder_of_another_run_is_refused(toy: Any, tmp_path: Path) -> None:
    toy.trainer(tmp_path, config(iterations=1)).run()
    with pytest.raises(ConfigError, match="learning_rate"):
        toy.trainer(tmp_path, config(iterations=2, learning_rate=1e-5)).run()
    with pytest.raises(ConfigError, match="starting weights"):
        toy.trainer(tmp_path, config(iterations=2), model=toy.model(seed=9)).run()


def test_more_iterations_continue_a_finished_run(toy: Any, tmp_path: Path) -> None:
    whole = toy.trainer(tmp_path / "a", config(iterations=3)).run()
    toy.trainer(tmp_path / "b", config(iterations=2)).run()
    assert same(toy.trainer(tmp_path / "b", config(iterations=3)).run(), whole)


def test_the_turn_judge_is_asked_where_the_environment_gave_no_reward(toy: Any, tmp_path: Path) -> None:
    seen: list[int] = []

    def judge(trajectories: Any) -> list[TurnScores]:
        seen.append(len(trajectories))
        answers: list[TurnScores] = toy.judge(trajectories)
        return answers

    trainer = toy.trainer(tmp_path, config(iterations=1), turn_judge=judge)
    trainer.env_factory = lambda: toy.env(3, dense=False)
    rows = trainer.run()
    assert seen == [8] and 0 < rows[0]["reward/local_mean"] < 1
    step = trainer.algorithm.buffer.records[0].steps[0]
    assert (step.judge_revision, step.rubric_hash) == ("oracle-1", "toy")


def test_without_a_judge_only_the_outcome_teaches(toy: Any, tmp_path: Path) -> None:
    trainer = toy.trainer(tmp_path, config(iterations=1))
    trainer.env_factory = lambda: toy.env(3, dense=False)
    rows = trainer.run()
    assert math.isnan(rows[0]["reward/local_mean"]) and rows[0]["reward/local_missing_share"] == 1.0


def test_too_many_failed_judgements_stop_the_run_with_a_breakdown(toy: Any, tmp_path: Path) -> None:
    def broken(trajectories: Any) -> list[TurnScores]:
        return [
            TurnScores([math.nan] * len(t.turns), ["failed:timeout"] * len(t.turns), "r", "h")
            for t in trajectories
        ]

    trainer = toy.trainer(tmp_path, config(group_size=16), turn_judge=broken)
    trainer.env_factory = lambda: toy.env(3, dense=False)
    with pytest.raises(JudgeError, match="failed:timeout"):
        trainer.run()


def test_abstentions_are_missing_and_do_not_stop_the_run(toy: Any, tmp_path: Path) -> None:
    def shy(trajectories: Any) -> list[TurnScores]:
        return [
            TurnScores([math.nan] * len(t.turns), ["cannot_assess:x"] * len(t.turns), "r", "h")
            for t in trajectories
        ]

    trainer = toy.trainer(tmp_path, config(iterations=1, group_size=16), turn_judge=shy)
    trainer.env_factory = lambda: toy.env(3, dense=False)
    assert trainer.run()[0]["reward/local_missing_share"] == 1.0


def test_tasks_are_drawn_without_replacement_within_a_round(toy: Any, tmp_path: Path) -> None:
    trainer = toy.trainer(tmp_path, config(tasks_per_iteration=2), tasks=toy.tasks(6))
    drawn = [t.id for it in range(3) for t in trainer.draw_tasks(it)]
    assert sorted(drawn) == sorted(t.id for t in toy.tasks(6))


def test_a_half_written_checkpoint_is_ignored(toy: Any, tmp_path: Path) -> None:
    toy.trainer(tmp_path, config(iterations=1)).run()
    half = tmp_path / "checkpoint-2"
    shutil.copytree(tmp_path / "checkpoint-1", half)
    (half / "state.json").unlink()
    assert len(toy.trainer(tmp_path, config(iterations=2)).run()) == 2


def test_algorithms_are_told_apart_by_kind_and_unknown_fields_are_errors() -> None:
    assert PolicyConfig.model_validate({"algorithm": {"kind": "grpo", "passes": 4}}).algorithm == GRPOConfig(
        passes=4
    )
    with pytest.raises(ValidationError, match="surprise"):
        PolicyConfig.model_validate({"algorithm": {"kind": "grpo", "surprise": 1}})
    with pytest.raises(ValidationError, match="group_size=1"):
        PolicyConfig.model_validate({"algorithm": {"kind": "grpo"}, "group_size": 1})


def test_no_tasks_is_a_typed_error(toy: Any, tmp_path: Path) -> None:
    from axiomrm.policy_opt.trainer import PolicyTrainer

    with pytest.raises(ConfigError, match="no tasks"):
        PolicyTrainer(toy.model(), toy.chat, toy.env, [], config(), tmp_path)


def test_a_linear_schedule_falls_from_the_full_rate_to_its_last_share(toy: Any, tmp_path: Path) -> None:
    seen: list[float] = []
    trainer = toy.trainer(tmp_path, config(iterations=4, learning_rate=8e-4, schedule="linear"))
    trainer.on_iteration = lambda *_: seen.append(trainer.optimizer.param_groups[0]["lr"])
    trainer.run()
    assert seen == pytest.approx([8e-4, 6e-4, 4e-4, 2e-4])


def test_a_policy_that_diverges_stops_the_run(toy: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no finite numbers|norm of the gradient is (nan|inf)"):
        toy.trainer(tmp_path, config(weight_decay=1e30, iterations=4)).run()


def test_a_temperature_at_which_nothing_has_a_probability_is_named(toy: Any, tmp_path: Path) -> None:
    rollout = RolloutConfig(temperature=1e-300, max_turns=2, max_turn_tokens=2)
    with pytest.raises(DataError, match="sampling at temperature 1e-300: the model's logits"):
        toy.trainer(tmp_path, config(iterations=1, rollout=rollout)).run()
