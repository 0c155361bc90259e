"""The headline's harness at tiny scale: every stage to a report, and a killed run that goes on."""

import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from axiomrm.errors import ConfigError
from axiomrm.stages.world import base_folder

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
one_run: Any = importlib.import_module("policy_headline.one_run")
report: Any = importlib.import_module("policy_headline.report")
runs: Any = importlib.import_module("policy_headline.runs")
scales: Any = importlib.import_module("policy_headline.scale")
TINY = {
    "horizon": 2, "iterations": 2, "tune_iterations": 1, "tasks_per_iteration": 1, "group_size": 2, "train_tasks": 2,
    "eval_tasks": 2, "eval_every": 1, "rates": [1e-3], "max_widenings": 0, "tuning_seeds": [9], "fresh_seeds": [1, 2],
    "few": [], "few_seeds": [], "sweep_seeds": [1], "horizons": [2], "noises": [0.15, 0.45], "pays": [], "doses": [],
    "policy": {"rollout": {"max_turns": 4, "max_turn_tokens": 6}},
    "arms": {
        "grpo": {"kind": "grpo"},
        "process": {"kind": "process_replay", "reuse": 0},
        "process_replay": {"kind": "process_replay", "reuse": 1},
    },
}  # fmt: skip


def planner_of(tmp_path: Path) -> Any:
    (tmp_path / "scale.json").write_text(json.dumps(TINY))
    return runs.Planner(scales.read_scale(tmp_path / "scale.json"), runs.weights_digest(base_folder("nano")))


def paths(tmp_path: Path) -> dict[str, Any]:
    return {"start": base_folder("nano"), "judge": None, "tasks": tmp_path / "tasks"}


@pytest.mark.slow
def test_every_stage_runs_to_rows_and_a_report(tmp_path: Path) -> None:
    planner, results = planner_of(tmp_path), tmp_path / "results"
    stages = {"tune": 3, "fresh": 6, "sweep-horizon": 0, "sweep-noise": 2}
    with pytest.raises(SystemExit, match="not tuned yet: grpo, process, process_replay"):
        planner.needed("fresh", {})
    with pytest.raises(SystemExit, match="not tuned yet: process;"):
        planner.needed("fresh", {}, ["process"])
    for stage, expected in stages.items():
        rows = runs.read_rows(results)
        done = {row["digest"] for found in rows.values() for row in found}
        todo = [run for run in planner.needed(stage, rows) if run.digest not in done]
        assert len(todo) == expected, stage  # points of the headline are not run again
        for run in todo:
            one_run.finish(run, tmp_path / "out" / run.folder, results, **paths(tmp_path))
    report.main(["--scale", str(tmp_path / "scale.json"), "--results", str(results)])
    text = (results / "report.md").read_text()
    assert "budget 4 rollouts" in text and "| 2 of 2 |" in text
    assert "Sweep: noise" in text and "noise=0.45 | grpo" in text
    assert "## Sweep: dose\n\nNot run." in text
    numbers = json.loads((results / "summary.json").read_text())
    assert numbers["better outcome-GRPO over process_replay"]["value"] == 1.0
    assert (results / "curves.svg").read_text().startswith("<svg xmlns=")
    row = runs.read_rows(results)["fresh"][0]
    assert [p["rollouts"] for p in row["curve"]] == [0, 2, 4] and row["budget"] == 4
    assert not list((tmp_path / "out").glob("*/training/checkpoint-*"))
    tuning = (results / "tune.jsonl").read_text().splitlines(keepends=True)
    (results / "tune.jsonl").write_text("".join(line for line in tuning if '"arm":"process"' not in line))
    report.main(["--scale", str(tmp_path / "scale.json"), "--results", str(results)])
    text = (results / "report.md").read_text()
    assert "Not tuned yet, so not measured: process." in text and "| 2 of 2 |" in text


