from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.policy_opt.monitors import Monitors
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.reward import Episode


def episodes(
    rng: np.random.Generator,
    *,
    judge: float,
    outcome: float,
    text: str | None = None,
    missing: str | None = None,
    n: int = 32,
) -> list[Episode]:
    made = []
    for i in range(n):
        rewards = np.clip(judge + 0.1 * rng.normal(size=4), 0, 1)
        steps = [
            StepRecord(
                traj_id=str(i), turn=t, segment=0, start=1, end=2 + int(rng.integers(1, 9)), policy_version=0,
                behaviour_logprobs=np.zeros(1, dtype=np.float32),
                r_local=float("nan") if missing else float(r),
                missing=missing,
            )
            for t, r in enumerate(rewards)
        ]  # fmt: skip
        record = TrajectoryRecord(
            str(i), "t", f"g{i // 8}", [], steps, 0, outcome=float(rng.random() < outcome)
        )
        said = [Message(role="assistant", content=text or f"word {rng.integers(1000)}") for _ in range(4)]
        made.append(Episode(record, Trajectory(messages=tuple(said))))
    return made


def alarms(later: dict[str, Any], *, seed: int = 0, iterations: int = 15) -> set[str]:
    rng = np.random.default_rng(seed)
    monitors = Monitors()
    found: set[str] = set()
    for k in range(iterations):
        settings = {"judge": 0.5, "outcome": 0.4} | ({} if k < 6 else later)
        found |= {alarm.name for alarm in monitors.update(episodes(rng, **settings))}
    return found


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({"judge": 0.9}, {"divergence"}),
        ({"text": "I am so sorry"}, {"canned_text"}),
        ({"missing": "cannot_assess:hidden"}, {"abstention"}),
        ({"outcome": 0.0}, {"collapse"}),
    ],
)
def test_each_trouble_raises_its_alarm(later: dict[str, Any], expected: set[str]) -> None:
    assert expected <= alarms(later)


@pytest.mark.parametrize("seed", range(5))
def test_a_quiet_run_and_an_honest_rise_raise_no_alarm(seed: int) -> None:
    assert alarms({}, seed=seed) == set()
    assert alarms({"judge": 0.8, "outcome": 0.8}, seed=seed) == set()


def test_the_memory_survives_a_checkpoint() -> None:
    rng = np.random.default_rng(0)
    one, two = Monitors(), Monitors()
    for _ in range(8):
        one.update(episodes(rng, judge=0.5, outcome=0.4))
    two.load_state_dict(one.state_dict())
    batch = episodes(rng, judge=0.9, outcome=0.4)
    assert one.update(batch) == two.update(batch)
    assert one.state_dict() == two.state_dict()
