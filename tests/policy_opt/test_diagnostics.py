import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.policy_opt.advantages import mix
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.batch_statistics import advantage_shares, scale_metrics
from axiomrm.policy_opt.config import PolicyConfig, PPOConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.drawn import (
    Drawn,
    drawn_steps,
    entropy_by_turn,
    evenness,
    mask_metrics,
    replay_metrics,
)
from axiomrm.policy_opt.kl import KLController
from axiomrm.policy_opt.monitoring.diagnostics import episode_diagnostics
from axiomrm.policy_opt.monitoring.metrics import update_metrics
from axiomrm.policy_opt.packing import DrawnStep, micro_batches
from axiomrm.policy_opt.records import StepRecord, StepReturns, Target, TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.running import RunningStatistics

NAN = math.nan


def episode(name: str, rewards: list[float], outcome: float, kind: str, **info: object) -> Episode:
    steps = [
        StepRecord(name, t, 0, 1, 2, 0, np.zeros(1, dtype=np.float32), r_local=r, r_parts={"p": r},
                   missing="failed:timeout" if math.isnan(r) else None)
        for t, r in enumerate(rewards)
    ]  # fmt: skip
    said = tuple(Message(role="assistant", tool_calls=(ToolCall(name="find"),)) for _ in rewards)
    record = TrajectoryRecord(name, name, "g", [], steps, 0, task_type=kind, outcome=outcome)
    return Episode(record, Trajectory(messages=said, id=name, metadata={"turns": [info] * len(rewards)}))


def test_means_are_over_rollouts_so_that_a_long_one_counts_once() -> None:
    found = episode_diagnostics(
        [
            episode("a", [1.0], 1.0, "x"),
            episode("b", [0.0, 0.0, 0.0, 0.0, NAN], 0.0, "y", error_kind="timeout"),
        ]
    )
    assert found["part/p_mean"] == 0.5 and found["part/p_missing_share"] == pytest.approx(1 / 6)
    assert found["reward/local_std"] == 0.5 and found["reward/outcome_std"] == 0.5
    assert (found["reward/success_type_x"], found["reward/success_type_y"]) == (1.0, 0.0)
    assert (found["reward/success_turns_to4"], found["reward/success_turns_5to8"]) == (1.0, 0.0)
    assert (found["env/tool_calls"], found["env/error_timeout"], found["judge/missing_failed"]) == (
        6.0,
        5.0,
        1.0,
    )


def test_nothing_known_is_nan_and_never_zero() -> None:
    found = episode_diagnostics([episode("a", [NAN], NAN, "x")])
    assert math.isnan(found["part/p_mean"]) and math.isnan(found["reward/outcome_std"])
    assert "reward/success_type_x" not in found


def test_shares_of_advantages_by_hand() -> None:
    found = advantage_shares([(1.0, -1.0), (1.0, 1.0), (NAN, 1.0)], [0.0, 3.0, -3.0, 1.0, NAN])
    assert found == {
        "advantage/zero_share": 0.25, "advantage/clipped_share": 0.5, "advantage/sign_conflict_share": 0.5,
    }  # fmt: skip
    assert all(math.isnan(value) for value in advantage_shares([], []).values())


def test_what_the_mix_clips_is_what_is_counted_as_clipped() -> None:
    most = mix(1e6, NAN, alpha=1.0, beta_eff=0.0)
    found = advantage_shares([], [most, -most, most - 1e-6, 0.0])
    assert found["advantage/clipped_share"] == 0.5


def test_a_missing_verdict_is_counted_by_its_kind_and_a_judges_own_words_are_no_kind() -> None:
    whole = episode("a", [NAN, NAN, NAN, 1.0, 1.0], 1.0, "x")
    steps = whole.record.steps
    steps[1].missing, steps[2].missing = "failed:the judge hung up on turn 7", "cannot_assess:short"
    steps[3].judge_revision = "j"  # the environment rewarded the last turn itself
    found = episode_diagnostics([whole])
    assert {k: v for k, v in found.items() if k.startswith("judge/")} == {
        "judge/missing_failed": 2.0, "judge/missing_cannot_assess": 1.0, "judge/failed_timeout": 1.0,
        "judge/failed_other": 1.0, "judge/asked_turns": 4.0,
    }  # fmt: skip
    untouched = episode_diagnostics([episode("a", [1.0], 1.0, "x")])
    assert not [name for name in untouched if name.startswith("judge/")]


def test_sizes_of_baseline_groups_are_counted_in_classes() -> None:
    whole = episode("a", [1.0, 1.0, 1.0, 1.0, 1.0], 1.0, "x")
    for step, m in zip(whole.record.steps, (1, 2, 4, 8, 9), strict=True):
        step.returns = StepReturns(local=Target(1.0, 0.5, m, 0))
    found = episode_diagnostics([whole])
    sizes = {name.removeprefix("advantage/"): found[name] for name in found if "group_size" in name}
    assert sizes == {
        "group_size_2to4_share": 0.4, "group_size_5to8_share": 0.2, "group_size_9up_share": 0.2,
        "group_size_mean": 4.8,
    }  # fmt: skip
    assert found["advantage/alone_share"] == 0.2


