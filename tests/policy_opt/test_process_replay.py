import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from axiomrm.errors import DataError
from axiomrm.policy_opt.algorithms.best_of_k import select_best
from axiomrm.policy_opt.algorithms.grpo import grpo_advantages
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.config import ProcessReplayConfig
from axiomrm.policy_opt.packing import DrawnStep, micro_batches
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord

NAN = float("nan")


def record(
    name: str,
    outcome: float,
    rewards: Sequence[float],
    *,
    group: str = "g",
    version: int = 0,
    judge: str = "r1",
    **extra: Any,
) -> TrajectoryRecord:
    steps = [
        StepRecord(
            traj_id=name, turn=t, segment=0, start=2 + 4 * t, end=4 + 4 * t, policy_version=version,
            behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32), r_local=r, judge_revision=judge,
        )
        for t, r in enumerate(rewards)
    ]  # fmt: skip
    ids = np.arange(4 * len(rewards), dtype=np.int32) + len(name)
    return TrajectoryRecord(
        name, "task", group, [ids], steps, version, outcome=outcome, task_type="k", **extra
    )


def plain(**options: Any) -> ProcessReplay:
    settings: dict[str, Any] = {"kappa": 0, "scale": "none", "calibrate_beta": False} | options
    return ProcessReplay(ProcessReplayConfig(**settings))


def advantages(algorithm: ProcessReplay, records: Sequence[TrajectoryRecord]) -> list[list[float]]:
    algorithm.ingest(records, records[0].policy_version)
    return [[algorithm.advantage(r, s, algorithm.snapshot) for s in r.steps] for r in records]


def test_both_terms_by_hand() -> None:
    a, b = record("a", 1.0, [0.5, 1.0]), record("b", 0.0, [0.25])
    got = advantages(plain(alpha=1.0, beta=0.5), [a, b])
    # outcome +-1; turn 0: 0.5 - 0.25 = +-0.25; turn 1 of a is alone and has no statistic: left out
    assert got == [[1.125, 1.0], [-1.125]]


def test_without_a_local_baseline_turn_rewards_count_as_they_are() -> None:
    a, b = record("a", 1.0, [0.5, 1.0]), record("b", 0.0, [0.25, NAN])
    got = advantages(plain(alpha=0.0, beta=1.0, local_baseline="none"), [a, b])
    assert got[0] == [0.5, 1.0]
    assert got[1][0] == 0.25 and math.isnan(got[1][1])


def test_beta_zero_without_scaling_is_rloo_on_every_turn() -> None:
    outcomes = [1.0, 0.0, 0.0, 1.0]
    rows = [record(f"t{i}", o, [0.3] * (i + 1)) for i, o in enumerate(outcomes)]
    got = advantages(plain(beta=0.0), rows)
    expected = [o - (2.0 - o) / 3 for o in outcomes]
    for row, value in zip(got, expected, strict=True):
        assert row == pytest.approx([value] * len(row))


def test_grpo_advantages_equal_trls_formula() -> None:
    r = np.array([1.0, 0.0, 0.5, 1.0])
    expected = (r - r.mean()) / (r.std(ddof=1) + 1e-4)
    np.testing.assert_allclose(grpo_advantages(r.tolist(), ["g"] * 4), expected)


def test_a_missing_turn_reward_is_a_deleted_sample_for_the_others() -> None:
    whole = [
        record("a", 1.0, [1.0]),
        record("b", 0.0, [NAN]),
        record("c", 0.0, [0.0]),
        record("d", 1.0, [0.5]),
    ]
    got = advantages(plain(alpha=0.0, beta=1.0), whole)
    without = [record("a", 1.0, [1.0]), record("c", 0.0, [0.0]), record("d", 1.0, [0.5])]
    expected = advantages(plain(alpha=0.0, beta=1.0), without)
    assert math.isnan(got[1][0])
    assert [got[0], got[2], got[3]] == expected


def test_a_missing_outcome_leaves_the_local_term() -> None:
    got = advantages(
        plain(beta=1.0), [record("a", NAN, [1.0]), record("b", 1.0, [0.0]), record("c", 0.0, [0.0])]
    )
    assert got[0] == [1.0]
    assert got[1] == pytest.approx([1.0 - 0.5])


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_in_a_flat_group_the_outcome_term_is_exactly_zero_whatever_the_statistics_say(outcome: float) -> None:
    algorithm = plain(kappa=2.0, alpha=1.0, beta=0.5)
    advantages(algorithm, [record("x", 1.0, [0.0], version=0), record("y", 0.0, [0.0], version=0)])
    got = advantages(algorithm, [record(n, outcome, [r], version=1) for n, r in (("a", 1.0), ("b", 0.0))])
    terms = algorithm.terms(
        algorithm.buffer.of_version(1)[0], algorithm.buffer.of_version(1)[0].steps[0], algorithm.snapshot
    )
    assert terms[0] == 0.0 and got[0][0] > 0 > got[1][0]


