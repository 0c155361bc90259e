"""A judge that goes away stops a scoring run before its failures are kept, and the same run goes on later."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.data.verdict import Failed, FailureKind
from axiomrm.errors import JudgeError
from axiomrm.rm.engines.base import Capabilities, Generation, LabelReading, Prompt, Sampling
from axiomrm.rm.labels import LabelTable
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.request import Asking
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import Progress, score_file
from axiomrm.score_outage import reason
from axiomrm.score_partial import Partial

Fault = Callable[[int], FailureKind | None]


class Flaky:
    """A judge that says yes, or fails for the numbers of records that it is told to fail for."""

    capabilities = Capabilities(token_ids=True, logprobs="exact", prefix_reuse=False, seeds=True)
    identity: Mapping[str, str] = MappingProxyType({"engine": "flaky"})

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.fault: Fault = lambda number: None
        self.asked: list[int] = []

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        return [self._answer(prompt) for prompt in prompts]

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        raise AssertionError("direct mode writes nothing")

    def _answer(self, prompt: Prompt) -> LabelReading | Failed:
        number = int(prompt.messages[-1]["content"].partition("number ")[2].partition("!")[0])
        self.asked.append(number)
        kind = self.fault(number)
        return (
            LabelReading({"Y": -0.1, "N": -3.0, "X": -6.0})
            if kind is None
            else Failed(kind=kind, detail="away")
        )


@pytest.fixture()
def engine(tiny_tokenizer: Any) -> Flaky:
    return Flaky(tiny_tokenizer)


@pytest.fixture()
def judge(engine: Flaky, tiny_tokenizer: Any) -> RewardModel:
    return RewardModel(engine, JudgePrompter(tiny_tokenizer), Asking(min_mass=0.0))


@pytest.fixture()
def rubric(one_theorem: str) -> Rubric:
    return Rubric.loads(one_theorem, "one.yaml")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def logs(n: int) -> Path:
    def record(i: int) -> dict[str, Any]:
        said = [{"role": "user", "content": f"number {i}!"}, {"role": "assistant", "content": "yes"}]
        return {"id": f"r{i}", "messages": said}

    Path("logs.jsonl").write_text("".join(json.dumps(record(i)) + "\n" for i in range(n)))
    return Path("logs.jsonl")


def failing(numbers: Sequence[int], kind: FailureKind = "unreachable") -> Fault:
    return lambda number: kind if number in numbers else None


def statuses(path: str | Path) -> list[str]:
    rows = [json.loads(line) for line in Path(path).read_text().splitlines()]
    assert [row["line"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["judgement"]["verdicts"]["th.done"]["status"] for row in rows]


def test_a_judge_that_goes_away_stops_the_run_and_the_same_call_goes_on(
    judge: RewardModel, engine: Flaky, rubric: Rubric
) -> None:
    file = logs(60)
    score_file(file, rubric, judge, "whole.jsonl")
    engine.fault = failing(range(20, 60))
    with pytest.raises(
        JudgeError, match=r"all 8 verdicts of lines 25 to 32 were lost; the last: unreachable"
    ):
        score_file(file, rubric, judge, "out.jsonl")
    assert not Path("out.jsonl").exists()
    with pytest.raises(
        JudgeError, match=r"24 records are kept in out\.jsonl\.partial: the same command goes on"
    ):
        score_file(file, rubric, judge, "out.jsonl")  # still away: nothing is added, nothing lost
    engine.fault, engine.asked = failing(()), []
    told: list[Progress] = []
    summary = score_file(file, rubric, judge, "out.jsonl", told=told.append)
    assert sorted(engine.asked) == list(range(16, 60))  # the group with 20 to 23 again, then the rest
    assert (summary.resumed, summary.judged, summary.scored) == (16, 44, 60)
    assert (told[0].records, told[0].resumed, told[-1].records) == (24, 16, 60)
    assert Path("out.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert not Path("out.jsonl.partial").exists()


def test_a_judge_that_never_answers_leaves_nothing(judge: RewardModel, engine: Flaky, rubric: Rubric) -> None:
    engine.fault = failing(range(9))
    with pytest.raises(JudgeError, match="no record is kept yet: give the same command again"):
        score_file(logs(9), rubric, judge, "out.jsonl")
    assert {path.name for path in Path().iterdir()} == {"logs.jsonl"}


def test_scattered_lost_verdicts_are_failed_rows_however_many(
    judge: RewardModel, engine: Flaky, rubric: Rubric
) -> None:
    bad = [i for i in range(100) if i % 8]  # one of each group is answered
    engine.fault = failing(bad, "timeout")
    summary = score_file(logs(100), rubric, judge, "out.jsonl")
    assert dict(summary.verdicts) == {"scored": 13, "failed:timeout": 87}
    assert statuses("out.jsonl") == ["failed" if i % 8 else "scored" for i in range(100)]


def test_answers_that_cannot_be_used_stop_nobody(judge: RewardModel, engine: Flaky, rubric: Rubric) -> None:
    engine.fault = failing(range(64), "low_mass")
    assert score_file(logs(64), rubric, judge, "out.jsonl").verdicts == {"failed:low_mass": 64}
    engine.fault = failing(range(64), "unreachable")
    summary = score_file(logs(64), rubric, judge, "out.jsonl", keep_going=True)
    assert summary.verdicts == {"failed:unreachable": 64}


def test_what_fails_again_is_kept_and_does_not_stop_a_resumed_run(
    judge: RewardModel, engine: Flaky, rubric: Rubric
) -> None:
    """Groups that are judged again hold a failure each: they are no sample of what the judge does."""
    bad = list(range(3, 160, 32))  # 3 % of all, 12.5 % of the groups they are in

    def stop(progress: Progress) -> None:
        if progress.records >= 152:
            raise KeyboardInterrupt

    engine.fault, file = failing(bad, "timeout"), logs(160)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            score_file(file, rubric, judge, "out.jsonl", told=stop)
        engine.asked = []
    summary = score_file(file, rubric, judge, "out.jsonl")
    assert sorted(engine.asked) == sorted(
        {n // 8 * 8 + i for n in bad for i in range(8)} | set(range(152, 160))
    )
    assert dict(summary.verdicts) == {"scored": 155, "failed:timeout": 5}
    assert [i for i, status in enumerate(statuses("out.jsonl")) if status == "failed"] == bad


def entry(line: int, *kinds: FailureKind | None, name: str = "th.done") -> dict[str, Any]:
    """A record with one verdict a turn."""
    made = [
        {"status": "failed", "kind": kind, "detail": ""} if kind else {"status": "scored"} for kind in kinds
    ]
    turns = [{"verdicts": {name: verdict, "th.code": {"status": "scored"}}} for verdict in made]
    return {"line": line, "rows": [{"judgement": {"verdicts": {}, "turns": turns}}], "rejected": []}


def test_a_group_is_lost_where_no_verdict_of_a_model_was_answered() -> None:
    items = frozenset({"th.done"})
    assert reason([entry(4, "unreachable"), entry(5, "timeout")], items).startswith(
        "all 2 verdicts of lines 4 to 5 were lost; the last: timeout"
    )
    assert not reason([entry(4, "unreachable"), entry(5, None)], items)
    assert not reason([entry(4, "unreachable"), entry(5, "low_mass")], items)
    assert reason([entry(4, "unreachable"), entry(5, "bad_input")], items)  # that one was never asked
    assert not reason([entry(1, "bad_input", "bad_input"), entry(2, "context_overflow")], items)
    assert not reason([entry(3, "unreachable", "unreachable", name="th.code")], items)  # no model's item
    assert not reason([], items)


def test_the_last_entry_of_a_record_counts_and_stands_in_its_place(tmp_path: Path) -> None:
    def rows(lines: Sequence[int], value: int) -> list[dict[str, Any]]:
        return [{"line": line, "value": value, "open": value == 0 and line == 3} for line in lines]

    def opened() -> Partial:
        return Partial(tmp_path / "p", {"logs": "x"}, 2, lambda row: bool(row["open"]))

    with opened() as partial:
        for lines in ((1, 3), (4, 7), (8,)):
            partial.append(rows(lines, 0))
    with opened() as partial:
        assert (partial.again, partial.records, partial.last_line) == ({1, 3}, 4, 7)  # 8 was no whole group
        partial.append(rows((1, 3), 1))
        partial.append(rows((8, 9), 1))
        found = [(row["line"], row["value"]) for row in partial.entries()]
        assert found == [(1, 1), (3, 1), (4, 0), (7, 0), (8, 1), (9, 1)]
        assert (partial.again, partial.records) == (set(), 6)
    with opened() as partial:
        assert (partial.again, partial.records, partial.last_line) == (set(), 6, 9)
        assert [(row["line"], row["value"]) for row in partial.entries()] == found


def test_the_command_stops_in_one_line_and_goes_on_when_the_server_is_back(
    http: Any, server: Any, folder: Path, one_theorem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "one.yaml").write_text(one_theorem)
    good, file = http.verdict("Y", Y=0.9, N=0.05, X=0.01), logs(40)
    probing = 3
    server.answers = [lambda body: good(body) if len(server.requests) <= probing + 20 else (503, {}, b"gone")]
    words = ["score", str(file), "-r", "one.yaml", "--model", server.url, "--served-model", "m"]
    words += ["--patience", "1", "--concurrency", "1", "--out", "out.jsonl"]
    assert main(words) == 2
    told = capsys.readouterr().err
    assert told.startswith(
        "axiomrm: logs.jsonl: all 8 verdicts of lines 25 to 32 were lost; the last: unreachable"
    )
    assert "24 records are kept in out.jsonl.partial" in told and not Path("out.jsonl").exists()
    server.answers, before = [good], len(server.requests)
    assert main(words) == 0
    assert (
        len(server.requests) - before == probing + 24
    )  # 17 to 24 again, where the server went, and 25 to 40
    assert statuses("out.jsonl") == ["scored"] * 40


def test_without_a_model_nobody_is_away(
    folder: Path, one_theorem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "one.yaml").write_text(one_theorem)
    assert main(["score", str(logs(1)), "-r", "one.yaml", "--keep-going"]) == 2
    assert "--keep-going: needs --model" in capsys.readouterr().err
