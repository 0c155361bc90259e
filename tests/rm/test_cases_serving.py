"""The given cases about servers asked, readings kept and files grown (D-SV-05 to D-SV-13)."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.data.verdict import Failed, Scored
from axiomrm.rm import Criterion, JudgePrompter, RewardModel, VerdictRequest
from axiomrm.rm.asking import Asking
from axiomrm.rm.cache import with_cache
from axiomrm.rm.cache_sql import ReadingStore
from axiomrm.rm.calibration import Calibration, Entry
from axiomrm.rm.engines.base import Generation, Prompt, Sampling
from axiomrm.rm.engines.http_limits import HttpLimits
from axiomrm.rm.engines.openai import OpenAIEngine
from axiomrm.score_partial import Partial

FILE = Path(__file__).parents[1] / "cases" / "dev_cases.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]
ENGINE_KINDS = ("http_engine", "key", "samples", "concurrent", "sqlite", "resume_file")
PROMPTER = JudgePrompter(None)


def of(kind: str) -> list[Any]:
    return [
        pytest.param(case, id=case["id"])
        for case in CASES
        if case["area"] == "serving" and case["input"]["kind"] == kind
    ]


def prompt(question: str = "Is it polite?") -> Prompt:
    said = (Message(role="user", content="hi"), Message(role="assistant", content="hello"))
    made = PROMPTER.render(Trajectory(messages=said), Criterion("c", question))
    assert isinstance(made, Prompt)
    return made


def outcome(row: Generation | Failed) -> str:
    return "failed" if isinstance(row, Failed) else "ok"


def scripted(reply: dict[str, Any], http: Any) -> Callable[[Any], Any]:
    if "hang_s" in reply:
        return lambda _: time.sleep(min(reply["hang_s"], 8)) or (200, {}, {})  # type: ignore[func-returns-value]
    if reply["status"] == 200:
        choice = {"message": {"content": reply["text"]}, "finish_reason": "stop"}
        return lambda _: (200, {}, {"choices": [choice]})
    answer: Callable[[Any], Any] = http.status(reply["status"], reply.get("body", "").encode())
    return answer


@pytest.mark.parametrize("case", of("http_engine"))
def test_what_cannot_heal_is_asked_once_and_what_can_again(
    case: dict[str, Any], http: Any, server: Any
) -> None:
    given, expect = case["input"], case["expect"]
    engine = OpenAIEngine(server.url, "m", HttpLimits(given.get("deadline_s", 20.0), first_wait_s=0.02))
    server.answers = [http.verdict("Y", Y=1.0)]
    (first,) = engine.generate([prompt("Is it warm?")], Sampling())  # imports, loop and connection are there
    assert outcome(first) == "ok"
    server.answers = [scripted(reply, http) for reply in given["replies"]]
    server.requests.clear()
    started = time.monotonic()
    (row,) = engine.generate([prompt()], Sampling())
    took = time.monotonic() - started
    assert took < expect.get("within_s", 20)
    assert outcome(row) == expect["outcome"]
    assert getattr(row, "kind", None) == expect.get("failure_kind")
    assert len(server.requests) == expect.get("calls", 1)  # one that hangs takes all the time there is


@pytest.mark.parametrize("case", of("concurrent"))
def test_rows_stand_as_given_whatever_comes_first_or_breaks(
    case: dict[str, Any], http: Any, server: Any
) -> None:
    given = case["input"]

    def answer(body: Any) -> Any:
        number = int(body["messages"][-1]["content"].rpartition("number ")[2].partition("?")[0])
        time.sleep(given["delays_s"][number])
        if number in given["raises"]:
            return http.CUT, {}, b""
        return 200, {}, {"choices": [{"message": {"content": str(number)}}]}

    server.answers = [answer]
    engine = OpenAIEngine(server.url, "m", HttpLimits(attempts=1))
    rows = engine.generate([prompt(f"Is it number {i}?") for i in range(3)], Sampling())
    assert [outcome(row) for row in rows] == case["expect"]["results"]
    assert [row.text for row in rows if isinstance(row, Generation)] == ["0", "2"]


def asked(setting: dict[str, Any]) -> VerdictRequest:
    """A request with the case's settings, each where it belongs."""
    call = ToolCall(id="t", name="look_up", arguments=setting.get("tool_args", {}))
    said = (Message(role="user", content="hi"), Message(role="assistant", content="", tool_calls=(call,)))
    return VerdictRequest(
        Trajectory(messages=said), Criterion(setting["criterion"], setting.get("text", "So?"))
    )


def softened(judge: RewardModel) -> Calibration:
    """A calibrator that this judge takes."""
    entry = Entry(
        scale="Y=1 N=0",
        mode="direct",
        readout="expected",
        judge_revision=judge.judge_revision,
        labels=200,
        temperature=2.0,
    )
    return Calibration(entries=(entry,), data_hash="d")


