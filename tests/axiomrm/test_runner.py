import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import axiomrm
from axiomrm.errors import ConfigError, DataError
from axiomrm.runner import Stage, StageContext, read_run, run_one, run_pipeline

TOY = Path(__file__).with_name("toy_pipeline.py")


def _load_toy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("toy_pipeline", TOY)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


toy = _load_toy()


@pytest.fixture(autouse=True)
def _pinned_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("axiomrm.manifest.code_hash", lambda: "pinned")


def run(root: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    keywords = {k: changes.pop(k) for k in ("fresh", "until", "accept_code_change") if k in changes}
    return run_pipeline(toy.STAGES, toy.config(**changes), root, **keywords).metrics


def run_in_process(root: Path, *arguments: str, kill_at: str = "") -> int:
    environment = {**os.environ, "AXIOMRM_KILL_AT": kill_at}
    command = [sys.executable, str(TOY), str(root), *arguments]
    return subprocess.run(command, env=environment, timeout=120, check=False).returncode


def events(root: Path) -> list[tuple[str, str]]:
    lines = (root / "toy" / "events.jsonl").read_text().splitlines()
    return [(row["stage"], row["event"]) for row in map(json.loads, lines)]


KILLS = [
    "numbers:start",
    "numbers:end",
    "numbers:done",
    "accumulate:start",
    "accumulate:step:1",
    "accumulate:half_a_checkpoint:1",
    "accumulate:step:4",
    "accumulate:half_a_checkpoint:3",
    "accumulate:end",
    "accumulate:done",
    "conclude:done",
]


@pytest.mark.parametrize("kill_at", KILLS)
def test_a_killed_run_ends_with_the_metrics_of_one_that_was_not(kill_at: str, tmp_path: Path) -> None:
    expected = run(tmp_path / "straight")
    assert run_in_process(tmp_path / "killed", kill_at=kill_at) == -signal.SIGKILL
    assert run(tmp_path / "killed") == expected


@pytest.mark.parametrize(
    ("pattern", "number"),
    [
        ("config.yaml", 1),
        ("manifest.json", 1),
        ("start.json", 2),
        ("checkpoint.json", 2),
        ("done.json", 2),
        ("metrics", 1),
    ],
)
def test_a_kill_between_writing_a_file_and_putting_it_in_place_changes_nothing(
    pattern: str, number: int, tmp_path: Path
) -> None:
    expected = run(tmp_path / "straight")
    code = run_in_process(tmp_path / "killed", "--die-at-rename", pattern, str(number))
    assert code == -signal.SIGKILL
    assert run(tmp_path / "killed") == expected
    assert not list((tmp_path / "killed").rglob(".*.tmp")), "a finished run holds no temporary files"


def test_two_kills_in_one_stage_are_survived(tmp_path: Path) -> None:
    assert run_in_process(tmp_path / "killed", kill_at="accumulate:step:4") == -signal.SIGKILL
    assert run_in_process(tmp_path / "killed", kill_at="accumulate:half_a_checkpoint:1") == -signal.SIGKILL
    assert run(tmp_path / "killed") == run(tmp_path / "straight")
    assert events(tmp_path / "killed").count(("accumulate", "resumed")) == 2


def test_finished_stages_are_not_run_again(tmp_path: Path) -> None:
    first = run(tmp_path)
    before = events(tmp_path)
    assert run(tmp_path) == first
    assert events(tmp_path) == before


def test_a_row_of_metrics_is_logged_once_although_its_step_ran_twice(tmp_path: Path) -> None:
    run_in_process(tmp_path, kill_at="accumulate:step:4")  # step 3 is logged, the checkpoint is of step 2
    assert run(tmp_path)["accumulate"]["rows"] == toy.STEPS


def test_a_metric_that_is_no_number_is_null_in_the_record(tmp_path: Path) -> None:
    assert run(tmp_path)["accumulate"]["missing"] is None


def test_until_ends_after_that_stage_and_a_later_call_goes_on(tmp_path: Path) -> None:
    assert list(run(tmp_path, until="accumulate")) == ["numbers", "accumulate"]
    assert list(run(tmp_path)) == ["numbers", "accumulate", "conclude"]
    with pytest.raises(ConfigError, match="there is no stage 'x'; stages: numbers, accumulate, conclude"):
        run(tmp_path, until="x")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 4}, r"seed: 3, now 4"),
        ({"evaluate": {"episodes": 5}}, r"evaluate\.episodes: 200, now 5"),
        ({"policy": {"arms": {}}}, r"policy\.arms"),
    ],
)
def test_another_configuration_may_not_use_the_folder(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    first = run(tmp_path)
    with pytest.raises(ConfigError, match=message + r".*--name.*--fresh"):
        run(tmp_path, **changes)
    assert run(tmp_path) == first


def test_a_fresh_run_replaces_the_old_one(tmp_path: Path) -> None:
    first = run(tmp_path)
    (tmp_path / "toy" / "accumulate" / "stray").write_text("x")
    second = run(tmp_path, seed=4, fresh=True)
    assert second["accumulate"]["sum"] != first["accumulate"]["sum"]
    assert not (tmp_path / "toy" / "accumulate" / "stray").exists()


@pytest.mark.parametrize("fresh", [True, False])
def test_an_absent_base_is_refused_before_anything_is_made_or_deleted(tmp_path: Path, fresh: bool) -> None:
    run(tmp_path / "runs")
    kept = {p: p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.is_file()}
    with pytest.raises(ConfigError, match="there is no folder"):
        run(tmp_path / "runs", base="nosuchbase", fresh=fresh)
    assert kept == {p: p.read_bytes() for p in (tmp_path / "runs").rglob("*") if p.is_file()}
    with pytest.raises(ConfigError, match="there is no folder"):
        run(tmp_path / "others", base="nosuchbase", fresh=fresh)
    assert not (tmp_path / "others").exists()


def test_a_changed_input_is_named(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "weights").write_text("1")
    run(tmp_path / "runs", base=str(base))
    (base / "weights").write_text("2")
    with pytest.raises(ConfigError, match=r"content of base"):
        run(tmp_path / "runs", base=str(base))


def test_other_code_is_refused_unless_accepted_and_then_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path, until="numbers")
    monkeypatch.setattr("axiomrm.manifest.code_hash", lambda: "other")
    with pytest.raises(ConfigError, match=r"code\.sha256.*--accept-code-change"):
        run(tmp_path)
    run(tmp_path, accept_code_change=True)
    manifest = json.loads((tmp_path / "toy" / "manifest.json").read_text())
    assert manifest["code"]["sha256"] == "other" and len(manifest["code_history"]) == 1
    assert list(run(tmp_path)) == ["numbers", "accumulate", "conclude"], "the new code is this run's code now"


