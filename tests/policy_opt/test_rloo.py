import numpy as np
import pytest
import torch

from axiomrm.policy_opt.algorithms.grpo import GRPO
from axiomrm.policy_opt.algorithms.rloo import RLOO, kl_of_sequence, sequence_surrogate
from axiomrm.policy_opt.config import GRPOConfig, RLOOConfig
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord

NAN = float("nan")


def record(name: str, outcome: float, turns: int = 2, **extra: object) -> TrajectoryRecord:
    steps = [
        StepRecord(
            traj_id=name, turn=t, segment=0, start=2 + 4 * t, end=4 + 4 * t, policy_version=0,
            behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32), r_local=0.5,
            ref_logprobs=np.array([-0.75, -0.75], dtype=np.float32),
        )
        for t in range(turns)
    ]  # fmt: skip
    return TrajectoryRecord(
        name, "task", "g", [np.arange(4 * turns, dtype=np.int32)], steps, 0, outcome=outcome
    )


def advantages(rows: list[TrajectoryRecord], **options: object) -> dict[str, float]:
    algorithm = RLOO(RLOOConfig(**options))
    algorithm.ingest(rows, 0)
    steps = [item for m in algorithm.plan(0, np.random.default_rng(0)) for item in m.steps]
    return {item.record.traj_id: item.advantage for item in steps}


def test_the_baseline_is_the_mean_of_the_others() -> None:
    rows = [record("a", 1.0), record("b", 0.0), record("c", 0.5), record("d", NAN)]
    # others of a: (0 + 0.5) / 2; d has no return: in nobody's mean, and not drawn
    assert advantages(rows) == pytest.approx({"a": 0.75, "b": -0.75, "c": 0.0})


def test_kl_in_the_reward_is_taken_off_the_return() -> None:
    rows = [record("a", 1.0, turns=2), record("b", 1.0, turns=1)]
    # a token pair costs 0.25 + 0.5 nats: a 1.5, b 0.75 nats; at 0.1 the returns are 0.85 and 0.925
    assert kl_of_sequence(rows[0]) == pytest.approx(1.5)
    got = advantages(rows, kl_place="reward", kl_coefficient=0.1)
    assert got == pytest.approx({"a": -0.075, "b": 0.075})
    assert not RLOO(RLOOConfig(kl_place="reward")).uses_kl and RLOO(RLOOConfig()).uses_kl


def test_turn_rewards_join_the_return_where_asked() -> None:
    rows = [record("a", 1.0, turns=2), record("b", 0.0, turns=1)]
    assert advantages(rows, reward="summed") == pytest.approx({"a": 1.5, "b": -1.5})


def test_the_ratio_is_that_of_the_sequence_and_its_clip_by_hand() -> None:
    old = torch.tensor([-1.0, -1.0, -1.0, -2.0])
    new = torch.tensor([-0.9, -0.9, -1.4, -2.0])
    advantage, row = torch.tensor([1.0, 1.0, -2.0, -2.0]), torch.tensor([0, 0, 1, 1])
    loss = sequence_surrogate(new, old, advantage, row, clip=0.2)
    # row 0: ratio exp(0.2) = 1.2214 is clipped to 1.2; row 1: exp(-0.4) = 0.67, clipped to 0.8, times -2
    torch.testing.assert_close(loss, torch.tensor([-0.6, -0.6, 0.8, 0.8]))


def test_equal_returns_that_only_round_are_advantages_of_zero() -> None:
    # the mean of three (GRPO) or of seven (RLOO) times 0.7 is not 0.7 to the last bit
    for algorithm, n in ((GRPO(GRPOConfig()), 3), (RLOO(RLOOConfig()), 8)):
        rows = [record(f"t{i}", 0.7) for i in range(n)]
        found = algorithm.ingest([*rows, record("none", NAN)], 0)
        assert found["advantage/zero_share"] == 1.0
        assert found["advantage/missing_share"] == pytest.approx(1 / (n + 1))
