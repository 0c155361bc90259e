import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from axiomrm.errors import DataError
from axiomrm.policy_opt.records import StepRecord, StepReturns, Target, TrajectoryRecord, from_json, to_json
from axiomrm.policy_opt.replay.buffer import ReplayBuffer
from axiomrm.policy_opt.replay.rescue import SuccessStore

NAN = float("nan")


def record(
    name: str,
    *,
    version: int = 0,
    rewards: Sequence[float] = (1.0, 0.0),
    uses: int = 1,
    judge: str = "r1",
    **extra: Any,
) -> TrajectoryRecord:
    steps = [
        StepRecord(
            traj_id=name, turn=t, segment=0, start=2 + 4 * t, end=4 + 4 * t, policy_version=version,
            behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32), r_local=r, uses=uses,
            judge_revision=judge, returns=StepReturns(Target(r), Target(extra.get("outcome", 1.0))),
        )
        for t, r in enumerate(rewards)
    ]  # fmt: skip
    ids = np.arange(4 * len(rewards), dtype=np.int32)
    extra.setdefault("outcome", 1.0)
    return TrajectoryRecord(name, extra.pop("task_id", "task"), "g", [ids], steps, version, **extra)


def by_reward(_: TrajectoryRecord, step: StepRecord) -> float:
    return step.r_local


def filled(*records: TrajectoryRecord, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(**options)
    for item in records:
        assert buffer.add(item, by_reward)
    return buffer


def test_lag_and_uses_evict_and_the_reasons_add_up() -> None:
    buffer = filled(
        record("a", version=10),
        record("b", version=6, uses=3),
        record("c", version=5),
        record("d", version=8, uses=4),
    )
    assert buffer.evict(10) == {"c": "lag", "d": "uses"}
    assert [r.traj_id for r in buffer.records] == ["a", "b"]
    assert sum(buffer.evicted.values()) == 2


def test_capacity_drops_the_oldest() -> None:
    buffer = filled(record("a"), record("b"), record("c"), capacity=2)
    assert buffer.evict(0) == {"a": "capacity"}


def test_a_trajectory_that_lost_its_effective_samples_leaves() -> None:
    item = record("a", rewards=[1.0] * 4)
    for step, w in zip(item.steps, [1.0, 0.0, 0.0, 0.0], strict=True):
        step.last_w = w
    assert filled(item).evict(0) == {"a": "ess"}


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (record("a", ending="env_error"), "env_error"),
        (record("a", ending="cancelled"), "cancelled"),
        (record("a", rewards=[NAN, NAN]), "no_reward"),
    ],
)
def test_what_cannot_teach_is_refused_and_counted(item: TrajectoryRecord, reason: str) -> None:
    buffer = ReplayBuffer()
    assert not buffer.add(item, by_reward)
    assert buffer.rejected == {reason: 1} and not buffer.records


def test_a_flat_group_is_admitted_only_for_a_local_signal() -> None:
    flat = record("a", rewards=[0.0, 0.0])
    for step in flat.steps:
        step.returns = StepReturns(zero_variance=True)
    buffer = ReplayBuffer()
    assert not buffer.add(flat, by_reward)
    assert buffer.add(flat, lambda _, __: 0.3)


def test_three_logprobs_for_two_ids_never_enter() -> None:
    item = record("a")
    item.steps[0].behaviour_logprobs = np.zeros(3, dtype=np.float32)
    with pytest.raises(DataError, match="2 ids, 3 log-probs"):
        ReplayBuffer().add(item, by_reward)


def test_another_judge_version_never_meets_the_old_one() -> None:
    buffer = filled(
        record("a", judge="r1"), record("b", judge="r2"), record("c", rewards=[NAN, 1.0], judge="r2")
    )
    assert buffer.judge_changed("@r2") == {"a": "judge"}
    assert [r.traj_id for r in buffer.records] == ["b", "c"]


def test_consent_withdrawn_means_the_records_are_gone() -> None:
    buffer = filled(record("a", subject="u1"), record("b", subject="u2"), record("c"))
    assert buffer.forget("u1") == 1
    assert "u1" not in json.dumps(buffer.state_dict())
    assert [r.traj_id for r in buffer.records] == ["b", "c"]


