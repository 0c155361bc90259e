"""The micro pipeline, killed again and again, must end where an uninterrupted run ends.

One chain of kills instead of a run for each: every kill falls into the run that the last one left behind.
Half of the kills are drawn by ``AXIOMRM_KILL_SEED`` (default 0); ``all`` takes every one, in some minutes.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.data.trajectory import Trajectory
from axiomrm.policy_opt.rewards.personal import subject_of
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


REWARD = """{kind: composite, weights: {steps: 1, own: 0.5}, parts: {
steps: {kind: rubric_judge, level: turn}, own: {kind: personal, profiles: PROFILES}}}"""
USERS = [f"user-000{i}" for i in range(3)]


@pytest.fixture
def reward(tmp_path: Path) -> str:
    """An override: the steps, and what each of three users likes."""
    rows = [
        {"subject": u, "slots": {"stated.verbosity": 2 * i + 1}, "policy_training": True}
        for i, u in enumerate(USERS)
    ]
    profiles = tmp_path / "profiles.jsonl"
    profiles.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"policy.reward={REWARD.replace('PROFILES', str(profiles))}"


def axiomrm(root: Path, reward: str, kill: tuple[str, str] | None) -> subprocess.CompletedProcess[str]:
    arguments = [
        "run",
        str(MICRO),
        "policy.keep_rollouts=true",
        reward,
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
def test_a_run_killed_many_times_ends_like_one_that_was_not(tmp_path: Path, reward: str) -> None:
    straight = axiomrm(tmp_path / "straight", reward, None)
    assert straight.returncode == 0, straight.stderr
    for kill in drawn():
        died = axiomrm(tmp_path / "killed", reward, kill)
        assert died.returncode == -signal.SIGKILL, f"{kill}: {died.returncode}: {died.stderr[-2000:]}"
    last = axiomrm(tmp_path / "killed", reward, None)
    assert last.returncode == 0, last.stderr
    expected, found = (read_run(tmp_path / name / "micro") for name in ("straight", "killed"))
    assert without_times(found.metrics) == without_times(expected.metrics)
    for name in ("rm_personal", "policy"):
        outputs = expected.records[name].outputs
        same = {k: v for k, v in outputs.items() if k.endswith((".safetensors", "rollouts.jsonl"))}
        assert same, f"{name} puts out weights"
        assert {k: found.records[name].outputs[k] for k in same} == same
    assert "train/rollouts.jsonl" in expected.records["policy"].outputs
    forgotten(tmp_path / "straight" / "micro")
    again = axiomrm(tmp_path / "straight", reward, None)
    assert again.returncode == 0 and read_run(tmp_path / "straight" / "micro").metrics == expected.metrics


def forgotten(run: Path) -> None:
    """Each rollout is a user's and has their reward; a user who leaves is in no file, the report neither."""
    rows = [t for path in run.glob("policy/*/rollouts.jsonl") for t in Trajectory.read(path)]
    subjects = Counter(subject_of(row) for row in rows)
    assert set(subjects) <= set(USERS) and len(subjects) > 1
    parts = [part for row in rows for part in row.metadata["turn_parts"]]
    assert sum("own" in part for part in parts) > len(parts) / 2
    gone = next(row for row in rows if row.task_id in (run / "report.html").read_text())
    assert main(["forget", str(run), subject_of(gone)]) == 0
    assert not [
        p for p in run.rglob("*") if p.suffix in {".json", ".jsonl"} and subject_of(gone) in p.read_text()
    ]
    assert gone.task_id not in (run / "report.html").read_text()
