import json
from typing import Any

import numpy as np
import torch

from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.config import ProcessReplayConfig
from axiomrm.policy_opt.packing import DrawnStep, micro_batches
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.replay.rescue import SuccessStore, failed_tasks

NAN = float("nan")


def record(name: str, outcome: float, *, task: str = "t", version: int = 0, **extra: Any) -> TrajectoryRecord:
    step = StepRecord(
        traj_id=name, turn=0, segment=0, start=2, end=4, policy_version=version,
        behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32), r_local=0.0,
    )  # fmt: skip
    ids = np.arange(4, dtype=np.int32)
    return TrajectoryRecord(name, task, f"{task}{version}", [ids], [step], version, outcome=outcome, **extra)


def algorithm(**options: Any) -> ProcessReplay:
    return ProcessReplay(ProcessReplayConfig(rescue=True, reuse=0, scale="none", **options))


def drawn(one: ProcessReplay, version: int) -> list[DrawnStep]:
    return [item for m in one.plan(version, np.random.default_rng(0)) for item in m.steps]


def test_a_group_is_rescued_only_if_every_known_outcome_failed() -> None:
    rows = [record("a", 0.0), record("b", NAN), record("c", 1.0, task="u"), record("d", 0.0, task="u")]
    assert failed_tasks([*rows, record("e", NAN, task="v")]) == ["t"]
    assert failed_tasks([record("a", 0.0, ending="env_error"), record("b", 1.0)]) == []


def test_one_stored_success_joins_the_failed_group_outside_its_baseline() -> None:
    one = algorithm()
    metrics = one.ingest([record("a", 1.0), record("b", 0.0)], 0)
    assert metrics["replay/rescued"] == 0.0
    metrics = one.ingest([record("c", 0.0, version=1), record("d", 0.0, version=1)], 1)
    assert metrics["replay/rescued"] == 1.0
    (saved,) = [item for item in drawn(one, 1) if item.rescued]
    assert saved.record.traj_id == "a" and not saved.fresh and saved.weight == 1.0
    # running statistic of the outcome: 0.5, then 0.95 * 0.5 + 0.05 * 0
    assert saved.advantage == 1.0 - 0.475
    assert saved.record.steps[0].uses == 1 and one.buffer.records[0].steps[0].uses == 0


def test_rescue_is_off_unless_asked_for() -> None:
    one = ProcessReplay(ProcessReplayConfig(reuse=0))
    one.ingest([record("a", 1.0), record("b", 0.0)], 0)
    metrics = one.ingest([record("c", 0.0, version=1), record("d", 0.0, version=1)], 1)
    assert "replay/rescued" not in metrics and not any(item.rescued for item in drawn(one, 1))


def test_a_rescued_steps_weight_is_at_most_one() -> None:
    one = algorithm(correction="ratio")
    plain, saved = (record(n, 1.0) for n in "ab")
    steps = [DrawnStep(plain, plain.steps[0], 1.0), DrawnStep(saved, saved.steps[0], 1.0, rescued=True)]
    (batch,) = micro_batches(steps, [1.0, 1.0], token_budget=100)
    parts = one.token_loss(batch.behaviour_N + 0.1, batch)
    torch.testing.assert_close(parts.correction_S, torch.tensor([float(np.exp(0.2)), 1.0]))


def test_the_store_keeps_the_newest_success_of_each_task_within_its_capacity() -> None:
    store = SuccessStore(capacity=2)
    store.add([record("a", 1.0), record("b", 1.0, task="u"), record("c", 0.0, task="v")])
    store.add([record("a2", 1.0), record("d", 1.0, task="w", subject="s1")])
    assert [r.traj_id for r in store.records.values()] == ["a2", "d"]
    assert store.forget("s1") == 1 and "s1" not in json.dumps(store.state_dict())


def test_the_store_survives_a_checkpoint() -> None:
    one, two = algorithm(), algorithm()
    one.ingest([record("a", 1.0), record("b", 0.0)], 0)
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    for other in (one, two):
        other.ingest([record("c", 0.0, version=1), record("d", 0.0, version=1)], 1)
    rows = [[(i.record.traj_id, i.advantage, i.rescued) for i in drawn(x, 1)] for x in (one, two)]
    assert rows[0] == rows[1] and any(r[2] for r in rows[0])
    assert json.dumps(one.state_dict()) == json.dumps(two.state_dict())
