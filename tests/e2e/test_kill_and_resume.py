"""The micro pipeline, killed again and again, must end where an uninterrupted run ends.

One chain of kills instead of a run for each: every kill falls into the run that the last one left behind.
Half of the kills are drawn by ``AXIOMRM_KILL_SEED`` (default 0); ``all`` takes every one, in some minutes.
"""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from axiomrm.runner import read_run

ROOT = Path(__file__).parents[2]
MICRO = ROOT / "configs" / "micro.yaml"
DRIVER = Path(__file__).with_name("kill_driver.py")

KILLS = [
    ("point", "synthesize:end"),
    ("rename", "synthesize/done.json"),
    ("point", "cold_start:epoch:1"),
    ("rename", "cold_start.pt"),
    ("point", "cold_start:done"),
    ("rename", r"rm_general/judge/checkpoints/checkpoint-2/"),
    ("point", "rm_rubric:on_policy"),
    ("rename", r"rm_rubric/judge/checkpoints/checkpoint-1/"),
    ("rename", r"rm_rubric/judge/final$"),
    ("point", "rm_personal:start"),
    ("rename", r"policy/train/curve.json"),
    ("rename", r"policy/train/training/checkpoint-1$"),
    ("point", "policy:train_iteration:1"),
    ("rename", r"policy/train/training/checkpoint-2$"),
    ("rename", r"policy/best_of_k/finished.json"),
    ("point", "evaluate:judges"),
    ("rename", "report.html"),
]


def drawn() -> list[tuple[str, str]]:
    """The kills of this test run, in the order in which the pipeline reaches them."""
    seed = os.environ.get("AXIOMRM_KILL_SEED", "0")
    if seed == "all":
        return KILLS
    picked = random.Random(seed).sample(range(len(KILLS)), len(KILLS) // 2)
    return [KILLS[i] for i in sorted(picked)]


def axiomrm(root: Path, kill: tuple[str, str] | None) -> subprocess.CompletedProcess[str]:
    arguments = [
        "run",
        str(MICRO),
        "policy.keep_rollouts=true",
        "--runs-dir",
        str(root),
        "--accept-code-change",
    ]
    command = [sys.executable, "-m", "axiomrm", *arguments]
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1"}
    if kill is not None and kill[0] == "point":
        environment["AXIOMRM_KILL_AT"] = kill[1]
    elif kill is not None:
        command = [sys.executable, str(DRIVER), kill[1], "1", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1200, check=False)


def without_times(value: Any) -> Any:
    """Metrics without what a clock says."""
    if isinstance(value, dict):
        kept = {
            k: v
            for k, v in value.items()
            if "second" not in k and not k.startswith("time/") and k != "resumed"
        }
        return {k: without_times(v) for k, v in kept.items()}
    if isinstance(value, list):
        return [without_times(v) for v in value]
    return value


@pytest.mark.slow
def test_a_run_killed_many_times_ends_like_one_that_was_not(tmp_path: Path) -> None:
    straight = axiomrm(tmp_path / "straight", None)
    assert straight.returncode == 0, straight.stderr
    for kill in drawn():
        died = axiomrm(tmp_path / "killed", kill)
        assert died.returncode == -signal.SIGKILL, f"{kill}: {died.returncode}: {died.stderr[-2000:]}"
    last = axiomrm(tmp_path / "killed", None)
    assert last.returncode == 0, last.stderr
    expected, found = (read_run(tmp_path / name / "micro") for name in ("straight", "killed"))
    assert without_times(found.metrics) == without_times(expected.metrics)
    for name in ("rm_personal", "policy"):
        outputs = expected.records[name].outputs
        same = {k: v for k, v in outputs.items() if k.endswith((".safetensors", "rollouts.jsonl"))}
        assert same, f"{name} puts out weights"
        assert {k: found.records[name].outputs[k] for k in same} == same
    assert "train/rollouts.jsonl" in expected.records["policy"].outputs