def test_what_a_step_leaves_behind_by_hand() -> None:
    behaviour = np.array([-1, -1], dtype=np.float32), np.array([-2], dtype=np.float32)
    steps = [
        StepRecord("a", 0, 0, 1, 3, 3, behaviour[0], uses=1),
        StepRecord("a", 1, 0, 3, 4, 3, behaviour[1]),
    ]
    record = TrajectoryRecord("a", "a", "g", [np.array([5, 6, 7, 8], dtype=np.int32)], steps, 3)
    drawn = [DrawnStep(record, steps[0], 1.0), DrawnStep(record, steps[1], -1.0, fresh=False)]
    (batch,) = micro_batches(drawn, [1.0, 1.0], token_budget=100)
    parts = ProcessReplay(ProcessReplayConfig()).token_loss(torch.tensor([-0.8, -0.6, -2.1]), batch)
    up, down = drawn_steps(batch, parts, torch.tensor([1.0, 2.0, 5.0]))
    # log-ratios 0.2 and 0.4: above 0.4 / sqrt(2) on average, so masked; -A log pi is 0.8 and 0.6
    assert (up.turn, up.tokens, up.version, up.uses, up.fresh, up.kept) == (0, 2, 3, 1, True, False)
    assert [up.entropy, up.advantage, up.m1, up.term] == pytest.approx([1.5, 1.0, 0.3, 0.7])
    assert (down.turn, down.tokens, down.version, down.uses, down.fresh, down.kept) == (
        1,
        1,
        3,
        0,
        False,
        True,
    )
    # taper: weight exp(-0.1) on 1 * -2.1
    taper = math.exp(-0.1)
    assert [down.entropy, down.advantage, down.m1, down.term] == pytest.approx([5, -1, -0.1, taper * -2.1])


def drawn(**changed: Any) -> Drawn:
    plain = Drawn(0, 1, 1.0, 1.0, fresh=True, version=5, uses=0, m1=0.0, kept=True, term=0.0)
    return plain._replace(**changed)


def test_entropy_by_turn_weighs_tokens_and_leaves_out_turns_that_nobody_took() -> None:
    steps = [
        drawn(), drawn(tokens=3, entropy=2.0), drawn(turn=1, entropy=4.0), drawn(turn=8, entropy=0.5)
    ]  # fmt: skip
    assert entropy_by_turn(steps) == {
        "policy/entropy_turn_1_nats": 1.75, "policy/entropy_turn_2to4_nats": 4.0,
        "policy/entropy_turn_9up_nats": 0.5,
    }  # fmt: skip
    assert entropy_by_turn([]) == {}


def test_the_masked_share_is_told_by_sign() -> None:
    steps = [
        drawn(m1=0.1), drawn(m1=0.3, kept=False), drawn(m1=-0.4, advantage=-1.0),
        drawn(m1=0.2, advantage=0.0, kept=False),
    ]  # fmt: skip
    assert mask_metrics(steps) == {
        "offpolicy/m1": pytest.approx(0.05), "offpolicy/masked_positive_share": 0.5,
        "offpolicy/masked_negative_share": 0.0,
    }  # fmt: skip
    assert mask_metrics(steps[3:]) == {"offpolicy/m1": 0.2} and mask_metrics([]) == {}


def test_lag_uses_and_what_replay_adds_by_hand() -> None:
    fresh = [drawn(uses=1, term=2.0), drawn(uses=1, advantage=0.0, kept=False, term=9.0)]
    old = [
        drawn(fresh=False, version=4, advantage=-1.0, term=-1.0),
        drawn(fresh=False, version=2, uses=4, advantage=-2.0, term=-3.0),
    ]
    found = replay_metrics([drawn()], [*fresh, *old])
    assert {name.removeprefix("replay/"): value for name, value in found.items()} == {
        "fresh_share": 0.5,
        "uses_0_share": 0.25, "uses_1_share": 0.5, "uses_2_share": 0.0, "uses_3up_share": 0.25,
        "lag_1_share": 0.25, "lag_2_share": 0.0, "lag_3to4_share": 0.25, "lag_5up_share": 0.0,
        "advantage_mean_fresh": 0.5, "advantage_mean_replayed": -1.5,
        "loss_fresh": 2.0, "loss_replayed": -2.0,
    }  # fmt: skip
    assert replay_metrics([drawn()], []) == {}
    assert not [name for name in replay_metrics([], fresh) if "advantage" in name or "loss" in name]
    assert not [name for name in replay_metrics([], old) if "lag" in name or "_mean_fresh" in name]