@pytest.mark.parametrize("case", of("key"))
def test_a_kept_reading_is_found_exactly_where_it_should_be(
    case: dict[str, Any], http: Any, server: Any, tmp_path: Path
) -> None:
    """The rubric's hash never reaches the model; whoever wants it in the key gives it as context."""
    server.answers = [http.verdict("Y", Y=0.9, N=0.05, X=0.04)]
    base, sent = case["input"]["base"], []
    store = ReadingStore(tmp_path / "cache.sqlite")
    for change in ({}, *case["input"]["changes"]):
        setting = {**base, **change}
        engine = OpenAIEngine(server.url, "m", HttpLimits(deadline_s=setting.get("timeout_s", 60)))
        prompter = JudgePrompter(None, secret=setting.get("nonce", "axiomrm"))
        asking = Asking(temperature=setting.get("temperature", 0.7), min_mass=0.5)
        context = {"rubric_hash": setting["rubric_hash"]} if "rubric_hash" in setting else None
        judge = with_cache(RewardModel(engine, prompter, asking), store, context=context)
        if "calibrator" in setting:
            judge = judge.with_settings(calibration=softened(judge))
        (verdict,) = judge.verdicts([asked(setting)])
        assert isinstance(verdict, Scored)
        assert ("calibrator" in setting) == ("calibrated" in verdict.flags)
        sent.append(len(server.requests))
    store.close()
    different = "all_keys_different" in case["expect"]
    assert sent == (list(range(1, len(sent) + 1)) if different else [1] * len(sent))


@pytest.mark.parametrize("case", of("samples"))
def test_samples_are_drawn_anew_and_each_is_kept(
    case: dict[str, Any], http: Any, server: Any, tmp_path: Path
) -> None:
    given, expect = case["input"], case["expect"]
    server.answers = [http.verdict(label, Y=0.6, N=0.3, X=0.1) for label in given["engine_answers"]]
    store = ReadingStore(tmp_path / "cache.sqlite")
    sampling = Sampling(temperature=given["temperature"])
    for calls in (expect["engine_calls"], expect["second_run"]["engine_calls"]):
        server.requests.clear()
        engine = OpenAIEngine(server.url, "m", HttpLimits(concurrency=1))
        judge = with_cache(RewardModel(engine, PROMPTER), store)
        assert judge.engine is not None
        rows = judge.engine.generate([prompt()] * given["k"], sampling)
        assert [row.text[-1] for row in rows if isinstance(row, Generation)] == expect["labels"]
        assert len(server.requests) == calls
        assert len({body["seed"] for body in server.requests}) == calls
    store.close()


WRITER = """
import sys
from axiomrm.rm.cache_sql import ReadingStore, Row
place, me, writes = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = ReadingStore(place)
for i in range(writes):
    store.put([Row(f"{me}-{i}", "labels", "judge", "", "{}")])
"""


@pytest.mark.parametrize("case", of("sqlite"))
def test_processes_that_write_one_cache_lose_nothing(case: dict[str, Any], tmp_path: Path) -> None:
    given, expect = case["input"], case["expect"]
    place = tmp_path / "cache.sqlite"
    command = [sys.executable, "-c", WRITER, str(place)]
    writers = [
        subprocess.Popen([*command, str(me), str(given["writes_each"])], stderr=subprocess.PIPE)
        for me in range(given["processes"])
    ]
    assert [writer.communicate(timeout=100)[1] for writer in writers] == [b""] * given["processes"]
    assert sum(writer.returncode != 0 for writer in writers) == expect["errors"]
    store = ReadingStore(place)
    assert store.stats().readings == expect["rows"]
    store.close()


@pytest.mark.parametrize("case", of("resume_file"))
def test_a_cut_last_line_costs_that_record_and_no_other(case: dict[str, Any], tmp_path: Path) -> None:
    given, path = case["input"], tmp_path / "out.partial"
    whole, cut = given["existing"].split("\n")
    with Partial(path, {"run": 1}, 1) as partial:
        partial.append([{**json.loads(whole), "line": 1}])
    with path.open("ab") as handle:
        handle.write(cut.encode())
    with Partial(path, {"run": 1}, 1) as partial:
        assert partial.records == 1
        partial.append({"id": name, "line": 2 + i} for i, name in enumerate(given["remaining"]))
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [line["id"] for line in lines[1:]] == case["expect"]["ids"]


def test_every_case_of_the_engine_is_run() -> None:
    numbers = {f"D-SV-{n:02}" for n in range(5, 14)}
    given = {case["id"] for case in CASES if case["input"].get("kind") in ENGINE_KINDS}
    assert numbers <= given
