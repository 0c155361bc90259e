"""``axiomrm rubric convert`` on files, real ones among them."""

import json
import os
from pathlib import Path

import pytest

from axiomrm.cli import main
from axiomrm.errors import ConfigError, DataError
from axiomrm.rubrics import Rubric
from axiomrm.rubrics.convert import LossReport
from axiomrm.rubrics.convert.files import Plan, plan

DATA = Path(os.environ.get("AXIOMRM_DATA", Path(__file__).parents[3] / "shared" / "data")) / "rubrics"
CRITERIA = json.dumps([{"requirement": "Names the capital.", "weight": 2, "name": "capital"}])


def convert(*words: str | Path) -> int:
    return main(["rubric", "convert", *map(str, words)])


@pytest.fixture
def simple(tmp_path: Path) -> Path:
    path = tmp_path / "in.json"
    path.write_text(CRITERIA, encoding="utf-8")
    return path


def test_an_import_is_a_draft_until_it_is_activated(simple: Path, tmp_path: Path) -> None:
    assert convert(simple, tmp_path / "draft.yaml", "--from", "autorubric", "--to", "atr") == 0
    draft = Rubric.load(tmp_path / "draft.yaml")
    assert (draft.id, draft.theorems, len(draft.file.theorems)) == ("draft", (), 1)
    assert convert(simple, tmp_path / "live.yaml", "--from", "autorubric", "--to", "atr", "--activate") == 0
    assert [t.id for t in Rubric.load(tmp_path / "live.yaml").theorems] == ["capital"]


def test_there_and_back_gives_the_same_hash(simple: Path, tmp_path: Path) -> None:
    convert(simple, tmp_path / "a.yaml", "--from", "autorubric", "--to", "atr", "--activate")
    assert (
        convert(tmp_path / "a.yaml", tmp_path / "b.json", "--from", "atr", "--to", "autorubric", "--strict")
        == 0
    )
    (tmp_path / "x").mkdir()
    convert(
        tmp_path / "b.json", tmp_path / "x" / "a.yaml", "--from", "autorubric", "--to", "atr", "--activate"
    )
    assert Rubric.load(tmp_path / "x" / "a.yaml").hash == Rubric.load(tmp_path / "a.yaml").hash


def test_strict_writes_nothing_on_any_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, report = tmp_path / "out.json", tmp_path / "losses.json"
    words = ("general_quality", target, "--from", "atr", "--to", "autorubric", "--report", report)
    assert convert(*words, "--strict") == 2
    assert not target.exists()
    assert not report.exists()
    assert "nothing written" in capsys.readouterr().err
    assert convert(*words) == 0
    assert target.exists()
    assert json.loads(report.read_text())["losses"]


def test_a_foreign_format_reaches_another_through_ours(simple: Path, tmp_path: Path) -> None:
    assert convert(simple, tmp_path / "v.json", "--from", "autorubric", "--to", "verifiers") == 0
    assert json.loads((tmp_path / "v.json").read_text())["criteria"][0]["name"] == "capital"


def test_prompts_are_kept_beside_the_rubrics_and_come_back(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": [{"role": "user", "content": f"question {i}"}],
            "prompt_id": f"p{i}",
            "example_tags": [f"theme:{i}"],
            "rubrics": [{"criterion": f"Answers {i}.", "points": i + 1, "tags": ["x"]}],
        }
        for i in range(3)
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    assert (
        convert(source, tmp_path / "all", "--from", "healthbench", "--to", "atr", "--activate", "--strict")
        == 0
    )
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == [
        "p0.yaml",
        "p1.yaml",
        "p2.yaml",
        "tasks.jsonl",
    ]
    back = tmp_path / "back.jsonl"
    assert convert(tmp_path / "all", back, "--from", "atr", "--to", "healthbench", "--strict") == 0
    assert [json.loads(line) for line in back.read_text().splitlines()] == rows


