"""Updates through accelerate: one process is the plain run to the bit, two are one process up to rounding."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import GRPOConfig, PolicyConfig, PPOConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.engines.config import VllmEngine
from axiomrm.policy_opt.rewards.base import TurnScores
from axiomrm.policy_opt.team import accelerator_of

SHARED = [ProcessReplayConfig(), GRPOConfig(passes=2, reward="summed")]
ALGORITHMS = [*SHARED, PPOConfig(passes=2, value_only_iterations=1)]
UNSHARED = {"ppo": {"algorithm": ALGORITHMS[-1]}, "vllm": {"rollout": RolloutConfig(engine=VllmEngine())}}


def config(**options: Any) -> PolicyConfig:
    return PolicyConfig(
        iterations=3, tasks_per_iteration=3, group_size=3, learning_rate=3e-3, tokens_per_forward=1,
        rollout=RolloutConfig(max_turn_tokens=4), **options,
    )  # fmt: skip


def rescored(toy: Any, folder: Path, accelerator: Any = None) -> dict[str, Any]:
    """An iteration with one judge, then one with another, which is asked again about what is stored."""
    options = config(algorithm=ProcessReplayConfig(rescore_turns=50)).model_copy(
        update={"iterations": 1, "group_size": 6}
    )
    asked: list[int] = []

    def other(trajectories: Any) -> list[TurnScores]:
        asked.append(len(trajectories))
        return [
            replace(s, turns=[1 - r for r in s.turns], judge_revision="2") for s in toy.judge(trajectories)
        ]

    for iterations, judge in ((1, toy.judge), (2, other)):
        options = options.model_copy(update={"iterations": iterations})
        trainer = toy.trainer(folder, options, turn_judge=judge, accelerator=accelerator)
        trainer.env_factory = lambda: toy.env(3, dense=False)
        rows = trainer.run()
    stored = [step for record in trainer.algorithm.buffer.records for step in record.steps]
    return {
        "asked": asked, "rows": rows, "model": trainer.model.state_dict(),
        "judges": sorted({step.judge_revision for step in stored}),
        "rewards": [step.r_local for step in stored],
    }  # fmt: skip


def untimed(rows: list[dict[str, float]]) -> str:
    return json.dumps(
        [{k: v for k, v in r.items() if not k.startswith("time/")} for r in rows], sort_keys=True
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a.kind)
def test_one_process_is_the_plain_run_to_the_bit(toy: Any, tmp_path: Path, algorithm: Any) -> None:
    plain = toy.trainer(tmp_path / "plain", config(algorithm=algorithm))
    through = toy.trainer(tmp_path / "through", config(algorithm=algorithm, accelerate=True))
    assert untimed(through.run()) == untimed(plain.run())
    for a, b in zip(through.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(a, b)
    start = toy.warm()
    assert not all(
        torch.equal(a, b) for a, b in zip(start.parameters(), plain.model.parameters(), strict=True)
    )


def test_an_accelerated_run_that_stopped_goes_on_to_the_same_numbers(toy: Any, tmp_path: Path) -> None:
    whole = toy.trainer(tmp_path / "whole", config(accelerate=True))
    rows = whole.run()
    half = config(accelerate=True).model_copy(update={"iterations": 1})
    toy.trainer(tmp_path / "half", half).run()
    resumed = toy.trainer(tmp_path / "half", config(accelerate=True))
    assert untimed(resumed.run()) == untimed(rows)


def test_an_accelerator_that_would_divide_the_loss_is_refused(toy: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gradient_accumulation_steps=2.*tokens_per_forward"):
        toy.trainer(tmp_path, config(), accelerator=Accelerator(gradient_accumulation_steps=2))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes saw of the runs in accelerate_run."""
    folder = tmp_path_factory.mktemp("two")
    # `accelerate launch` does the same on GPUs; on CPUs it wants MPI.
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    done = subprocess.run(
        [*launch, str(Path(__file__).with_name("accelerate_run.py")), str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


def alike(mine: list[dict[str, float]], theirs: list[dict[str, float]]) -> None:
    for a, b in zip(mine, theirs, strict=True):
        known = {
            k: v for k, v in b.items() if not k.startswith(("time/", "mismatch/", "offpolicy/admission"))
        }
        assert {k: a[k] for k in known} == pytest.approx(known, abs=1e-4, rel=1e-3, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", SHARED, ids=lambda a: a.kind)
def test_two_processes_make_the_update_of_one(toy: Any, tmp_path: Path, two: Any, algorithm: Any) -> None:
    one = toy.trainer(tmp_path, config(algorithm=algorithm))
    rows = one.run()
    main, other = (seen[algorithm.kind] for seen in two)
    assert main["uneven"]  # an odd number of micro-batches, and still
    assert main["backwards"] == other["backwards"] > 0
    assert json.dumps(main["rows"]) == json.dumps(other["rows"])
    alike(main["rows"], rows)
    for name, value in one.model.state_dict().items():
        assert torch.equal(main["model"][name], other["model"][name])
        torch.testing.assert_close(main["model"][name], value, atol=2e-4, rtol=1e-3)


@pytest.mark.slow
def test_what_the_other_process_computed_of_a_step_reaches_the_buffer(
    toy: Any, tmp_path: Path, two: Any
) -> None:
    one = toy.trainer(tmp_path, config())
    one.run()
    mine = [step.last_w for record in one.algorithm.buffer.records for step in record.steps]
    assert not any(math.isnan(w) for w in mine)
    assert two[0]["process_replay"]["weights"] == pytest.approx(mine, abs=1e-3)


@pytest.mark.slow
def test_a_changed_judge_is_asked_again_by_the_main_process_alone_with_the_result_of_one(
    toy: Any, tmp_path: Path, two: Any
) -> None:
    one = rescored(toy, tmp_path)
    main, other = (seen["rescored"] for seen in two)
    assert main["asked"] == one["asked"] and len(one["asked"]) == 2 and other["asked"] == []
    assert main["judges"] == one["judges"] == ["2"]
    assert main["rewards"] == one["rewards"] and {0.0, 1.0} <= set(one["rewards"])
    alike(main["rows"], one["rows"])
    for name, value in one["model"].items():
        assert torch.equal(main["model"][name], other["model"][name])
        torch.testing.assert_close(main["model"][name], value, atol=2e-4, rtol=1e-3)


def test_others_wait_for_a_long_rollout_of_the_main_process(toy: Any) -> None:
    accelerator = accelerator_of(config(accelerate=True))
    assert accelerator.init_handler.timeout >= timedelta(days=1)  # NCCL's own is ten minutes


@pytest.mark.slow
def test_a_refused_batch_ends_both_processes_with_its_reason(two: Any) -> None:
    for seen in two:
        assert "admission" in seen["refused"] and "likely causes" in seen["refused"]
        assert seen["unmoved"]


@pytest.mark.slow
def test_a_value_head_is_refused_where_its_gradient_would_not_be_shared(two: Any) -> None:
    assert all("2 processes, and PPO has a value head" in seen["ppo"] for seen in two)


@pytest.mark.slow
def test_an_engine_that_would_wait_for_the_other_process_is_refused(two: Any) -> None:
    assert all(
        "2 processes, and rollout.engine 'vllm' runs in the main one alone" in seen["vllm"] for seen in two
    )
