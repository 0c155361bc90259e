"""Every algorithm that a user can name improves the toy task from the same cold start."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.policy_opt.algorithms.presets import PRESETS
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig

SETTINGS: dict[str, dict[str, Any]] = {
    "process_replay": {"minibatches": 2},
    "grpo_k": {"minibatches": 1},
    "grpo_summed": {"minibatches": 2},
    "ppo": {"minibatches": 1, "value_only_iterations": 1},
}
"""Where four optimizer steps a pass are too many for the learning rate."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_each_algorithm_improves_a_single_turn(toy: Any, tmp_path: Path, name: str) -> None:
    algorithm = PRESETS[name].model_copy(update=SETTINGS.get(name, {"minibatches": 4}))
    config = PolicyConfig(
        iterations=12, tasks_per_iteration=4, group_size=8, learning_rate=5e-3, algorithm=algorithm,
        rollout=RolloutConfig(max_turn_tokens=4),
    )  # fmt: skip
    rows = toy.trainer(tmp_path, config, turns=1).run()
    success = [row["reward/success"] for row in rows]
    assert np.mean(success[-3:]) > np.mean(success[:2]) + 0.2, success