@pytest.mark.parametrize("names", [("a", "a_3", "a"), ("a", "a", "a_2", "a_2", "a"), ("", "in_1", "")])
@pytest.mark.parametrize("form", ["rubrichub", "prometheus"])
def test_prompts_of_one_name_go_to_files_of_their_own(
    form: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    scores = {f"score{k}_description": f"level {k}" for k in range(1, 6)}
    rows: list[dict[str, object]] = [
        {"prompt_id": name, "rubrics": [{"criterion": f"Says {i}.", "points": 1}]}
        if form == "rubrichub"
        else {"id": name, "criteria": f"Says {i}.", **scores}
        for i, name in enumerate(names)
    ]
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    assert convert(source, tmp_path / "out", "--from", form, "--to", "atr", "--strict") == 0
    made = [Rubric.load(p).file.theorems[0].statement for p in (tmp_path / "out").glob("*.yaml")]
    assert sorted(made) == [f"Says {i}." for i in range(len(names))]


def test_two_files_of_one_path_are_no_plan() -> None:
    with pytest.raises(AssertionError, match="one path"):
        Plan(((Path("a.yaml"), "1"), (Path("a.yaml"), "2")), LossReport())


def test_a_prompt_that_finds_no_place_is_a_loss(tmp_path: Path) -> None:
    row = {"prompt": [{"role": "user"}], "prompt_id": "p", "rubrics": [{"criterion": "A.", "points": 1}]}
    source = tmp_path / "in.jsonl"
    source.write_text(json.dumps(row), encoding="utf-8")
    made = plan(source, tmp_path / "p.yaml", source_format="healthbench", target_format="atr")
    assert [(x.path, x.field, x.kind) for x in made.report.losses] == [("p", "prompt", "dropped")]


def test_what_does_not_fit_is_said_in_one_line(
    simple: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [
        ((simple, tmp_path / "Bad-Name.yaml", "--from", "autorubric", "--to", "atr"), "named by its id"),
        ((simple, tmp_path / "o.yaml", "--from", "csv", "--to", "atr"), "no rubric format 'csv'"),
        ((simple, tmp_path / "o.yaml", "--from", "atr", "--to", "atr"), "nothing to convert"),
        ((tmp_path / "no.json", tmp_path / "o.yaml", "--from", "geval", "--to", "atr"), "No such file"),
        ((simple, tmp_path / "o.toml", "--from", "autorubric", "--to", "verifiers"), "name a .json file"),
        ((simple, tmp_path / "o.yaml", "--from", "verifiers", "--to", "atr"), "0/text is missing"),
    ]
    for words, message in cases:
        assert convert(*words) == 2
        out = capsys.readouterr().err
        assert message in out
        assert "Traceback" not in out
    assert not list(tmp_path.glob("o.*"))


def test_several_rubrics_need_a_folder_or_a_format_of_lines(tmp_path: Path) -> None:
    row = (
        '{"id": "%s", "criteria": "x", '
        + ", ".join(f'"score{k}_description": "l{k}"' for k in range(1, 6))
        + "}\n"
    )
    source = tmp_path / "in.jsonl"
    source.write_text(row % "a" + row % "b", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"holds 2 rubrics and .* takes one"):
        plan(source, tmp_path / "o.yaml", source_format="prometheus", target_format="atr")
    with pytest.raises(ConfigError, match="geval holds one rubric a file, the source has 2"):
        plan(source, tmp_path / "o.json", source_format="prometheus", target_format="geval")
    made = plan(source, tmp_path / "o.jsonl", source_format="prometheus", target_format="rubrichub")
    assert len(made.files[0][1].splitlines()) == 2


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="not UTF-8"):
        plan(tmp_path / "x.json", tmp_path / "o.yaml", source_format="geval", target_format="atr")


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no rubric data in {DATA}")
@pytest.mark.parametrize(("name", "count"), [("biggen_rubrics", 60), ("feedback_collection_rubrics", 60)])
def test_real_score_rubrics_survive_there_and_back(name: str, count: int, tmp_path: Path) -> None:
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    source = tmp_path / "some.jsonl"
    source.write_text("\n".join(lines[:: len(lines) // count][:count]) + "\n", encoding="utf-8")
    wanted = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines()]
    made = plan(source, tmp_path / "all", source_format="prometheus", target_format="atr", activate=True)
    assert made.report.empty
    made.write()
    back = plan(tmp_path / "all", tmp_path / "o.jsonl", source_format="atr", target_format="prometheus")
    assert back.report.empty, back.report.text(3)
    got = [json.loads(line) for line in back.files[0][1].splitlines()]
    assert len(got) == len(wanted) == count

    def scores(row: dict[str, str]) -> tuple[str, ...]:
        return (row["criteria"], *(row[f"score{k}_description"] for k in range(1, 6)))

    def given(row: dict[str, dict[str, str]]) -> tuple[str, ...]:
        if "score_rubric" in row:
            return scores(row["score_rubric"])
        return (str(row["description"]), *(row["scoring"][f"score_{k}"] for k in range(1, 6)))

    assert sorted(map(scores, got)) == sorted(map(given, wanted))


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no rubric data in {DATA}")
def test_every_real_score_rubric_is_read_and_lints_without_structural_errors() -> None:
    from axiomrm.rubrics.convert import import_rubrics

    total = 0
    for path in sorted(DATA.glob("*.jsonl")):
        result = import_rubrics(
            path.read_text(encoding="utf-8"), "prometheus", name=path.stem, file=path.name
        )
        assert result.report.empty
        total += len(result.rubrics)
        for imported in result.rubrics[::50]:
            assert Rubric.from_model(imported.model).lint() is not None
    assert total == 765 + 400
