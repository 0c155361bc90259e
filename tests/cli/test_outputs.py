"""What a command writes where the user says so: never over its input, nor over anything else unasked."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.rubrics.imports import LIBRARY

TALK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes, of course"}]
RECORD = {"id": "a", "messages": TALK, "outcome": 1, "turn_rewards": [1.0]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["rubric", "new", "mine"]) == 0
    (tmp_path / "log.jsonl").write_text(json.dumps(RECORD) + "\n")
    return tmp_path


def refused(capsys: Any, *words: str) -> str:
    """Standard error of a command that must exit with 2 and leave every file as it was."""
    files = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
    capsys.readouterr()
    assert main(list(words)) == 2
    assert {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()} == files
    return str(capsys.readouterr().err)


CONVERT = ("rubric", "convert", "mine.yaml")
FORMATS = ("--from", "atr", "--to", "autorubric")


@pytest.mark.parametrize("more", [(), ("--replace",)])
def test_convert_never_writes_over_its_source(folder: Path, capsys: Any, more: tuple[str, ...]) -> None:
    (folder / "link.json").symlink_to("mine.yaml")
    for target in ("mine.yaml", "./mine.yaml", "link.json"):
        assert "would overwrite the input mine.yaml" in refused(capsys, *CONVERT, target, *FORMATS, *more)
    words = (*CONVERT, "out.json", *FORMATS, *more)
    assert "--report mine.yaml: would overwrite" in refused(capsys, *words, "--report", "mine.yaml")
    assert "--report out.json: another file" in refused(capsys, *words, "--report", "out.json")


def test_convert_of_a_folder_spares_all_that_it_read(folder: Path, capsys: Any) -> None:
    (folder / "all").mkdir()
    (folder / "mine.yaml").rename(folder / "all/mine.yaml")
    words = ("rubric", "convert", "all", "all/mine.yaml", "--from", "atr", "--to", "rubrichub", "--replace")
    assert "would overwrite the input" in refused(capsys, *words)


def test_convert_asks_before_another_file_goes(folder: Path, capsys: Any) -> None:
    assert main([*CONVERT, "out.json", *FORMATS]) == 0
    made = (folder / "out.json").read_text()
    (folder / "out.json").write_text("mine\n")
    (folder / "losses.json").write_text("mine\n")
    assert "out.json: is already there" in refused(capsys, *CONVERT, "out.json", *FORMATS)
    words = (*CONVERT, "new.json", *FORMATS, "--report", "losses.json")
    assert "--report losses.json: is already there" in refused(capsys, *words)
    assert main([*CONVERT, "out.json", *FORMATS, "--report", "losses.json", "--replace"]) == 0
    assert (folder / "out.json").read_text() == made and json.loads((folder / "losses.json").read_text())


def test_an_imported_rubric_of_that_name_in_a_folder_is_kept(folder: Path, capsys: Any) -> None:
    rows = [
        {"prompt_id": "p", "prompt": [], "rubrics": [{"criterion": "It is short.", "points": 2, "tags": []}]}
    ]
    (folder / "hb.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("rubric", "convert", "hb.jsonl", "made", "--from", "healthbench", "--to", "atr")
    assert main(list(words)) == 0
    assert "is already there" in refused(capsys, *words)
    assert main([*words, "--replace"]) == 0


def test_an_audit_asks_before_another_file_goes_and_spares_its_rubric(folder: Path, capsys: Any) -> None:
    (folder / "found.json").write_text("mine\n")
    assert "--out found.json: is already there" in refused(
        capsys, "audit", "log.jsonl", "--out", "found.json"
    )
    assert main(["audit", "log.jsonl", "--replace", "--out", "found.json"]) == 1
    assert json.loads((folder / "found.json").read_text())["rollouts"] == 1
    shutil.copy(LIBRARY / "process_shaping.yaml", folder)
    words = ("audit", "log.jsonl", "-r", "process_shaping.yaml", "--replace", "--out", "process_shaping.yaml")
    assert "would overwrite the input process_shaping.yaml" in refused(capsys, *words)
    assert "--rejected log.jsonl: would overwrite" in refused(
        capsys, "audit", "log.jsonl", "--rejected", "log.jsonl"
    )


def test_a_score_spares_its_rubric(folder: Path, capsys: Any) -> None:
    words = ("score", "log.jsonl", "-r", "mine.yaml", "--out", "mine.yaml", "--replace")
    assert "--out mine.yaml: would overwrite the input mine.yaml" in refused(capsys, *words)


def test_a_proposal_is_not_written_over_unasked(folder: Path, capsys: Any) -> None:
    verdicts = {"th.answers": {"status": "scored", "value": 1.0}}
    judgement = {"reward": None, "interval": [0, 1], "coverage": 1, "gate": 1, "verdicts": verdicts}
    row = {"schema": "axiomrm/score-1", "file": "", "judgement": judgement}
    text = "".join(json.dumps({**row, "line": i, "id": f"r{i}", "task_id": f"t{i}"}) + "\n" for i in range(8))
    (folder / "scored.jsonl").write_text(text)
    words = ("rubric", "improve", "mine.yaml", "--scores", "scored.jsonl", "--out", "out")
    assert main(list(words)) == 0
    assert "out/proposal.yaml: is already there" in refused(capsys, *words)
    assert main([*words, "--replace"]) == 0
    (folder / "out/evidence.md").write_text(text)
    words = (*words[:4], "out/evidence.md", *words[5:])
    assert "would overwrite the input out/evidence.md" in refused(capsys, *words, "--replace")


def test_a_calibrator_is_not_replaced_unasked(folder: Path, capsys: Any) -> None:
    (folder / "judge").mkdir()
    (folder / "judge/axiomrm_calibration.json").write_text("{}")
    words = ("calibrate", "fit", "log.jsonl", "--labels", "log.jsonl", "-r", "mine.yaml", "--model", "judge")
    assert "judge/axiomrm_calibration.json: is already there" in refused(capsys, *words)
    assert "already there" not in refused(capsys, *words, "--replace")  # another fault: no scores


def test_no_device_is_replaced_by_a_file(folder: Path, capsys: Any) -> None:
    os.mkfifo(folder / "pipe")
    assert "--out pipe: no ordinary file" in refused(
        capsys, "audit", "log.jsonl", "--out", "pipe", "--replace"
    )
    assert "pipe: no ordinary file" in refused(capsys, *CONVERT, "pipe", *FORMATS, "--replace")
    words = ("score", "log.jsonl", "-r", "mine.yaml", "--out", "pipe", "--replace")
    assert "--out pipe: no ordinary file" in refused(capsys, *words)


# --- places that cannot be written -----------------------------------------------------------------------

LONG = "x" * 252
"""With an ending too long for a file's name: a refusal that holds for the superuser too."""


