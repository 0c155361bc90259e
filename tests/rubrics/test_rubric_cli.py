"""``axiomrm rubric``: verbs, output forms, exit codes 0 (clean), 1 (findings), 2 (user error)."""

import codecs
import json
import resource
from pathlib import Path

import pytest

from axiomrm.cli import main

BAD = """\
schema: atr/1
rubric: {id: bad, version: 1.0.0}
features:
  domain: {type: enum, values: [orders, technical]}
axioms:
  - {id: ax.base, statement: Serves., type: premise}
  - {id: ax.gate, statement: Complies., type: hard}
theorems:
  - {id: th.any, derived_from: [ax.base], derivation: given, statement: One.}
  - {id: th.two, derived_from: [ax.base], derivation: given, statement: Two., applies_when: domain == technicl}
"""


def fine(name: str, theorem: str) -> str:
    """The rubric of ``BAD`` without its mistake, under another id."""
    text = BAD.replace("id: bad", f"id: {name}").replace("technicl", "technical")
    return text.replace("th.any", f"{theorem}_any").replace("th.two", f"{theorem}_two")


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad.yaml"
    path.write_text(BAD)
    return path


def test_lint_prints_the_caret_and_exits_1(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rubric", "lint", str(bad)]) == 1
    out = capsys.readouterr()
    assert "bad.yaml:10:" in out.out and "E106 'technicl' is not a value of feature 'domain'" in out.out
    assert "did you mean 'technical'?" in out.out and "^^^^^^^^" in out.out
    assert "1 errors" in out.err and "word list only" in out.err


def test_lint_of_a_clean_library_rubric_exits_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rubric", "lint", "core_axioms", "code_agent"]) == 0


def test_json_and_sarif_hold_the_same_findings(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rubric", "lint", "--format", "json", str(bad)]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert main(["rubric", "lint", "--format", "sarif", str(bad)]) == 1
    log = json.loads(capsys.readouterr().out)
    results = log["runs"][0]["results"]
    assert log["version"] == "2.1.0"
    assert [(r["code"], r["line"]) for r in rows] == [
        (r["ruleId"], r["locations"][0]["physicalLocation"]["region"]["startLine"]) for r in results
    ]
    assert {r["id"] for r in log["runs"][0]["tool"]["driver"]["rules"]} == {r["code"] for r in rows}


@pytest.mark.parametrize(
    "words",
    [
        ["lint", "no_such_rubric"],
        ["lint", "/nowhere/x.yaml"],
        ["lint", "core_axioms", "--format", "xml"],
        ["show", "support_agent"],
        ["show", "support_agent", "-f", "domain"],
        ["show", "support_agent", "-f", "colour=red"],
        ["show", "support_agent", "-f", "domain=orders", "--slot", "stated.verbosity=1", "--share", "0.9"],
        ["new", "Bad-Name"],
        ["diff", "core_axioms"],
    ],
)
def test_user_errors_exit_2_without_a_traceback(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rubric", *words]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_new_makes_a_rubric_that_lints_clean_and_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "my_desk.yaml"
    assert main(["rubric", "new", str(target)]) == 0
    assert main(["rubric", "lint", "--format", "json", str(target)]) == 0
    assert json.loads(capsys.readouterr().out.split("\n", 1)[1]) == []
    before = target.read_bytes()
    assert main(["rubric", "new", str(target)]) == 2
    assert target.read_bytes() == before


def test_show_lists_weights_gates_and_the_personal_share(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-f", "domain=technical,identity_needed=true", "--slot", "stated.verbosity=1", "--share", "0.2"]
    assert main(["rubric", "show", "support_agent", *words]) == 0
    out = capsys.readouterr().out
    assert "ax.identity_first" in out and "at most 40 words" in out and "λ 0.2" in out and "+3.2" in out


MISTYPED = BAD.replace("technicl", "technical").replace("derivation: given", "derivaton: given", 1)


def test_fix_names_the_file_that_it_cannot_write(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad.write_text(MISTYPED)
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))
    try:
        code = main(["rubric", "lint", "--fix", str(bad)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert code == 2
    assert "E108 cannot be mended in place" in " ".join(capsys.readouterr().out.split())
    assert bad.read_text() == MISTYPED


def test_fix_leaves_bytes_that_are_not_utf_8_alone(bad: Path) -> None:
    data = MISTYPED.encode() + b"# caf\xe9\n"
    bad.write_bytes(data)
    assert main(["rubric", "lint", "--fix", str(bad)]) != 0
    assert bad.read_bytes() == data


def test_fix_keeps_mode_mark_link_and_a_neighbour(bad: Path) -> None:
    bad.write_bytes(codecs.BOM_UTF8 + MISTYPED.encode())
    bad.chmod(0o600)
    neighbour = bad.with_name(bad.name + ".tmp")
    neighbour.write_text("precious")
    link = bad.with_name("link.yaml")
    link.symlink_to(bad)
    main(["rubric", "lint", "--fix", str(link)])
    assert link.is_symlink() and neighbour.read_text() == "precious"
    assert bad.stat().st_mode & 0o777 == 0o600
    assert bad.read_bytes().startswith(codecs.BOM_UTF8) and b"derivaton" not in bad.read_bytes()


def test_fix_mends_in_place_and_says_what(bad: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad.write_text(BAD.replace("technicl", "technical").replace("derivation: given", "derivaton: given", 1))
    assert main(["rubric", "lint", str(bad)]) == 1
    assert main(["rubric", "lint", "--fix", str(bad)]) == 0
    assert "mended" in capsys.readouterr().err and "derivaton" not in bad.read_text()


def test_diff_check_and_base_ask_for_the_bump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old" / "bad.yaml", tmp_path / "bad.yaml"
    old.parent.mkdir()
    fine = BAD.replace("technicl", "technical")
    old.write_text(fine)
    new.write_text(fine.replace("statement: One.", "statement: One., weight: 2"))
    assert main(["rubric", "diff", str(old), str(new)]) == 0
    out = capsys.readouterr().out
    assert "th.any: weight 1 → 2" in out and "needed 2.0.0" in out and "re-aggregated" in out
    assert main(["rubric", "diff", "--check", str(old), str(new)]) == 1
    assert main(["rubric", "lint", str(new), "--base", str(old)]) == 1
    assert "E180" in capsys.readouterr().out


def test_lock_writes_and_renews_the_lock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "desk.yaml"
    assert main(["rubric", "new", str(target)]) == 0
    assert main(["rubric", "lock", str(target)]) == 0
    lock = tmp_path / "rubrics.lock"
    stale = lock.read_text()
    lock.write_text(stale.replace('"hash": "', '"hash": "00'))
    assert main(["rubric", "lint", str(target)]) == 1
    assert "E107" in capsys.readouterr().out
    assert main(["rubric", "lock", str(target)]) == 0
    assert lock.read_text() == stale


def test_a_lock_keeps_what_it_holds_for_the_other_rubrics_of_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}_base.yaml").write_text(fine(f"{name}_base", f"th.{name}"))
        top = fine(name, "th.top").replace("1.0.0}", f'1.0.0, imports: ["{name}_base@^1.0"]}}')
        (tmp_path / f"{name}.yaml").write_text(top.replace("ax.base", "ax.top").replace("ax.gate", "ax.shut"))
        assert main(["rubric", "lock", str(tmp_path / f"{name}.yaml")]) == 0
    lock = tmp_path / "rubrics.lock"
    assert set(json.loads(lock.read_text())["rubrics"]) == {"one_base", "two_base"}
    (tmp_path / "one_base.yaml").write_text(fine("one_base", "th.one").replace("One.", "Uno."))
    before = json.loads(lock.read_text())["rubrics"]
    assert main(["rubric", "lock", str(tmp_path / "one.yaml")]) == 0
    after = json.loads(lock.read_text())["rubrics"]
    assert after["two_base"] == before["two_base"] and after["one_base"] != before["one_base"]


def test_a_lock_that_cannot_be_renewed_stays_and_one_that_cannot_be_read_is_written_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "desk.yaml"
    assert main(["rubric", "new", str(target)]) == 0
    lock = tmp_path / "rubrics.lock"
    lock.write_text("<<<<<<< HEAD")
    assert main(["rubric", "lock", str(target)]) == 0
    assert "not a lock file" in capsys.readouterr().err and "core_axioms" in lock.read_text()
    kept = lock.read_bytes()
    target.write_text(target.read_text().replace("core_axioms@^1.0", "core_axioms@^9.0"))
    assert main(["rubric", "lock", str(target)]) == 1
    assert lock.read_bytes() == kept
    assert {p.name for p in tmp_path.iterdir()} == {"desk.yaml", "rubrics.lock"}


CASES = """\
schema: atr/1
rubric: {id: cased, version: 1.0.0}
features:
  domain: {type: enum, values: [a, b]}
facets:
  n: {type: int, range: [0, 99], probe: word_count}
axioms: [{id: ax.base, statement: Serves., type: premise}]
theorems:
  - id: th.short
    derived_from: [ax.base]
    derivation: given
    statement: Says it in three words.
    applies_when: domain == b
    requires: n <= 3
    judge: {kind: constraint}
    cases: [{good: one two three, bad: one two three four}]
  - id: th.llm
    derived_from: [ax.base]
    derivation: given
    statement: Says it.
    polarity: penalty
    cases: [{good: x, bad: y}]
"""


def test_test_runs_cases_and_transcripts_without_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cased.yaml"
    path.write_text(CASES)
    record = {
        "id": "r1",
        "task": {"features": {"domain": "b"}},
        "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a b c d e"}],
    }
    logs = tmp_path / "logs.jsonl"
    logs.write_text(json.dumps(record) + "\n" + json.dumps({"messages": record["messages"]}) + "\nnot json\n")
    assert main(["rubric", "test", str(path), str(logs)]) == 0
    out = capsys.readouterr()
    assert "cases: 2 right, 0 wrong, 2 without a verdict; items of kind llm need --judge" in out.out
    assert "r1 th.short: 0 no" in out.out and "not scored" in out.out and "rejected" in out.err
    path.write_text(CASES.replace("bad: one two three four", "bad: one"))
    assert main(["rubric", "test", str(path)]) == 1
    assert "wrong  th.short cases[0].bad: value 1, below 0.5 was expected" in capsys.readouterr().out


def test_the_cases_of_every_library_rubric_come_out_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    names = [p.stem for p in sorted((Path(__file__).parents[2] / "rubrics" / "library").glob("*.yaml"))]
    assert [name for name in names if main(["rubric", "test", name]) != 0] == []
    assert ", 0 wrong," in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--share", "2", "--slot", "stated.tone=formal"], "--share 2.0"),
        (["--share", "nan", "--slot", "stated.tone=formal"], "--share nan"),
        (["--share", "0.2"], "needs --slot"),
        (["--slot", "stated.shoe=42"], "no template reads it"),
        (["-f", "domain=orders", "-f", "domain=billing"], "given twice"),
    ],
)
def test_show_refuses_what_it_would_ignore(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rubric", "show", "service_desk_steps", *words]) == 2
    assert said in capsys.readouterr().err


def test_show_takes_a_slot_and_a_share(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rubric", "show", "service_desk_steps", "--slot", "stated.tone=formal", "--share", "0.2"]
    assert main(words) == 0
    assert "Are the replies formal?" in capsys.readouterr().out