def test_accepting_other_code_does_not_accept_another_configuration(tmp_path: Path) -> None:
    run(tmp_path)
    with pytest.raises(ConfigError, match="seed: 3, now 4"):
        run(tmp_path, seed=4, accept_code_change=True)


def test_an_output_changed_by_hand_is_named(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "toy" / "numbers" / "numbers.json").write_text("[0, 0, 0, 0, 0, 0]")
    with pytest.raises(
        ConfigError, match=r"numbers\.json: changed after the stage finished; delete the folder"
    ):
        run(tmp_path)


def test_a_stage_whose_folder_is_deleted_runs_again_and_what_follows_too_if_it_differs(
    tmp_path: Path,
) -> None:
    import shutil

    first = run(tmp_path)
    shutil.rmtree(tmp_path / "toy" / "numbers")
    assert run(tmp_path) == first
    assert events(tmp_path).count(("accumulate", "started")) == 1, (
        "the same numbers came out, nothing follows"
    )

    shutil.rmtree(tmp_path / "toy" / "numbers")
    other = [Stage("numbers", lambda c: toy.make_numbers(_with_seed(c, 9))), *toy.STAGES[1:]]
    again = run_pipeline(other, toy.config(), tmp_path).metrics
    assert again["accumulate"]["sum"] != first["accumulate"]["sum"]
    assert again["conclude"]["doubled"] == 2 * again["accumulate"]["sum"]


