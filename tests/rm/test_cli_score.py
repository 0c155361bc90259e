import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from axiomrm.cli_score import schema_text, score
from axiomrm.errors import ConfigError
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import score_file

SCHEMA = Path(__file__).parents[2] / "rm" / "schema" / "score-1.json"
RUBRIC = """
schema: atr/1
rubric: {id: brief, version: 1.0.0}
facets:
  len_words: {type: int, range: [0, 2000], probe: word_count}
axioms:
  - {id: ax.time, statement: Time counts., type: premise}
theorems:
  - id: th.short
    derived_from: [ax.time]
    derivation: time counts
    statement: At most five words.
    requires: len_words <= 5
    judge: {kind: constraint}
"""
LOG = {
    "id": "one",
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}],
}
PAIR = {
    "id": "p1",
    "kind": "pair",
    "context": [{"role": "user", "content": "hi"}],
    "a": "Hello.",
    "b": "Well hello there my dear old friend.",
    "label": 1,
}
TRAJ = {"id": "t1", "kind": "traj", "context": LOG["messages"], "label": 1}


@pytest.fixture()
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "brief.yaml").write_text(RUBRIC)
    return tmp_path


def run(*arguments: str) -> Any:
    app = typer.Typer()
    app.command()(score)
    return CliRunner().invoke(app, list(arguments))


def write(path: Path, *records: Any) -> None:
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_logs_pairs_and_trajectories_are_scored_and_bad_lines_rejected(folder: Path) -> None:
    write(folder / "mixed.jsonl", LOG, "{broken", PAIR, {"kind": "spans", "text": "x"}, TRAJ)
    result = run("mixed.jsonl", "--rubric", "brief.yaml")
    assert result.exit_code == 0, result.output
    found = rows(folder / "mixed.scored.jsonl")
    assert [(r["line"], r["id"], r["side"], r["judgement"]["reward"]) for r in found] == [
        (1, "one", None, 1.0),
        (3, "p1", "a", 1.0),
        (3, "p1", "b", 0.0),
        (5, "t1", None, 1.0),
    ]
    rejected = rows(folder / "mixed.rejected.jsonl")
    assert [r["line"] for r in rejected] == [2, 4]
    assert "messages" in rejected[1]["reason"]
    assert "rejected: 2" in result.output
    assert "4 conversations of 3 records" in result.output


def test_rows_follow_the_published_schema(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG, PAIR)
    assert run("logs.jsonl", "--rubric", "brief.yaml", "--out", "out.jsonl").exit_code == 0
    schema = json.loads(SCHEMA.read_text())
    for row in rows(folder / "out.jsonl"):
        jsonschema.validate(row, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**row, "judgement": {}}, schema)


def test_the_shipped_schema_is_the_one_of_the_code() -> None:
    assert SCHEMA.read_text() == schema_text()


def test_the_limit_counts_records_and_reads_no_further(folder: Path) -> None:
    write(folder / "pairs.jsonl", PAIR, PAIR, "{broken")
    result = run("pairs.jsonl", "--rubric", "brief.yaml", "--limit", "2")
    assert len(rows(folder / "pairs.scored.jsonl")) == 4
    assert not (folder / "pairs.rejected.jsonl").exists()
    assert "4 conversations of 2 records" in result.output


def test_a_local_judge_scores_and_too_long_records_are_rejected(
    folder: Path, make_model: Any, tiny_tokenizer: Any
) -> None:
    make_model(max_position_embeddings=1024).save_pretrained(folder / "judge")
    tiny_tokenizer.save_pretrained(folder / "judge")
    long = {"id": "long", "messages": [{"role": "user", "content": "word " * 1500}, LOG["messages"][1]]}
    write(folder / "logs.jsonl", LOG, long, LOG)
    write(folder / "llm.yaml")
    text = RUBRIC.replace("    requires: len_words <= 5\n    judge: {kind: constraint}\n", "")
    (folder / "llm.yaml").write_text(text.replace("id: brief", "id: llm"))
    result = run("logs.jsonl", "--rubric", "llm.yaml", "--model", "judge")
    assert result.exit_code == 0, result.output
    assert [r["line"] for r in rows(folder / "logs.scored.jsonl")] == [1, 3]
    (rejected,) = rows(folder / "logs.rejected.jsonl")
    assert (rejected["id"], rejected["kind"]) == ("long", "context_overflow")
    assert "never trained as a judge" in result.output
    judgement = rows(folder / "logs.scored.jsonl")[0]["judgement"]
    assert judgement["verdicts"]["th.short"]["flags"] == ["untrained_judge"]


def test_a_failing_judge_exits_1_and_no_failure_is_a_number(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    (folder / "llm.yaml").write_text(
        RUBRIC.replace("judge: {kind: constraint}", "judge: {kind: llm}").replace("id: brief", "id: llm")
    )
    result = run(
        "logs.jsonl",
        "--rubric",
        "llm.yaml",
        "--model",
        "http://127.0.0.1:9/v1",
        "--served-model",
        "m",
        "--patience",
        "0.2",
    )
    assert result.exit_code == 1
    (row,) = rows(folder / "logs.scored.jsonl")
    assert row["judgement"]["reward"] is None
    assert "failed:unreachable: 1" in result.output


def test_a_file_without_one_readable_record_is_an_error(folder: Path) -> None:
    write(folder / "bad.jsonl", "{broken", "also broken")
    result = run("bad.jsonl", "--rubric", "brief.yaml")
    assert result.exception is not None
    assert "bad.jsonl:1" in str(result.exception)


def test_a_killed_run_goes_on_and_gives_the_same_file(folder: Path) -> None:
    write(folder / "logs.jsonl", *({**PAIR, "id": f"p{i}"} for i in range(20)))
    assert run("logs.jsonl", "--rubric", "brief.yaml").exit_code == 0
    whole = (folder / "logs.scored.jsonl").read_bytes()
    rubric, judge = Rubric.load("brief.yaml"), RewardModel.programmatic()

    def stop(conversations: int) -> None:
        if conversations >= 32:
            raise KeyboardInterrupt

    target = folder / "again.jsonl"
    with pytest.raises(KeyboardInterrupt):
        score_file(Path("logs.jsonl"), rubric, judge, target, told=stop)
    assert not target.exists()
    partial = folder / "again.jsonl.partial"
    for cut in (1, 400):  # in a line, and more than a line
        kept = partial.read_bytes()[:-cut]
        partial.write_bytes(kept)
        lines = kept.count(b"\n") - 1  # without the header
        with pytest.raises(KeyboardInterrupt):
            score_file(Path("logs.jsonl"), rubric, judge, target, told=_raise)
        partial.write_bytes(kept)
    summary = score_file(Path("logs.jsonl"), rubric, judge, target)
    assert summary.resumed == lines
    assert (summary.records, summary.scored) == (20, 40)
    assert target.read_bytes() == whole
    assert not partial.exists()


def _raise(_: int) -> None:
    raise KeyboardInterrupt


def test_a_partial_file_of_another_rubric_is_refused(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    (folder / "out.jsonl.partial").write_text('{"logs": "elsewhere"}\n')
    result = run("logs.jsonl", "--rubric", "brief.yaml", "--out", "out.jsonl")
    assert isinstance(result.exception, ConfigError)
    assert "delete the file" in str(result.exception)
