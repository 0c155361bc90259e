import gzip
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import pytest
import typer
from typer.testing import CliRunner

from axiomrm.cli_cache import app as cache_app
from axiomrm.cli_score import progress_line, schema_text, score
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError, DataError, JudgeError
from axiomrm.rm.calibration import Calibration, Entry, write_calibration
from axiomrm.rm.engines.base import Capabilities, Generation, LabelReading, Prompt, Sampling
from axiomrm.rm.judgement import Judgement
from axiomrm.rm.labels import LabelTable
from axiomrm.rm.modes import Modes
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.request import Asking
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rm.templating import FOLDER
from axiomrm.rubrics import Rubric
from axiomrm.score_file import Progress, score_file
from axiomrm.score_records import candidates
from axiomrm.score_summary import NOT_ASKED, Summary

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
LOG: dict[str, Any] = {
    "id": "one",
    "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}],
}
FEATURES = """
schema: atr/1
rubric: {id: vip, version: 1.0.0}
features:
  vip: {type: bool}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
theorems:
  - id: th.vip
    derived_from: [ax.help]
    derivation: courtesy
    statement: Greets.
    applies_when: vip
    judge: {kind: programmatic, fn: contains, args: {strings: [Hello]}}
"""
PAIR: dict[str, Any] = {
    "id": "p1",
    "kind": "pair",
    "context": [{"role": "user", "content": "hi"}],
    "a": "Hello.",
    "b": "Well hello there my dear old friend.",
    "label": 1,
}
TRAJ: dict[str, Any] = {"id": "t1", "kind": "traj", "context": LOG["messages"], "label": 1}


@pytest.fixture()
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
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
    found = rows(folder / "mixed.brief.scored.jsonl")
    assert [(r["line"], r["id"], r["side"], r["judgement"]["reward"]) for r in found] == [
        (1, "one", None, 1.0),
        (3, "p1", "a", 1.0),
        (3, "p1", "b", 0.0),
        (5, "t1", None, 1.0),
    ]
    rejected = rows(folder / "mixed.brief.rejected.jsonl")
    assert [r["line"] for r in rejected] == [2, 4]
    assert "messages" in rejected[1]["reason"]
    assert "rejected: 2" in result.output
    assert "4 conversations of 3 records" in result.output


def test_both_sides_of_a_pair_have_its_task(folder: Path) -> None:
    (folder / "vip.yaml").write_text(FEATURES)
    task = {"features": {"vip": True}, "reference": "Hello."}
    write(
        folder / "pairs.jsonl", {**PAIR, "task": task, "b": "Yes."}, PAIR, {**PAIR, "task": {"features": 3}}
    )
    result = run("pairs.jsonl", "--rubric", "vip.yaml")
    assert result.exit_code == 0, result.output
    found = rows(folder / "pairs.vip.scored.jsonl")
    assert [(r["line"], r["side"], r["judgement"]["reward"]) for r in found] == [(1, "a", 1.0), (1, "b", 0.0)]
    second, third = (
        rows(folder / "pairs.vip.rejected.jsonl")[0],
        rows(folder / "pairs.vip.rejected.jsonl")[-1],
    )
    assert "vip" in second["reason"] and third["reason"].startswith("task: features")
    shared = {
        "task": task,
        "task_id": 7,
        "group_id": "g",
        "tools": [{"type": "function"}],
        "metadata": {"k": 1},
    }
    for side, made in candidates({**PAIR, **shared}):
        assert (made.id, made.task_id, made.group_id) == ("p1", "7", "g")
        assert made.task.reference == "Hello." and made.tools == ({"type": "function"},)
        assert made.metadata == {"k": 1} and [m.content for m in made.messages] == ["hi", PAIR[side or ""]]
    ((_, talk),) = candidates({**TRAJ, "task_id": "t", "group_id": "g"})
    assert (talk.task_id, talk.group_id) == ("t", "g")