def test_rejected_records_that_cannot_be_written_are_said_and_may_go_elsewhere(
    folder: Path, capsys: Any
) -> None:
    path = folder / f"{LONG}.j"
    path.write_text(json.dumps(RECORD) + "\n{broken\n")
    told = refused(capsys, "audit", str(path))
    assert told.count("\n") == 1 and "File name too long" in told and "--rejected FILE" in told
    assert main(["audit", str(path), "--rejected", "bad.jsonl"]) == 1
    assert json.loads((folder / "bad.jsonl").read_text())["line"] == 2


@pytest.mark.parametrize(
    "words",
    [
        ("audit", "log.jsonl", "--out", f"{LONG}.json"),
        ("score", "log.jsonl", "-r", "mine.yaml", "--out", f"{LONG}.json"),
        (*CONVERT, f"{LONG}.json", *FORMATS),
        (*CONVERT, "log.jsonl/out.json", *FORMATS),
        ("rubric", "new", f"log.jsonl/{'x' * 9}"),
        ("rubric", "new", LONG),
        (*CONVERT, "out.json", *FORMATS, "--report", f"{LONG}.json"),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line(
    capsys: Any, words: tuple[str, ...], folder: Path
) -> None:
    capsys.readouterr()
    assert main(list(words)) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("axiomrm: ")]
    assert len(told) == 1 and ("too long" in told[0] or "older" in told[0] or "directory" in told[0])
    assert ".tmp" not in told[0]


def test_a_score_of_which_nothing_is_left_exits_with_2(folder: Path, capsys: Any) -> None:
    text = (folder / "mine.yaml").read_text().replace("default: false", "")
    (folder / "mine.yaml").write_text(text)
    told = refused_but_written(capsys, "score", "log.jsonl", "-r", "mine.yaml", "--out", "s.jsonl")
    assert "no conversation could be scored" in told and "urgent" in told and "log.jsonl:1" in told
    assert (folder / "s.jsonl").read_text() == "" and (folder / "s.rejected.jsonl").read_text()


def refused_but_written(capsys: Any, *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 2
    return str(capsys.readouterr().err)
