"""Several files at once: one that cannot be read does not hide what was found in the others."""

import json
from pathlib import Path

import pytest

from axiomrm.cli import main

RUBRIC = """\
schema: atr/1
rubric: {{id: {name}, version: 1.0.0}}
axioms:
  - {{id: ax.base, statement: Serves., type: premise}}
theorems:
  - {{id: th.a, derived_from: [ax.base], derivation: given, statement: Names a {word}., weight: {weight}}}
"""
Out = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two rubrics, the second with an error; the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "first.yaml").write_text(RUBRIC.format(name="first", word="date", weight=1))
    (tmp_path / "second.yaml").write_text(RUBRIC.format(name="second", word="place", weight=-1))
    return tmp_path


def lint(out: Out, *words: str) -> tuple[int, str, str]:
    code = main(["rubric", "lint", *words])
    return code, *out.readouterr()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("gone", ["missing.yaml", "no_such_rubric"])
def test_lint_names_a_missing_file_among_the_findings_of_the_others(gone: str, capsys: Out) -> None:
    alone = json.loads(lint(capsys, "second.yaml", "--format", "json")[1])
    assert [row["code"] for row in alone if row["level"] == "error"] == ["E130"]
    code, printed, _ = lint(capsys, "first.yaml", gone, "second.yaml", "--format", "json")
    rows = json.loads(printed)
    (missing,) = [row for row in rows if row["file"] == gone]
    assert code == 2 and [row for row in rows if row["file"] == "second.yaml"] == alone
    assert (missing["code"], missing["level"], missing["line"]) == ("E108", "error", 0)
    assert missing["message"].startswith(("no such file", "no rubric 'no_such_rubric': give a path"))


@pytest.mark.usefixtures("folder")
def test_lint_says_the_same_in_text_and_sarif(capsys: Out) -> None:
    code, printed, said = lint(capsys, "missing.yaml", "second.yaml")
    assert code == 2 and "missing.yaml: E108 no such file\n" in printed and "E130" in printed
    assert "2 rubrics, 2 errors" in said
    code, printed, _ = lint(capsys, "missing.yaml", "second.yaml", "--format", "sarif")
    assert code == 2
    assert {r["ruleId"] for r in json.loads(printed)["runs"][0]["results"]} >= {"E108", "E130"}


def test_lint_mends_the_others(folder: Path, capsys: Out) -> None:
    path = folder / "first.yaml"
    right = path.read_text()
    path.write_text(right.replace("derivation:", "derivaton:"))
    assert lint(capsys, "missing.yaml", "first.yaml", "--fix")[0] == 2
    assert path.read_text() == right


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that is there and unreadable")
@pytest.mark.parametrize("options", [[], ["--fix"]])
def test_lint_names_a_file_that_is_there_and_cannot_be_read(
    folder: Path, options: list[str], capsys: Out
) -> None:
    (folder / "locked.yaml").symlink_to("/proc/self/mem")
    code, printed, _ = lint(capsys, "locked.yaml", "second.yaml", *options, "--format", "json")
    rows = json.loads(printed)
    (locked,) = [row for row in rows if row["file"] == "locked.yaml"]
    assert code == 2 and locked["code"] == "E108" and len(locked["message"].split()) > 1
    assert "second.yaml" in {row["file"] for row in rows}


@pytest.mark.usefixtures("folder")
def test_lint_with_an_older_version_that_is_missing_says_so_at_once(capsys: Out) -> None:
    code, printed, said = lint(capsys, "first.yaml", "--base", "old.yaml", "--format", "json")
    assert (code, printed) == (2, "") and "old.yaml: no such file" in said


def test_transcripts_after_a_missing_file_are_tried(folder: Path, capsys: Out) -> None:
    facets = "facets:\n  n: {type: int, range: [0, 99], probe: word_count}\naxioms:"
    text = RUBRIC.format(name="short", word="date", weight="1, requires: n <= 3, judge: {kind: constraint}")
    (folder / "short.yaml").write_text(text.replace("axioms:", facets))
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a b c"}]
    (folder / "logs.jsonl").write_text(json.dumps({"id": "r1", "messages": messages}) + "\n")
    assert main(["rubric", "test", "short.yaml", "gone.jsonl", "logs.jsonl"]) == 2
    found = capsys.readouterr()
    assert "gone.jsonl" in found.err and "r1 th.a: 1" in found.out


def test_convert_names_every_rubric_of_a_folder_that_cannot_be_read(folder: Path, capsys: Out) -> None:
    rubrics = folder / "rubrics"
    rubrics.mkdir()
    for name in ("a", "b", "c"):
        weight = 1 if name == "b" else -1
        (rubrics / f"{name}.yaml").write_text(RUBRIC.format(name=name, word="date", weight=weight))
    words = ["rubric", "convert", "rubrics", "out.jsonl", "--from", "atr", "--to", "rubrichub"]
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "a.yaml:6" in said and "c.yaml:6" in said and "b.yaml" not in said
    assert not (folder / "out.jsonl").exists()