def test_a_pair_without_an_id_is_named_by_its_line(folder: Path) -> None:
    write(
        folder / "pairs.jsonl",
        {**PAIR, "id": None},
        {**PAIR, "id": ""},
        {**PAIR, "id": 7},
        {**PAIR, "id": []},
    )
    assert run("pairs.jsonl", "--rubric", "brief.yaml").exit_code == 0
    named = [r["id"] for r in rows(folder / "pairs.brief.scored.jsonl")]
    assert named == [name for name in ("pairs.jsonl:1", "pairs.jsonl:2", "7") for _ in "ab"]
    (rejected,) = rows(folder / "pairs.brief.rejected.jsonl")
    assert rejected["reason"].startswith("id: expected text")


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
    assert len(rows(folder / "pairs.brief.scored.jsonl")) == 4
    assert not (folder / "pairs.brief.rejected.jsonl").exists()
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
    assert [r["line"] for r in rows(folder / "logs.llm.scored.jsonl")] == [1, 3]
    (rejected,) = rows(folder / "logs.llm.rejected.jsonl")
    assert (rejected["id"], rejected["kind"]) == ("long", "context_overflow")
    assert "never trained as a judge" in result.output
    judgement = rows(folder / "logs.llm.scored.jsonl")[0]["judgement"]
    assert judgement["verdicts"]["th.short"]["flags"] == ["untrained_judge"]


FLAGS: dict[str, tuple[tuple[str, ...], Any]] = {
    "mode": (("--mode", "critique"), "critique"),
    "gate": (("--mode", "gated", "--gate", "0.5"), 0.5),
    "joint": (("--joint", "2"), 2),
    "n_samples": (("--n-samples", "3"), 3),
    "stop": (("--stop", "decided"), "decided"),
    "temperature": (("--temperature", "0.2"), 0.2),
    "max_notes_tokens": (("--max-notes-tokens", "5"), 5),
    "seed": (("--seed", "7"), 7),
    "readout": (("--readout", "argmax"), "argmax"),
    "turn_view": (("--turn-view", "hindsight"), "hindsight"),
    "overflow": (("--overflow", "elide"), "elide"),
    "adapter": (("--adapter", "json_score"), "json_score"),
    "min_mass": (("--min-mass", "0.3"), 0.3),
    "calibration": (("--calibration", "off"), ""),
}


def test_whatever_python_can_set_has_a_flag(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tiny_llama: Any, tiny_tokenizer: Any
) -> None:
    names = {field.name for part in (Asking, Modes) for field in fields(part)}
    assert set(FLAGS) == names - {"untrained"}  # a fact about the model, no wish
    write(folder / "logs.jsonl", LOG)
    made: list[RewardModel] = []

    def judge_for(_: Any, options: Mapping[str, Any]) -> RewardModel:
        made.append(RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.0).with_settings(**options))
        return made[-1]

    monkeypatch.setattr("axiomrm.cli_score.judge_for", judge_for)
    words = ("logs.jsonl", "-r", "brief.yaml", "--model", "m", "--cache", "off", "--out", "out.jsonl")
    plain: dict[str, Any] = {}
    tried: dict[str, tuple[tuple[str, ...], Any]] = {"": ((), None), **FLAGS}
    for name, (flags, value) in tried.items():
        assert run(*words, "--replace", *flags).exit_code == 0
        plain = plain or made[-1].settings
        changed = {k: v for k, v in made[-1].settings.items() if v != plain[k]}
        assert changed == ({name: value} if value else {})


IDLE = {
    (): {"mode", "gate", "n_samples", "template", "cache", "engine", "rpm", "calibration"},
    ("--model", "judge"): {"served_model", "tokenizer", "patience", "concurrency", "rpm", "tpm"},
    ("--model", "http://127.0.0.1:9/v1"): {"engine", "dtype", "device"},
}


