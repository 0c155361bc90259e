"""A run killed with SIGKILL at any point, and resumed, is the run that was never killed."""

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from axiomrm.policy_opt import checkpoint
from axiomrm.policy_opt.config import PolicyConfig, PPOConfig, ProcessReplayConfig, RolloutConfig

ALGORITHMS = [ProcessReplayConfig(rescue=True), PPOConfig(passes=2, value_only_iterations=1)]


def options(algorithm: Any) -> PolicyConfig:
    return PolicyConfig(
        iterations=4, tasks_per_iteration=2, group_size=3, learning_rate=3e-3, algorithm=algorithm,
        rollout=RolloutConfig(max_turn_tokens=4),
    )  # fmt: skip


def die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def run_and_die(toy: Any, folder: Path, algorithm: Any, where: str) -> None:
    torch.set_num_threads(1)
    trainer = toy.trainer(folder, options(algorithm))
    calls: list[int] = []

    def third(original: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            calls.append(1)
            return die() if len(calls) == 3 else original(*args, **kwargs)

        return called

    if where == "half a checkpoint":
        torch.save = third(torch.save)  # the folder exists, its tensors and state do not
    elif where == "update":
        trainer.optimizer.step = third(trainer.optimizer.step)
    else:
        checkpoint.save = third(checkpoint.save)  # metrics are written, the checkpoint is not
    trainer.run()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.kind)
def test_kill_minus_nine_changes_nothing(toy: Any, tmp_path: Path, algorithm: Any) -> None:
    whole = toy.trainer(tmp_path / "whole", options(algorithm))
    expected = untimed(whole.run())
    fork = multiprocessing.get_context("fork")  # the toy's cold start and torch are there already
    for where in ("update", "half a checkpoint", "no checkpoint"):
        folder = tmp_path / where
        child = fork.Process(target=run_and_die, args=(toy, folder, algorithm, where))
        child.start()
        child.join(120)
        assert child.exitcode == -signal.SIGKILL
        resumed = toy.trainer(folder, options(algorithm))
        assert untimed(resumed.run()) == expected, where
        for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
            assert torch.equal(a, b)
        states = [json.dumps(t.algorithm.state_dict(), sort_keys=True) for t in (whole, resumed)]
        assert states[0] == states[1]


def untimed(rows: list[dict[str, float]]) -> str:
    kept = [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows]
    return json.dumps(kept, sort_keys=True)
