import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest

from axiomrm import cli_run
from axiomrm.cli import main
from axiomrm.runner import Stage, StageContext

DRIVER = """
import sys, time
from pathlib import Path
from axiomrm import cli_run
from axiomrm.cli import main
from axiomrm.runner import Stage

def slow(context):
    counter = context.stage_dir / "count"
    done = int(counter.read_text()) if counter.exists() else 0
    for step in range(done, 3):
        counter.write_text(str(step + 1))
        context.progress("waiting", step + 1, 3)
        print("step", step + 1, flush=True)
        if step == 1 and done == 0:
            time.sleep(60)
    return {"steps": 3}

cli_run.load_stages = lambda names=(): [Stage("synthesize", slow)]
sys.exit(main(sys.argv[1:]))
"""


def write_config(tmp_path: Path) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text("name: a\n", encoding="utf-8")
    return path


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replaces the pipeline's bodies by ones that note their names."""
    ran: list[str] = []

    def body(context: StageContext) -> Mapping[str, Any]:
        ran.append(context.stage)
        if context.stage == "report":
            (context.run_dir / "report.html").write_text("report")
        return {"seed": context.seed}

    monkeypatch.setattr(
        cli_run, "load_stages", lambda names=cli_run.PIPELINE: [Stage(n, body) for n in names]
    )
    return ran


def test_run_goes_through_all_stages_and_prints_where_the_report_is(
    stages: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path)
    assert main(["run", str(config), "seed=5", "--name", "b", "--runs-dir", str(tmp_path)]) == 0
    assert tuple(stages) == cli_run.PIPELINE
    out, err = capsys.readouterr()
    assert f"report: {tmp_path / 'b' / 'report.html'}" in out
    assert "[1/8] synthesize: started" in err and "seed 5" in err


def test_train_ends_at_its_stage(stages: list[str], tmp_path: Path) -> None:
    config = write_config(tmp_path)
    place = [str(config), "--runs-dir", str(tmp_path)]
    assert main(["train", "rm", *place, "--stage", "general"]) == 0
    assert stages == ["synthesize", "cold_start", "rm_general"]
    assert main(["train", "policy", *place]) == 0
    assert stages == list(cli_run.PIPELINE[:6]), "what was done is not done again"


def test_a_report_without_measurements_is_refused_with_the_command_that_makes_them(
    stages: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["train", "rm", str(write_config(tmp_path)), "--runs-dir", str(tmp_path)])
    assert main(["report", str(tmp_path / "a")]) == 2
    command = capsys.readouterr().err.rpartition("go on with: axiomrm ")[2].split()
    assert main(command) == 0
    assert stages[-1] == "report"


def test_the_report_of_a_run_is_written_again(stages: list[str], tmp_path: Path) -> None:
    main(["run", str(write_config(tmp_path)), "--runs-dir", str(tmp_path)])
    (tmp_path / "a" / "report.html").unlink()
    stages.clear()
    assert main(["report", str(tmp_path / "a")]) == 0
    assert stages == ["report"]
    assert (tmp_path / "a" / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.yaml"], "none.yaml: cannot be read"),
        (["run", "{config}", "sed=1"], "override 'sed=1': unknown key 'sed'; did you mean 'seed'?"),
        (["run", "{config}", "--name", "a/b"], "name: found 'a/b'"),
        (["report", "{folder}"], "not a run folder"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, stages: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path)
    assert main([a.format(config=config, folder=tmp_path) for a in arguments]) == 2
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and "Traceback" not in err
    assert stages == []


def test_another_configuration_for_the_folder_is_exit_code_2(
    stages: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [str(write_config(tmp_path)), "--runs-dir", str(tmp_path)]
    assert main(["run", *place]) == 0
    assert main(["run", *place, "seed=1"]) == 2
    assert "seed: 0, now 1" in capsys.readouterr().err
    assert main(["run", *place, "seed=1", "--fresh"]) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_so_and_goes_on(number: signal.Signals, code: int, tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text(DRIVER)
    config = write_config(tmp_path)
    command = [sys.executable, str(driver), "run", str(config), "--runs-dir", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while process.stdout.readline() != "step 2\n":
        assert process.poll() is None
    time.sleep(0.2)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert f"stopped; the same command goes on from {tmp_path / 'a'}" in err and "Traceback" not in err
    again = subprocess.run(
        [*command, "--accept-code-change"], capture_output=True, text=True, timeout=120, check=False
    )
    assert again.returncode == 0 and "goes on where it was stopped" in again.stderr
    assert "step 1\n" not in again.stdout and "step 3\n" in again.stdout


def stop_by_signal() -> NoReturn:
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("the signal came to nothing")


@pytest.mark.parametrize("where", ["stages", "check"])
def test_a_run_that_is_stopped_before_it_has_a_folder_does_not_say_that_it_goes_on(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(names: object = ()) -> list[Stage]:
        if where == "stages":
            stop_by_signal()
        return [Stage("synthesize", lambda context: {}, lambda config: stop_by_signal())]

    monkeypatch.setattr(cli_run, "load_stages", load)
    assert main(["run", str(write_config(tmp_path)), "--runs-dir", str(tmp_path / "runs")]) == 143
    said = capsys.readouterr().err
    assert "stopped before the run began; the same command begins it" in said and "goes on" not in said
    assert not (tmp_path / "runs").exists()


def test_a_run_that_is_stopped_before_it_goes_on_again_does_not_say_that_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(write_config(tmp_path)), "--runs-dir", str(tmp_path)]
    second = Stage("report", lambda context: stop_by_signal(), lambda config: None)
    monkeypatch.setattr(
        cli_run, "load_stages", lambda names=(): [Stage("synthesize", lambda context: {}), second]
    )
    assert main(words) == 143
    capsys.readouterr()
    monkeypatch.setattr(cli_run, "load_stages", lambda names=(): stop_by_signal())
    assert main(words) == 143
    said = capsys.readouterr().err
    assert f"the same command goes on from {tmp_path / 'a'}" in said and "begins" not in said
    assert main([*words, "--fresh"]) == 143
    assert "the same command begins it" in capsys.readouterr().err


def test_a_stopped_fresh_run_goes_on_without_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        cli_run, "load_stages", lambda names=(): [Stage("synthesize", lambda context: stop_by_signal())]
    )
    assert main(["run", str(write_config(tmp_path)), "--runs-dir", str(tmp_path), "--fresh"]) == 143
    assert f"the same command without --fresh goes on from {tmp_path / 'a'}" in capsys.readouterr().err


def test_a_launcher_of_several_processes_is_told_what_to_do_instead(
    tmp_path: Path, stages: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "policy", str(write_config(tmp_path)), "--runs-dir", str(tmp_path)]) == 2
    assert "WORLD_SIZE=2" in capsys.readouterr().err and stages == []