KILLER = """
import os, signal, sys
from pathlib import Path
benchmarks, run, folder, results, start, tasks = sys.argv[1:]
sys.path.insert(0, benchmarks)
from policy_headline import one_run
from policy_headline.runs import Run
measure = one_run.Training._measure
def die(self, done):
    if done == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    measure(self, done)
one_run.Training._measure = die
options = {"start": Path(start), "judge": None, "tasks": Path(tasks)}
one_run.finish(Run.model_validate_json(run), Path(folder), Path(results), **options)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_and_gives_the_row_of_one_that_was_not(tmp_path: Path) -> None:
    planner = planner_of(tmp_path)
    run = planner.run("fresh", "process_replay", 1e-3, 1)
    folder, results = tmp_path / "killed", tmp_path / "results"
    where = paths(tmp_path)
    told = [ROOT / "benchmarks", run.model_dump_json(), folder, results, where["start"], where["tasks"]]
    command = [sys.executable, "-c", KILLER, *map(str, told)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    assert not (folder / "row.json").exists() and list((folder / "training").glob("checkpoint-1"))
    found = one_run.finish(run, folder, results, **paths(tmp_path))
    whole = one_run.finish(run, tmp_path / "whole", tmp_path / "other", **paths(tmp_path))
    assert untimed(found) == untimed(whole)
    one_run.finish(run, folder, results, **paths(tmp_path))  # a finished run adds no second row
    assert len(runs.read_rows(results)["fresh"]) == 1


def untimed(row: dict[str, Any]) -> dict[str, Any]:
    curve = [{k: v for k, v in p.items() if "seconds" not in k} for p in row["curve"]]
    return row | {"curve": curve}


def test_a_run_that_another_process_holds_is_left_alone(tmp_path: Path) -> None:
    with one_run.alone(tmp_path), pytest.raises(SystemExit) as held, one_run.alone(tmp_path):
        pass
    assert held.value.code == one_run.BUSY


def test_half_a_line_is_no_row_and_the_next_row_starts_a_line(tmp_path: Path) -> None:
    file = tmp_path / "fresh.jsonl"
    file.write_text('{"digest":"a"}\n{"digest":"b","cur')
    assert runs.read_rows(tmp_path) == {"fresh": [{"digest": "a"}]}
    one_run.append(file, {"digest": "c"})
    one_run.append(file, {"digest": "a"})
    assert [row["digest"] for row in runs.read_rows(tmp_path)["fresh"]] == ["a", "c"]


@pytest.mark.slow
def test_the_command_pins_its_runs_and_finishes_them(tmp_path: Path) -> None:
    planner_of(tmp_path)
    core = str(min(os.sched_getaffinity(0)))
    options = [
        "--scale",
        "scale.json",
        "--out",
        "out",
        "--results",
        "results",
        "--arms",
        "grpo",
        "--cores",
        core,
    ]
    command = [sys.executable, str(ROOT / "benchmarks" / "policy_headline" / "run.py"), "tune", "--start", str(base_folder("nano"))]  # fmt: skip
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = runs.read_rows(tmp_path / "results")["tune"]
    assert [row["arm"] for row in rows] == ["grpo"]
    left = subprocess.run(
        [*command, *options, "--dry"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert left.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--jobs", "0"], "--jobs 0: at least 1"),
        (["--cores", "99999"], "--cores 99999: each once, of"),
        (["--scale", "SCALE"], "--scale SCALE: not JSON: "),
        (["--results", "SCALE"], "--results SCALE: found the file SCALE; a folder is wanted"),
        (["--out", "SCALE/below"], "--out SCALE/below: found the file"),
    ],
)
def test_arguments_that_cannot_be_are_refused(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "SCALE").write_text("{bad")
    command = [
        sys.executable,
        str(ROOT / "benchmarks" / "policy_headline" / "run.py"),
        "tune",
        "--dry",
        *words,
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"rates": []}', "rates: found []: list should have at least 1 item"),
        ('{"rates": [NaN]}', "rates.0: found nan: input should be a finite number"),
        ('{"rates_of": {"grpo": [-1]}}', "rates_of.grpo.0: found -1: input should be greater than 0"),
        ('{"rates": [true]}', "rates.0: found True: true and false are no numbers"),
        ('{"noises": [2]}', "noises.0: found 2: input should be less than or equal to 1"),
        ('{"iterations": "many"}', "iterations: found 'many': input should be a valid integer"),
        ('{"fresh_seeds": [1, 1]}', "fresh_seeds: found [1, 1]: [1] stand more than once"),
        ('{"tuning_seeds": [1]}', "fresh_seeds: found tuning_seeds there: [1] both tune and measure"),
        ('{"few_seeds": []}', "few_seeds: found []; ppo, best_of_k of few need one"),
        ('{"few": ["nobody"]}', "few: found ['nobody'], which are no arms; arms: grpo"),
        ('{"ratez": [1]}', "unknown key 'ratez'; did you mean 'rates'?"),
        ('{"policy": {"schedul": "linear"}}', "arm grpo, policy: unknown key 'schedul'; did you mean 'schedule'?"),
        ('{"policy": {"seed": 3}}', "policy.seed: found in policy; the scale has a place for it"),
        ("[1]", "found list; a scale is an object"),
    ],
)  # fmt: skip
def test_a_scale_that_cannot_be_is_refused_in_one_line(tmp_path: Path, written: str, said: str) -> None:
    path = tmp_path / "scale.json"
    path.write_text(written)
    with pytest.raises(ConfigError) as refused:
        scales.read_scale(path)
    message = str(refused.value)
    assert message.startswith(f"{path}: ") and said in message and "\n" not in message
    with pytest.raises(SystemExit) as left:
        report.main(["--scale", str(path), "--results", str(tmp_path)])
    assert left.value.code == 2


def test_a_stage_names_the_arms_that_the_scale_lacks(tmp_path: Path) -> None:
    planner = planner_of(tmp_path)
    with pytest.raises(ConfigError, match="found grpo, process, process_replay; sweep-dose needs grpo_k too"):
        planner.needed("sweep-dose", {})
