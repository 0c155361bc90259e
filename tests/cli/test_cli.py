"""The front door: exit codes, one-line errors, missing extras."""

import subprocess
import sys
from pathlib import Path

import pytest

from axiomrm import __version__
from axiomrm.cli import EXTRAS, VERBS, main
from axiomrm.errors import DataError

WITHOUT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Absent())
from axiomrm.cli import main
sys.exit(main({arguments!r}))
"""


def run_without(missing: set[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """``axiomrm`` in an interpreter that cannot import the modules in ``missing``."""
    script = WITHOUT.format(missing=missing, arguments=list(arguments))
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def test_a_users_error_is_one_line_and_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    absent = tmp_path / "absent.jsonl"
    assert (
        main(["score", str(absent), "--rubric", "general_quality", "--out", str(tmp_path / "out.jsonl")]) == 2
    )
    printed = capsys.readouterr()
    (line,) = printed.err.strip().split("\n")
    assert line.startswith("axiomrm: ") and "absent.jsonl" in line and printed.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", [0, 2])
def test_debug_shows_the_traceback_wherever_it_stands(tmp_path: Path, place: int) -> None:
    words = ["score", str(tmp_path / "absent.jsonl"), "--rubric", "general_quality"]
    with pytest.raises(DataError):
        main([*words[:place], "--debug", *words[place:]])


@pytest.mark.parametrize(
    "words", [["scor"], ["--nonsense"], ["train"], ["train", "rm"], ["run"], ["score"], ["score", "-x"]]
)
def test_a_wrong_command_line_is_exit_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert "Usage: axiomrm" in printed.err + printed.out and "Traceback" not in printed.err


@pytest.mark.parametrize(
    "words", [["--help"], *([verb, "--help"] for verb in VERBS), ["train", "rm", "--help"]]
)
def test_help_is_there_for_each_verb(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert f"Usage: {' '.join(['axiomrm', *words[:-1]])}" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"axiomrm {__version__}\n"


def test_training_without_the_extra_names_it_before_anything_else() -> None:
    done = run_without(set(EXTRAS), "train", "rm", "--stage", "general")
    (line,) = done.stderr.strip().split("\n")
    assert done.returncode == 2 and "torch" in line and "pip install 'axiomrm[train]'" in line


def test_a_module_that_is_missed_late_names_its_extra(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}]}\n'
    )
    done = run_without(
        {"torch", "transformers"}, "score", str(log), "--rubric", "general_quality", "--model", str(tmp_path)
    )
    assert done.returncode == 2 and "pip install 'axiomrm[train]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_module_that_is_no_extra_is_a_bug_and_keeps_its_traceback() -> None:
    done = run_without({"jinja2"}, "score", "x.jsonl", "--rubric", "general_quality")
    assert done.returncode == 1 and "Traceback" in done.stderr


@pytest.mark.parametrize("out", ["log.jsonl", "folder"])
def test_score_never_writes_over_its_input_nor_into_a_folder(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}\n'
    )
    (tmp_path / "folder").mkdir()
    before = log.read_bytes()
    assert main(["score", str(log), "--rubric", "code_agent", "--out", str(tmp_path / out)]) == 2
    assert out in capsys.readouterr().err
    assert log.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "log.jsonl"]


def test_a_file_where_runs_should_go_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs").write_text("")
    config = str(Path(__file__).parents[2] / "configs" / "micro.yaml")
    assert main(["run", config, "--runs-dir", str(tmp_path / "runs")]) == 2
    assert "a file is in the way" in capsys.readouterr().err
