"""The SmolLM2 policy run at tiny scale: cold start, points, training; killed and gone on."""

import importlib
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from axiomrm.stages.world import base_folder

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
smol: Any = importlib.import_module("policy_smollm2")
kept: Any = importlib.import_module("policy_smollm2_points")
tables: Any = importlib.import_module("policy_smollm2_table")
TINY = {
    "seed": 0, "horizons": [2, 4], "turn_limit": 4, "demos": 4, "dev_demos": 2,
    "cold_lora": {"rank": 2, "alpha": 4}, "lora": {"rank": 2, "alpha": 4, "last_layers": 1},
    "cold_start": {"learning_rate": 1e-2, "max_epochs": 2, "tokens_per_step": 256, "warmup_steps": 1},
    "reward": {"kind": "programmatic", "rubric": "process_shaping", "level": "turn"},
    "train_tasks": 4, "dev_tasks": 2, "heldout_tasks": 4, "eval_every": 1,
    "cool_temperature": 0.3,
    "policy": {
        "algorithm": {"kind": "process_replay", "reuse": 1}, "iterations": 2, "tasks_per_iteration": 1, "group_size": 3, "learning_rate": 1e-2,
        "rollout": {"max_turns": 4, "max_turn_tokens": 12},
    },
}  # fmt: skip


KILLER = """
import os, signal, sys
sys.path.insert(0, sys.argv.pop(1))
import policy_smollm2 as smol
die = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
if sys.argv.pop(1) == "cold start":
    smol.print = die  # said after the first epoch's checkpoint
else:
    smol.PolicyTrainer._save = die  # the iteration's point is written, its checkpoint is not
smol.main()
"""


def arguments(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    (folder / "sizes.json").write_text(json.dumps(TINY))
    paths = {"sizes": folder / "sizes.json", "work": folder, "out": folder / "points.jsonl"}
    return [f"--base={base_folder('nano')}", *(f"--{name}={path}" for name, path in paths.items())]


def run(folder: Path) -> None:
    smol.main(arguments(folder))


def run_and_die(folder: Path, where: str) -> int:
    command = [sys.executable, "-c", KILLER, str(ROOT / "benchmarks"), where, *arguments(folder)]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode


def points(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "points.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def untold(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what took how long."""
    for point in found:
        for name in [k for k in point["training"] or () if k.startswith("time/")]:
            del point["training"][name]
    return found


@pytest.mark.slow
def test_a_run_killed_twice_writes_the_points_of_one_that_was_not(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    assert run_and_die(folder, "cold start") == -signal.SIGKILL
    assert (folder / "cold_start.partial" / "cold_start.pt").exists() and not (folder / "cold_start").exists()
    assert run_and_die(folder, "checkpoint") == -signal.SIGKILL
    assert [p["iteration"] for p in points(folder)] == [0, 0, 0, 1]
    with (folder / "points.jsonl").open("a") as handle:
        handle.write('{"digest": "cut')
    run(folder)
    with pytest.raises(ValueError):
        points(folder)
    text = (folder / "points.jsonl").read_text().replace('{"digest": "cut\n', "")
    (folder / "points.jsonl").write_text(text)
    run(tmp_path / "whole")
    found = untold(points(folder))
    assert found == untold(points(tmp_path / "whole"))
    wanted = [("dev", 0), ("heldout", 0), ("heldout", 0), ("heldout", 1), ("heldout", 2), ("heldout", 2)]
    assert [(p["split"], p["iteration"]) for p in found] == wanted
    assert found[4]["training"]["policy/updates"] >= 1 and found[3]["rollouts"] == 3
    assert len(found[3]["outcomes"]) == 4 and found[3]["gain"]["n"] == 4
    shown = tables.table(folder / "points.jsonl").splitlines()
    assert len(shown) == 10 and shown[4].startswith("| dev, 1 | 0 | ")
    run(folder)  # a finished run adds nothing
    assert len(points(folder)) == 6


def test_tasks_of_the_demonstrations_are_not_trained_on_and_more_iterations_are_the_same_run(
    tmp_path: Path,
) -> None:
    sizes = smol.Sizes.model_validate(TINY)
    desk = smol.Desk(sizes, tmp_path)
    first, later = desk.tasks("train", 4), desk.tasks("train", 4, skip=4)
    assert not {t.id for t in first} & {t.id for t in later} and len(later) == 4
    longer = sizes.model_copy(update={"policy": sizes.policy | {"iterations": 9}})
    other = sizes.model_copy(update={"policy": sizes.policy | {"learning_rate": 2e-2}})
    base = base_folder("nano")
    assert longer.digest(base) == sizes.digest(base) != other.digest(base)


def test_a_missing_outcome_is_neither_success_nor_failure_and_has_no_gain(tmp_path: Path) -> None:
    found = smol.Points(tmp_path / "points.jsonl", "d")
    found.add({"split": "dev", "iteration": 0, "temperature": 1.0, "outcomes": {"a": None, "b": 1.0}})
    assert found.at("dev", 0, 1.0)["outcomes"]["a"] is None and found.at("dev", 1, 1.0) is None
    assert smol.Points(found.path, "other").all() == []
    gain = smol.gain_over(found.at("dev", 0, 1.0), {"a": 1.0, "b": 1.0})
    assert (gain["value"], gain["n"], gain["missing"]) == (0.0, 1, 1)


def test_a_perfect_score_has_an_interval_that_a_missing_outcome_does_not_move() -> None:
    perfect = kept.success_of([1.0] * 64 + [None])
    # Wilson: n / (n + z^2)
    assert (perfect["low"], perfect["high"]) == (pytest.approx(64 / (64 + 1.959964**2), abs=1e-6), 1.0)
    assert (perfect["n"], perfect["missing"]) == (64, 1)
    assert kept.success_of([1.0, 0.0] * 32)["method"] == "bootstrap over tasks"
    assert kept.success_of([None])["value"] is None