def test_how_even_a_draw_is() -> None:
    assert evenness(np.full(4, 0.25)) == pytest.approx(1.0) and evenness(np.array([1.0, 0.0])) == 0.0
    assert evenness(np.array([0.5, 0.5, 0.0, 0.0])) == pytest.approx(0.5)
    assert math.isnan(evenness(np.array([1.0])))


def test_the_local_scale_and_the_interval_of_discrimination_by_hand() -> None:
    statistics = RunningStatistics(discriminations=[0.0] * 10 + [1.0] * 9)
    steps = [step for e in [episode("a", [1.0, NAN], 1.0, "x")] for step in e.record.steps]
    for step in steps:
        step.returns = StepReturns(local=Target(step.r_local))
    assert scale_metrics(statistics, steps) == {}  # no scale yet, and the prior stands
    statistics.update_sigma("local:@", 0.3)
    statistics.add_discrimination(1.0)
    found = scale_metrics(statistics, steps)
    reach = 1.96 * math.sqrt(20 * 0.25 / 19) / math.sqrt(20)
    assert found == {
        "advantage/sigma_local": 0.3, "advantage/disc_low": pytest.approx(0.5 - reach),
        "advantage/disc_high": pytest.approx(0.5 + reach),
    }  # fmt: skip


def test_the_error_of_kl_is_a_share_of_its_target_and_absent_before_it_is_known() -> None:
    controller = KLController(target_nats_per_token=0.1)
    assert "kl/error" not in controller.metrics()
    controller.update(0.09)
    assert controller.metrics()["kl/error"] == pytest.approx(-0.1)
    controller.update(0.59)
    assert controller.metrics()["kl/error"] == 0.2
    assert controller.beta == pytest.approx(0.02 * 0.99 * 1.02)


def config(algorithm: Any, iterations: int) -> PolicyConfig:
    return PolicyConfig(
        iterations=iterations, tasks_per_iteration=2, group_size=3, learning_rate=3e-3, schedule="linear",
        algorithm=algorithm, rollout=RolloutConfig(max_turn_tokens=4),
    )  # fmt: skip


def test_the_norm_of_an_update_is_that_of_the_change_of_the_weights(toy: Any, tmp_path: Path) -> None:
    trainer = toy.trainer(tmp_path, config(ProcessReplayConfig(reuse=0, minibatches=1), 1))
    before = [p.detach().clone() for p in trainer.model.parameters()]
    (row,) = trainer.run()
    moved = [(a.detach() - b).flatten() for a, b in zip(trainer.model.parameters(), before, strict=True)]
    assert row["policy/updates"] == 1 and row["policy/update_norm"] > 0
    assert row["policy/update_norm"] == pytest.approx(float(torch.cat(moved).norm()), rel=1e-5)
    assert row["policy/lr"] == 3e-3
    assert not [name for name in row if name.startswith(("replay/lag", "replay/fresh", "replay/uses"))]


def test_a_run_with_replay_says_what_it_replayed(toy: Any, tmp_path: Path) -> None:
    rows = toy.trainer(tmp_path, config(ProcessReplayConfig(), 3)).run()
    lags = [sum(v for k, v in row.items() if k.startswith("replay/lag_")) for row in rows]
    uses = [sum(v for k, v in row.items() if k.startswith("replay/uses_")) for row in rows]
    assert [row["replay/fresh_share"] + lag for row, lag in zip(rows, lags, strict=True)] == pytest.approx(
        [1.0] * 3
    )
    assert uses == pytest.approx([1.0] * 3)
    assert lags[0] == 0.0 and rows[1]["replay/lag_1_share"] == lags[1] > 0
    assert "replay/priority_entropy_share" not in rows[0]
    assert 0 < rows[2]["replay/priority_entropy_share"] <= 1
    assert [row["policy/lr"] for row in rows] == pytest.approx([3e-3, 2e-3, 1e-3])
    assert rows[0]["advantage/sigma_local"] > 0 and "advantage/disc_low" not in rows[0]
    weighted = {"policy/entropy_turn_1_nats", "policy/entropy_turn_2to4_nats"}
    assert weighted <= set(rows[0]) and "policy/entropy_turn_5to8_nats" not in rows[0]
    assert min(rows[0][k] for k in weighted) <= rows[0]["policy/entropy_nats"]
    assert rows[0]["policy/entropy_nats"] <= max(rows[0][k] for k in weighted)


def test_a_policy_that_stands_still_has_no_update_to_measure(toy: Any, tmp_path: Path) -> None:
    (row,) = toy.trainer(tmp_path, config(PPOConfig(passes=1, value_only_iterations=1), 1)).run()
    assert "policy/update_norm" not in row and row["policy/lr"] == 3e-3
    assert "offpolicy/masked_positive_share" not in row  # its advantages are a token's, not a step's
    assert update_metrics([], []) == {"policy/updates": 0.0}