def _with_seed(context: StageContext, seed: int) -> StageContext:
    context.seed = seed
    return context


def test_two_processes_may_not_share_a_folder(tmp_path: Path) -> None:
    def nested(context: StageContext) -> dict[str, Any]:
        assert run_in_process(tmp_path) == 1  # the child's ConfigError is a traceback in this driver
        with pytest.raises(ConfigError, match=f"process {os.getpid()} is working in this run folder"):
            run(tmp_path)
        return {}

    run_pipeline([Stage("numbers", nested)], toy.config(), tmp_path)
    assert not (tmp_path / "toy" / ".lock").exists()


def test_a_lock_of_a_recycled_process_id_is_taken_over(tmp_path: Path) -> None:
    import socket

    (tmp_path / "toy").mkdir(parents=True)
    owner = {"pid": os.getpid(), "started": "another time", "host": socket.gethostname()}
    (tmp_path / "toy" / ".lock").write_text(json.dumps(owner))
    assert "conclude" in run(tmp_path)


def test_a_lock_of_another_machine_is_respected_and_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir(parents=True)
    (tmp_path / "toy" / ".lock").write_text('{"pid": 1, "started": "", "host": "elsewhere"}')
    with pytest.raises(ConfigError, match=r"\.lock: process 1 on machine 'elsewhere'"):
        run(tmp_path)


def test_a_folder_that_is_no_run_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir(parents=True)
    (tmp_path / "toy" / "thesis.tex").write_text("years of work")
    for fresh in (False, True):
        with pytest.raises(ConfigError, match=r"thesis\.tex.*no run folder"):
            run(tmp_path, fresh=fresh)
    assert (tmp_path / "toy" / "thesis.tex").read_text() == "years of work"


def test_a_stage_may_not_read_what_has_not_finished_or_does_not_exist(tmp_path: Path) -> None:
    def early(context: StageContext) -> dict[str, Any]:
        context.artifact("policy", "model")
        return {}

    def wrong(context: StageContext) -> dict[str, Any]:
        context.artifact("numbers", "no.json")
        return {}

    with pytest.raises(ConfigError, match="needs policy/model, but stage 'policy' has not finished"):
        run_pipeline([toy.STAGES[0], Stage("early", early)], toy.config(), tmp_path)
    with pytest.raises(DataError, match=r"no\.json: not there although stage 'numbers' finished"):
        run_pipeline([toy.STAGES[0], Stage("wrong", wrong)], toy.config(), tmp_path)


def test_an_error_in_a_stage_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    def broken(context: StageContext) -> dict[str, Any]:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        run_pipeline([toy.STAGES[0], Stage("accumulate", broken)], toy.config(), tmp_path)
    assert run(tmp_path) == run(tmp_path / "straight")


def test_one_stage_can_be_run_again_on_an_unfinished_run(tmp_path: Path) -> None:
    run(tmp_path, until="numbers")
    seen: list[object] = []

    def report(context: StageContext) -> dict[str, Any]:
        seen.append((context.metrics_of("numbers"), context.metrics_of("accumulate")))
        return {"shown": 1}

    assert run_one(Stage("report", report), tmp_path / "toy", toy.config()).metrics == {"shown": 1}
    assert seen == [({"n": toy.STEPS}, None)]
    assert list(read_run(tmp_path / "toy").records) == ["numbers", "report"]
    with pytest.raises(ConfigError, match="not a run folder"):
        read_run(tmp_path)


def test_the_manifest_says_what_the_run_is_made_from(tmp_path: Path) -> None:
    run(tmp_path)
    manifest = json.loads((tmp_path / "toy" / "manifest.json").read_text())
    assert manifest["seed"] == 3 and manifest["config"]["evaluate"]["episodes"] == 200
    assert set(manifest["libraries"]) >= {"python", "torch", "transformers", "trl", "numpy"}
    assert manifest["code"] == {"version": axiomrm.__version__, "sha256": "pinned"}
    assert len(manifest["base"]) == 64
    assert len(manifest["rubrics"]["service_desk_steps"]) == 64