@pytest.mark.parametrize("model", IDLE)
def test_an_option_that_nothing_would_read_is_a_usage_error(folder: Path, model: tuple[str, ...]) -> None:
    write(folder / "logs.jsonl", LOG)
    values = {"cache": "off", "engine": "transformers", "calibration": "off", "mode": "direct"}
    for name in IDLE[model]:
        flag = f"--{name.replace('_', '-')}"
        result = run("logs.jsonl", "--rubric", "brief.yaml", *model, flag, values.get(name, "1"))
        said = " ".join(result.stderr.replace("│", " ").split())
        assert result.exit_code == 2 and f"for {flag}:" in said and "--model" in said, said
    assert not list(folder.glob("*.scored.jsonl"))


def test_an_option_of_the_judge_needs_a_model_also_when_it_says_the_default(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    assert run("logs.jsonl", "--rubric", "brief.yaml").exit_code == 0
    assert run("logs.jsonl", "--rubric", "brief.yaml", "--seed", "0").exit_code == 2


@pytest.mark.parametrize("words", [("--mode", "gated"), ("--gate", "0.5"), ("--mode", "none")])
def test_a_gate_belongs_to_gated_mode(folder: Path, words: tuple[str, ...]) -> None:
    write(folder / "logs.jsonl", LOG)
    result = run("logs.jsonl", "-r", "brief.yaml", *words)
    assert result.exit_code == 2 and words[0].strip("-") in result.stderr
    assert not list(folder.glob("*scored*"))


@pytest.fixture()
def judge_folder(folder: Path, make_model: Any, tiny_tokenizer: Any) -> Path:
    make_model().save_pretrained(folder / "judge")
    tiny_tokenizer.save_pretrained(folder / "judge")
    return folder / "judge"


def test_flags_and_python_give_the_same_judgement(folder: Path, judge_folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    own = (FOLDER / "default.j2").read_text().replace("To check: ", "Consider: ")
    (folder / "mine.j2").write_text(own)
    rubric = llm_rubric(folder, programmatic=False)
    words = [
        "--mode",
        "gated",
        "--gate",
        "2",
        "--n-samples",
        "2",
        "--temperature",
        "0.9",
        "--seed",
        "3",
        "--max-notes-tokens",
        "6",
    ]
    places = ("--model", "judge", "--template", "mine.j2", "--cache", "off", "--out", "out.jsonl")
    result = run("logs.jsonl", "-r", rubric, *places, *words)
    assert result.exit_code == 0, result.output
    judge = RewardModel.from_pretrained(
        judge_folder,
        template="mine.j2",
        mode="gated",
        gate=2,
        n_samples=2,
        temperature=0.9,
        seed=3,
        max_notes_tokens=6,
    )
    said = tuple(Message(**message) for message in LOG["messages"])
    wanted = judge.score(Trajectory(messages=said, id="one"), Rubric.load(rubric))
    (row,) = rows(folder / "out.jsonl")
    found = Judgement.model_validate(row["judgement"])
    (verdict,) = found.verdicts.values()
    assert (verdict.status, getattr(verdict, "mode", ""), getattr(verdict, "n", 0)) == (
        "scored",
        "critique",
        2,
    )
    assert found.verdicts == wanted.verdicts and found.judge_revision == wanted.judge_revision


def test_a_stored_calibrator_can_be_left_out(folder: Path, judge_folder: Path) -> None:
    judge = RewardModel.from_pretrained(judge_folder)
    write_calibration(judge_folder, softened(judge, 2.0))
    write(folder / "logs.jsonl", LOG)
    rubric = llm_rubric(folder, programmatic=False)
    words = (
        "logs.jsonl",
        "-r",
        rubric,
        "--model",
        "judge",
        "--cache",
        "off",
        "--replace",
        "--out",
        "out.jsonl",
    )
    refused = run(*words, "--joint", "2")
    assert isinstance(refused.exception, ConfigError)
    assert "or settings differ" in str(refused.exception) and "--calibration off" in str(refused.exception)
    flags: dict[tuple[str, ...], list[str]] = {}
    for said in ((), ("--calibration", "off"), ("--calibration", "off", "--joint", "2")):
        result = run(*words, *said)
        assert result.exit_code == 0, result.output
        flags[said] = rows(folder / "out.jsonl")[0]["judgement"]["verdicts"]["th.kind"]["flags"]
    assert ["calibrated" in found for found in flags.values()] == [True, False, False]


class Down:
    """An engine whose server went away after the start."""

    capabilities = Capabilities(token_ids=False, logprobs="topk", prefix_reuse=False, seeds=True)
    identity: Mapping[str, str] = MappingProxyType({"engine": "down"})

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        return [Failed(kind="unreachable", detail="refused")] * len(prompts)

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        raise AssertionError("a chat server cannot be forced")


def test_a_failing_judge_exits_1_and_no_failure_is_a_number(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("axiomrm.cli_score.judge_for", lambda *_: RewardModel(Down(), JudgePrompter(None)))
    write(folder / "logs.jsonl", LOG)
    words = ("logs.jsonl", "--rubric", llm_rubric(folder, programmatic=False), "--model", "http://x/v1")
    result = run(*words, "--keep-going")
    assert result.exit_code == 1
    (row,) = rows(folder / "logs.llm.scored.jsonl")
    assert row["judgement"]["reward"] is None
    assert "failed:unreachable: 1" in result.output and "failure share: 100.0%" in result.output
    assert "more than 5% of the verdicts failed" in result.stderr


def test_a_judge_that_never_came_up_is_an_error_and_writes_nothing(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    rubric = llm_rubric(folder, programmatic=False)
    words = ("--model", "http://127.0.0.1:9/v1", "--served-model", "m", "--patience", "0.2")
    result = run("logs.jsonl", "--rubric", rubric, *words)
    assert isinstance(result.exception, JudgeError)
    assert not [p.name for p in folder.iterdir() if "scored" in p.name]


def test_a_file_without_one_readable_record_is_an_error(folder: Path) -> None:
    write(folder / "bad.jsonl", "{broken", "also broken")
    result = run("bad.jsonl", "--rubric", "brief.yaml")
    assert result.exception is not None
    assert "bad.jsonl:1" in str(result.exception) and "(and 1 more; see" in str(result.exception)
    write(folder / "bad.jsonl", "{broken")
    assert "more; see" not in str(run("bad.jsonl", "--rubric", "brief.yaml").exception)


def test_a_compressed_log_is_named_as_such(folder: Path) -> None:
    (folder / "logs.jsonl.gz").write_bytes(gzip.compress(json.dumps(LOG).encode()))
    result = run("logs.jsonl.gz", "--rubric", "brief.yaml")
    assert isinstance(result.exception, DataError)
    assert str(result.exception).startswith("logs.jsonl.gz: gzip-compressed; unpack it")
    assert {p.name for p in folder.iterdir()} == {"logs.jsonl.gz", "brief.yaml"}


@pytest.mark.parametrize("value", [LOG, [LOG, LOG], LOG["messages"]])
def test_one_value_over_several_lines_is_read_under_the_name_json_only(folder: Path, value: Any) -> None:
    text = "\ufeff" + json.dumps(value, indent=2)
    (folder / "logs.jsonl").write_text(text)
    result = run("logs.jsonl", "--rubric", "brief.yaml")
    assert isinstance(result.exception, DataError)
    assert "logs.jsonl: holds one JSON value over several lines; name it logs.json" in str(result.exception)
    (folder / "logs.json").write_text(text)
    assert run("logs.json", "--rubric", "brief.yaml").exit_code == 0


def test_a_broken_first_line_costs_that_line_only(folder: Path) -> None:
    write(folder / "logs.jsonl", "{", LOG)
    assert run("logs.jsonl", "--rubric", "brief.yaml").exit_code == 0
    assert [row["line"] for row in rows(folder / "logs.brief.scored.jsonl")] == [2]


def test_what_is_no_file_is_said(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for name, said in (
        ("/dev/null", "/dev/null: a device; a file"),
        ("pipe", "pipe: a pipe"),
        (".", ".: a folder"),
    ):
        assert str(run(name, "--rubric", "brief.yaml").exception).startswith(said)


@pytest.mark.parametrize("model", ["", " "])
def test_a_model_without_a_name_is_refused_before_anything_is_asked(
    folder: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / "logs.jsonl", LOG)
    asked: list[object] = []
    monkeypatch.setattr(RewardModel, "from_pretrained", lambda *args, **options: asked.append(args))
    result = run("logs.jsonl", "--rubric", "brief.yaml", "--model", model)
    assert isinstance(result.exception, ConfigError) and not asked
    assert (
        str(result.exception) == f"--model {model!r}: empty; expected a checkpoint folder, a hub id or a URL"
    )


def test_an_existing_output_of_another_rubric_is_kept_unless_it_may_go(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    (folder / "other.yaml").write_text(RUBRIC.replace("<= 5", "<= 6").replace("id: brief", "id: other"))
    (old, new) = (Rubric.load(f"{name}.yaml").hash[:12] for name in ("brief", "other"))
    out = ("--out", "out.jsonl")
    assert run("logs.jsonl", "--rubric", "brief.yaml", *out).exit_code == 0
    before = (folder / "out.jsonl").read_bytes()
    result = run("logs.jsonl", "--rubric", "other.yaml", *out)
    assert isinstance(result.exception, ConfigError)
    assert old in str(result.exception) and new in str(result.exception)
    assert (folder / "out.jsonl").read_bytes() == before
    assert run("logs.jsonl", "--rubric", "brief.yaml", *out).exit_code == 0  # the same once more
    assert run("logs.jsonl", "--rubric", "other.yaml", *out, "--replace").exit_code == 0
    assert (folder / "out.jsonl").read_bytes() != before


def test_two_rubrics_have_two_default_outputs(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    (folder / "other.yaml").write_text(RUBRIC.replace("id: brief", "id: other"))
    for rubric in ("brief", "other"):
        assert run("logs.jsonl", "--rubric", f"{rubric}.yaml").exit_code == 0
        assert len(rows(folder / f"logs.{rubric}.scored.jsonl")) == 1


def test_a_file_that_is_no_output_of_ours_is_not_replaced(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    (folder / "notes.txt").write_text("mine\n")
    result = run("logs.jsonl", "--rubric", "brief.yaml", "--out", "notes.txt")
    assert isinstance(result.exception, ConfigError) and "no output of axiomrm score" in str(result.exception)
    assert (folder / "notes.txt").read_text() == "mine\n"


def test_scores_of_another_input_or_limit_are_not_replaced(folder: Path) -> None:
    for name, log in (("a", LOG), ("b", {**LOG, "id": "two"})):
        (folder / name).mkdir()
        write(folder / name / "log.jsonl", log, log)
    assert run("a/log.jsonl", "-r", "brief.yaml").exit_code == 0  # into log.brief.scored.jsonl
    out = folder / "log.brief.scored.jsonl"
    before = out.read_bytes()
    for other in (("b/log.jsonl",), ("a/log.jsonl", "--limit", "1")):
        result = run(*other, "-r", "brief.yaml")
        assert isinstance(result.exception, ConfigError) and "a/log.jsonl" in str(result.exception)
        assert out.read_bytes() == before
    assert run("a/log.jsonl", "-r", "brief.yaml").exit_code == 0  # the same once more
    assert run("b/log.jsonl", "-r", "brief.yaml", "--replace").exit_code == 0
    assert {row["id"] for row in rows(out)} == {"two"}


def test_a_file_that_is_no_list_of_rejected_records_is_not_touched(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG, "{broken")
    (folder / "mine.rejected.jsonl").write_text("notes of the user\n")
    for more in ((), ("--replace",)):
        result = run("logs.jsonl", "-r", "brief.yaml", "--out", "mine.jsonl", *more)
        assert isinstance(result.exception, ConfigError) and "mine.rejected.jsonl" in str(result.exception)
    assert (folder / "mine.rejected.jsonl").read_text() == "notes of the user\n"
    assert not (folder / "mine.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "text"), [("a.jsonl", ""), ("a.jsonl", "\n \n"), ("a.json", "[]"), ("a.json", "")]
)
def test_an_empty_log_is_an_error_and_leaves_nothing(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    result = run(name, "--rubric", "brief.yaml")
    assert isinstance(result.exception, DataError) and name in str(result.exception)
    assert {p.name for p in folder.iterdir()} == {name, "brief.yaml"}


def test_a_folder_that_is_absent_is_not_made(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    result = run("logs.jsonl", "--rubric", "brief.yaml", "--out", "no/out.jsonl")
    assert isinstance(result.exception, ConfigError) and "there is no folder no" in str(result.exception)
    assert not (folder / "no").exists()


def llm_rubric(folder: Path, programmatic: bool) -> str:
    text = RUBRIC.replace("id: brief", "id: llm")
    item = text[text.index("  - id: th.short") :].replace("judge: {kind: constraint}", "judge: {kind: llm}")
    item = item.replace("    requires: len_words <= 5\n", "").replace("th.short", "th.kind")
    base = text if programmatic else text[: text.index("  - id: th.short")]
    (folder / "llm.yaml").write_text(base + item)
    return "llm.yaml"


def test_without_a_model_the_items_that_need_one_are_counted(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    result = run("logs.jsonl", "--rubric", llm_rubric(folder, programmatic=True))
    assert result.exit_code == 0, result.output
    assert "no model given: 1 of 2 items of rubric 'llm' need one: --model" in result.stderr
    assert "verdicts not asked (no model): 1 (50.0%)" in result.output
    assert "infrastructure" not in result.output


def test_without_a_model_nothing_to_judge_is_an_error(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    result = run("logs.jsonl", "--rubric", llm_rubric(folder, programmatic=False))
    assert isinstance(result.exception, ConfigError) and "1 of 1 items" in str(result.exception)
    assert not (folder / "logs.llm.scored.jsonl").exists()


@pytest.mark.parametrize("model", ["/no/such", "./judge", "../x", "runs/a/judge", "here/judge"])
def test_a_model_folder_that_is_absent_is_named(folder: Path, model: str) -> None:
    write(folder / "logs.jsonl", LOG)
    (folder / "here").mkdir()
    result = run("logs.jsonl", "--rubric", "brief.yaml", "--model", model)
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"--model {model}: there is no such folder")


def test_a_judge_function_that_breaks_counts_as_failed_without_a_model(folder: Path) -> None:
    summary = Summary()
    summary.verdicts.update({"scored": 18, "failed:infrastructure": 1, "failed:bad_input": 9, NOT_ASKED: 30})
    assert summary.failure_share == pytest.approx(1 / 19)
    assert Summary().failure_share == 0 and Summary().coverage is None


def test_progress_says_rate_and_time_left() -> None:
    half = Progress(judged=80, records=50, resumed=10, total=100, seconds=20.0)
    assert progress_line(half) == "  50 of 100 records, 2.00/s, 25 s left"
    assert progress_line(half._replace(total=None)) == "  50 records, 2.00/s"
    assert progress_line(half._replace(total=1000)).endswith("8 min left")


def test_a_second_score_of_a_local_model_finds_its_readings(
    folder: Path, make_model: Any, tiny_tokenizer: Any
) -> None:
    make_model().save_pretrained(folder / "judge")
    tiny_tokenizer.save_pretrained(folder / "judge")
    other = {"messages": [*LOG["messages"], *LOG["messages"]]}
    write(folder / "logs.jsonl", *({**LOG, "id": f"r{i}"} for i in range(3)), other)
    words = ("logs.jsonl", "--rubric", llm_rubric(folder, programmatic=False), "--model", "judge", "--out")
    first, second = run(*words, "a.jsonl"), run(*words, "b.jsonl")
    assert "cache_hits 0" in first.output and "cache_misses 0" in second.output, second.output
    third = run(*words, "c.jsonl", "--cache", "off")
    assert "cache" not in third.output
    assert (folder / "a.jsonl").read_bytes() == (folder / "b.jsonl").read_bytes()
    kept, plain = ([r["judgement"]["reward"] for r in rows(folder / f"{n}.jsonl")] for n in "ac")
    assert kept == pytest.approx(plain, abs=1e-6)  # equal prompts are asked once: another batch
    assert (folder / "home" / "axiomrm" / "readings.sqlite").is_file()
    stats = CliRunner().invoke(cache_app, ["stats"])
    assert "readings" in stats.output and "judge " in stats.output
    assert "0 readings dropped" in CliRunner().invoke(cache_app, ["prune", "--older-than", "1"]).output
    assert "0 readings erased" in CliRunner().invoke(cache_app, ["erase", "--scope", "nobody"]).output
    held = json.loads(CliRunner().invoke(cache_app, ["stats", "--json"]).output)
    assert held["readings"] == 2 and held["kinds"] == {"labels": 2}


def test_a_cache_that_nobody_made_is_named(folder: Path) -> None:
    result = CliRunner().invoke(cache_app, ["stats", "--cache", "absent.sqlite"])
    assert isinstance(result.exception, ConfigError) and "absent.sqlite: there is none" in str(
        result.exception
    )
    assert not (folder / "absent.sqlite").exists()


def test_a_run_stopped_by_hand_goes_on_in_the_same_groups(folder: Path) -> None:
    write(folder / "logs.jsonl", *({**PAIR, "id": f"p{i}"} for i in range(20)))
    rubric, judge = Rubric.load("brief.yaml"), RewardModel.programmatic()
    score_file("logs.jsonl", rubric, judge, folder / "whole.jsonl")

    def stop(progress: Progress) -> None:
        if progress.judged >= 32:
            raise KeyboardInterrupt

    target, partial = folder / "again.jsonl", folder / "again.jsonl.partial"
    with pytest.raises(KeyboardInterrupt):
        score_file("logs.jsonl", rubric, judge, target, told=stop)
    assert not target.exists()
    partial.write_bytes(partial.read_bytes()[:-400])  # more than a line
    summary = score_file("logs.jsonl", rubric, judge, target)
    assert (summary.resumed, summary.records, summary.scored, summary.judged) == (8, 20, 40, 24)
    assert target.read_bytes() == (folder / "whole.jsonl").read_bytes()
    assert not partial.exists()


def test_a_partial_file_of_another_run_is_refused_with_both_values(folder: Path) -> None:
    write(folder / "logs.jsonl", LOG)
    (folder / "out.jsonl.partial").write_text('{"schema": "axiomrm/score-partial-1", "logs": "elsewhere"}\n')
    result = run("logs.jsonl", "--rubric", "brief.yaml", "--out", "out.jsonl")
    assert isinstance(result.exception, ConfigError)
    assert "another logs: 'elsewhere', now" in str(result.exception)
    assert (folder / "out.jsonl.partial").exists()


def softened(judge: RewardModel, temperature: float) -> Calibration:
    """A calibrator for this judge's yes/no verdicts."""
    entry = Entry(
        scale="Y=1 N=0",
        mode="direct",
        readout="expected",
        judge_revision=judge.judge_revision,
        labels=200,
        temperature=temperature,
    )
    return Calibration(entries=(entry,), data_hash="d")


@pytest.mark.parametrize(
    ("name", "begun", "now"),
    [
        ("n_samples", None, 3),
        ("stop", "never", "decided"),
        ("min_mass", 0.0, 0.1),
        ("temperature", 0.7, 0.2),
        ("max_notes_tokens", 4, 8),
        ("seed", 0, 1),
        ("untrained", True, False),
        ("overflow", "fail", "elide"),
        ("turn_view", "causal", "hindsight"),
        ("joint", 1, 2),
        ("gate", None, 0.5),
    ],
)
def test_a_run_never_goes_on_with_other_settings(
    folder: Path, tiny_llama: Any, tiny_tokenizer: Any, name: str, begun: Any, now: Any
) -> None:
    write(folder / "logs.jsonl", *({**LOG, "id": f"r{i}"} for i in range(9)))
    base = RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.0, untrained=True)
    judge = base.with_settings(max_notes_tokens=4)
    begin(folder, judge)
    changed = judge.with_settings(**{name: now}, **({"mode": "gated"} if name == "gate" else {}))
    with pytest.raises(ConfigError, match=f"another {name}: {begun!r}, now {now!r}"):
        score_file("logs.jsonl", Rubric.load("brief.yaml"), changed, folder / "out.jsonl")
    assert score_file("logs.jsonl", Rubric.load("brief.yaml"), judge, folder / "out.jsonl").resumed == 8


def begin(folder: Path, judge: RewardModel) -> None:
    """Leaves a partial file of eight records."""

    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_file("logs.jsonl", Rubric.load("brief.yaml"), judge, folder / "out.jsonl", told=stop)


def test_neither_a_run_nor_an_output_takes_scores_under_another_calibrator(
    folder: Path, tiny_llama: Any, tiny_tokenizer: Any
) -> None:
    write(folder / "logs.jsonl", *({**LOG, "id": f"r{i}"} for i in range(9)))
    plain = RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.0, untrained=True)
    one, two = (plain.with_settings(calibration=softened(plain, t)) for t in (2.0, 3.0))
    rubric, out = Rubric.load("brief.yaml"), folder / "out.jsonl"
    begin(folder, one)
    hashes = [judge.modes.calibration.hash for judge in (one, two) if judge.modes.calibration]
    for other, name in ((two, hashes[1]), (plain, "")):
        with pytest.raises(ConfigError, match=f"another calibration: {hashes[0]!r}, now {name!r}"):
            score_file("logs.jsonl", rubric, other, out)
    score_file("logs.jsonl", rubric, one, out)
    before = out.read_bytes()
    with pytest.raises(ConfigError, match=f"by calibrator {hashes[0][:12]}.*by calibrator {hashes[1][:12]}"):
        score_file("logs.jsonl", rubric, two, out)
    with pytest.raises(ConfigError, match=f"by calibrator {hashes[0][:12]}.*by no calibrator"):
        score_file("logs.jsonl", rubric, plain, out)
    assert out.read_bytes() == before
    score_file("logs.jsonl", rubric, two, out, replace=True)
    assert out.read_bytes() != before


def test_two_runs_never_write_one_output(folder: Path) -> None:
    write(folder / "logs.jsonl", *({**LOG, "id": f"r{i}"} for i in range(9)))
    rubric, judge = Rubric.load("brief.yaml"), RewardModel.programmatic()

    def second(_: Progress) -> None:
        with pytest.raises(ConfigError, match="another process is writing"):
            score_file("logs.jsonl", rubric, judge, folder / "out.jsonl")

    assert score_file("logs.jsonl", rubric, judge, folder / "out.jsonl", told=second).records == 9


@pytest.mark.parametrize("section", ["Reading cache", "Scoring files"])
def test_python_of_the_judges_page_runs(
    section: str, tiny_llama: Any, tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "judge.md"
    text = page.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    item = RUBRIC[: RUBRIC.index("    requires:")]
    said = (Message(role="user", content="hi"), Message(role="assistant", content="Hello."))
    names: dict[str, Any] = {
        "judge": RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.0, untrained=True),
        "rubric": Rubric.loads(item, "brief.yaml"),
        "trajectory": Trajectory(messages=said),
        "Path": Path,
    }
    (block,) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    exec(compile(block, str(page), "exec"), names)