def test_an_errored_episode_is_in_nobodys_baseline() -> None:
    got = advantages(
        plain(beta=0.0),
        [record("a", 1.0, [0.0]), record("b", 0.0, [0.0]), record("c", 0.0, [0.0], ending="env_error")],
    )
    assert got[0] == [1.0] and math.isnan(got[2][0])


def test_statistics_move_only_after_the_batchs_baselines() -> None:
    algorithm = plain(kappa=2.0, scale="batch")
    first = advantages(algorithm, [record("a", 1.0, [1.0]), record("b", 0.0, [0.0])])
    assert math.isnan(algorithm.snapshot.baseline("outcome", "k"))
    assert algorithm.statistics.baseline("outcome", "k") == 0.5
    assert first[0][0] == -first[1][0]


def test_all_missing_updates_nothing_and_draws_nothing() -> None:
    algorithm = plain()
    got = advantages(algorithm, [record(n, NAN, [NAN]) for n in "abcd"])
    assert all(math.isnan(v) for row in got for v in row)
    assert algorithm.statistics.state_dict()["sigmas"] == {}
    assert list(algorithm.plan(0, np.random.default_rng(0))) == []
    assert algorithm.buffer.rejected == {"no_reward": 4}


def test_infinity_is_an_error_that_names_its_turn() -> None:
    with pytest.raises(DataError, match="turn reward 1"):
        plain().ingest([record("a", 1.0, [0.0, float("inf")])], 0)


def batches(algorithm: ProcessReplay, version: int, n: int = 8) -> list[Any]:
    rows = [record(f"v{version}t{i}", float(i % 2), [i / n, 0.1], version=version) for i in range(n)]
    algorithm.ingest(rows, version)
    planned = list(algorithm.plan(version, np.random.default_rng(version)))
    algorithm.finish(version)
    return planned


def test_the_plan_is_a_fresh_pass_and_then_mixed_ones_with_enough_fresh() -> None:
    algorithm = plain(reuse=3, minibatches=2)
    assert [m.reuse for m in batches(algorithm, 0)] == [False] * 2 + [True] * 6
    second = batches(algorithm, 1)
    assert all(item.fresh for m in second[:2] for item in m.steps)
    for minibatch in second[2:]:
        fresh = {s.record.traj_id for s in minibatch.steps if s.fresh}
        old = {s.record.traj_id for s in minibatch.steps if not s.fresh}
        assert len(fresh) == 2 and len(old) <= 2
    assert len({s.record.traj_id for m in second[2:] for s in m.steps if not s.fresh}) > 2


def test_no_step_is_used_more_often_than_allowed_nor_older_than_the_window() -> None:
    algorithm = plain(reuse=2, window=1)
    for version in range(5):
        for minibatch in batches(algorithm, version):
            for item in minibatch.steps:
                assert item.step.uses <= 3
                assert version - item.record.policy_version <= 1
    assert sum(algorithm.buffer.evicted.values()) > 0


def test_a_new_judge_revision_takes_its_statistics_and_records_with_it() -> None:
    algorithm = plain(kappa=2.0, scale="batch")
    algorithm.ingest([record("a", 1.0, [1.0]), record("b", 0.0, [0.0])], 0)
    algorithm.ingest(
        [record("c", 1.0, [5.0], judge="r2", version=1), record("d", 0.0, [3.0], judge="r2", version=1)], 1
    )
    assert [r.traj_id for r in algorithm.buffer.records] == ["c", "d"]
    assert math.isnan(algorithm.statistics.baseline("local:@r1", "k", 0))
    assert algorithm.statistics.baseline("local:@r2", "k", 0) == 4.0


def test_rewards_of_the_environment_beside_the_judges_are_no_other_judge() -> None:
    algorithm = plain(window=9, reuse=9)
    for version in range(3):
        rows = [record(f"v{version}t{i}", float(i % 2), [0.1 * i, 0.2], version=version) for i in range(4)]
        for row in rows[version:]:  # the last turn's reward is now and then the environment's
            row.steps[-1].judge_revision = ""
        algorithm.ingest(rows, version)
        algorithm.finish(version)
    assert len(algorithm.buffer.records) == 12 and "judge" not in algorithm.buffer.evicted
    assert len(algorithm.statistics.discriminations) == 3
    assert algorithm.buffer.judge_key == "@r1"
    algorithm.ingest([record("new", 1.0, [0.5], judge="r2", version=3), record("x", 0.0, [0.1], judge="")], 3)
    assert {r.traj_id for r in algorithm.buffer.records} == {"new", "x"}