def test_a_numeric_token_of_an_older_checkpoint_is_found() -> None:
    rows = [record("a", subject=12345678), record("b", task_id="other")]
    buffer, successes = filled(*rows), SuccessStore(capacity=2)
    successes.add(rows)
    assert buffer.forget("None") == successes.forget("None") == 0  # who has no token is nobody's
    assert buffer.forget("12345678") == successes.forget("12345678") == 1


def test_priority_by_hand() -> None:
    buffer = filled(record("a", rewards=[0.99, -0.99], version=3))
    buffer.success = {"task": 0.5}
    # 1^0.6 * exp(-2/2) * (4 * 0.25 + 0.1)
    assert buffer.priority(buffer.records[0], by_reward, 5) == pytest.approx(np.exp(-1) * 1.1)


@pytest.mark.parametrize(
    ("outcomes", "q"),
    [
        ((1.0, 0.0), 0.8),  # 0.8 * 1 + 0.2 * 0
        ((1.0, -1.0), 0.8),
        ((10.0, 0.0), 0.8),
        ((0.0, 10.0), 0.2),
        ((0.5, 0.9, 0.9), 0.0),  # partial credit is no success
        ((0.5, 1 - 1e-12), 0.2),  # a sum of parts that rounds
        ((1.0, NAN), 1.0),
    ],
)
def test_q_is_the_share_of_successes_on_any_scale_of_outcomes(outcomes: Sequence[float], q: float) -> None:
    rows = [record(str(i), outcome=x, rewards=[0.99]) for i, x in enumerate(outcomes)]
    buffer = filled(*rows)
    assert buffer.success["task"] == pytest.approx(q, abs=1e-12)
    assert buffer.priority(rows[0], by_reward, 0) == pytest.approx(4 * q * (1 - q) + 0.1)  # 1^0.6 * exp(0)


def test_rates_that_an_older_checkpoint_took_from_another_scale_are_clipped() -> None:
    state = filled(record("a", rewards=[0.99])).state_dict()
    state["success"] = {"task": 7.4, "low": -0.6, "fine": 0.25}
    buffer = ReplayBuffer()
    buffer.load_state_dict(state)
    assert buffer.success == {"task": 1.0, "low": 0.0, "fine": 0.25}
    assert buffer.priority(buffer.records[0], by_reward, 0) == pytest.approx(0.1)


def test_a_draw_covers_each_stratum_and_repeats_with_its_seed() -> None:
    rows = [record(f"up{i}", task_type="a", rewards=[5.0]) for i in range(20)]
    rows += [record("down", task_type="a", rewards=[-0.001]), record("other", task_type="b", rewards=[0.001])]
    buffer = filled(*rows)

    def draw(seed: int) -> list[tuple[str, float]]:
        rng = np.random.default_rng(seed)
        drawn = buffer.draw(buffer.records, 5, advantage=by_reward, version=1, exponent=0.4, rng=rng)
        return [(r.traj_id, w) for r, w in drawn]

    for seed in range(5):
        names = [name for name, _ in draw(seed)]
        assert len(set(names)) == 5 and {"down", "other"} <= set(names)
    assert draw(1) == draw(1)
    assert max(w for _, w in draw(1)) == 1.0


def test_draw_frequencies_follow_priorities() -> None:
    buffer = filled(record("big", rewards=[1.99]), record("small", rewards=[0.01]))
    p = np.array([buffer.priority(r, by_reward, 1) for r in buffer.records])
    p /= p.sum()
    rng = np.random.default_rng(0)
    first = sum(
        buffer.draw(buffer.records, 1, advantage=by_reward, version=1, exponent=1.0, rng=rng)[0][0].traj_id
        == "big"
        for _ in range(2000)
    )
    assert abs(first / 2000 - p[0]) < 0.04


def test_records_survive_json_to_the_bit() -> None:
    item = record("a", rewards=[0.1, NAN])
    item.steps[0].ref_logprobs = np.array([-1 / 3, -2 / 3], dtype=np.float32)
    again = from_json(json.loads(json.dumps(to_json(item))))
    assert json.dumps(to_json(again)) == json.dumps(to_json(item))
    assert again.steps[0].behaviour_logprobs.dtype == np.float32
    assert again.steps[0].ref_logprobs is not None
    assert (again.steps[0].ref_logprobs == item.steps[0].ref_logprobs).all()


def test_an_unknown_field_is_an_error_that_names_it() -> None:
    with pytest.raises(DataError, match="surprise"):
        from_json({**to_json(record("a")), "surprise": 1})