def test_discrimination_of_deltas_is_that_of_the_last_state_score() -> None:
    algorithm = plain(local_return="delta", gamma=1.0)
    rows = [record(name, outcome, [NAN, NAN]) for name, outcome in (("a", 1.0), ("b", 0.0), ("c", 1.0))]
    for row, scores in zip(rows, ([0.2, 0.9], [0.5, 0.3], [0.9, NAN]), strict=True):
        for step, value in zip(row.steps, scores, strict=True):
            step.progress = value
    algorithm.ingest(rows, 0)
    # last scores .9, .3, .9 and outcomes 1, 0, 1 have the same order
    assert algorithm.statistics.discriminations == [pytest.approx(1.0)]


def test_beta_fades_when_the_judge_does_not_predict_success() -> None:
    algorithm = plain(calibrate_beta=True, beta=0.5)
    for version in range(20):
        rows = [
            record(f"{version}{i}", float(i % 2), [1.0 - i % 2], group=str(version), version=version)
            for i in range(4)
        ]
        algorithm.ingest(rows, version)
    assert algorithm.beta_eff(algorithm.statistics) == 0.0
    assert algorithm.statistics.discrimination(prior=0.2) == pytest.approx(-1.0)


def test_best_of_k_keeps_the_best_breaks_ties_by_judge_and_drops_copies() -> None:
    rows = [
        record("a", 1.0, [0.1]), record("b", 1.0, [0.9]), record("c", 0.0, [1.0]), record("d", NAN, [1.0]),
        record("e", 1.0, [0.9]), record("ff", 1.0, [0.5], group="h"), record("gg", 0.0, [0.5], group="i"),
    ]  # fmt: skip
    assert [r.traj_id for r in select_best(rows, keep=1, threshold=1.0)] == ["b", "ff"]
    # a, b and e hold the same ids: one of them counts
    assert [r.traj_id for r in select_best(rows, keep=3, threshold=1.0)] == ["b", "ff"]


def test_best_of_k_keeps_a_sum_that_rounds_as_a_success() -> None:
    rows = [record("a", sum([0.1] * 10), [0.1]), record("bb", 1.0 - 1e-8, [0.9], group="h")]
    assert rows[0].outcome < 1.0
    assert [r.traj_id for r in select_best(rows, keep=1, threshold=1.0)] == ["a"]


def test_one_trajectory_an_iteration_never_learns_a_scale_and_is_not_clipped() -> None:
    algorithm = plain(beta=0.0, scale="batch")
    algorithm.ingest([record("a", 1.0, [NAN, NAN])], 0)
    one = record("b", 0.4, [NAN, NAN], group="h", version=1)
    algorithm.ingest([one], 1)
    assert math.isnan(algorithm.statistics.sigma("outcome"))
    # the baseline is the first outcome; no scale is known, so the declared range of 1 stands
    assert algorithm.advantage(one, one.steps[0], algorithm.snapshot) == pytest.approx(0.4 - 1.0)


def test_an_iteration_with_a_single_outcome_leaves_the_scale_alone() -> None:
    algorithm = plain(beta=0.0, scale="batch")
    algorithm.ingest([record("a", 1.0, [NAN, NAN]), record("bb", 0.0, [NAN])], 0)
    assert algorithm.statistics.sigma("outcome") == 1.0  # +-1 against each other
    rows = [record(f"c{i}", 0.7 if i == 0 else NAN, [NAN, NAN], group="h", version=1) for i in range(3)]
    algorithm.ingest(rows, 1)
    assert algorithm.statistics.sigma("outcome") == 1.0


def test_state_survives_a_round_trip() -> None:
    one = plain(kappa=2.0, scale="batch")
    batches(one, 0)
    two = plain(kappa=2.0, scale="batch")
    two.load_state_dict(one.state_dict())
    a, b = batches(one, 1), batches(two, 1)
    key = [[(s.record.traj_id, s.step.turn, s.advantage, s.weight, s.step.uses) for s in m.steps] for m in a]
    assert key == [
        [(s.record.traj_id, s.step.turn, s.advantage, s.weight, s.step.uses) for s in m.steps] for m in b
    ]


def test_the_loss_damps_rare_tokens_when_asked_to() -> None:
    one = record("a", 1.0, [1.0])
    (batch,) = micro_batches([DrawnStep(one, one.steps[0], 2.0)], [1.0], token_budget=100)
    losses = [plain(reweight=a).token_loss(batch.behaviour_N, batch).loss_N.tolist() for a in (0.0, 1.0)]
    assert losses[0] == pytest.approx([1.0, 0.5])  # -A log pi with log pi = -0.5 and -0.25
    assert losses[1] == pytest.approx([math.exp(-0.5), 0.5 * math.exp(-0.25)])
