"""The public-bug cases of area ``trajectory-load``; each stands for its kind, see also test_reading.py."""

import base64
import json
import math
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.jsonl import ReadResult
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.writing import write_trajectories

CASES = [
    case
    for line in (Path(__file__).parents[1] / "cases" / "dev_cases.jsonl")
    .read_text(encoding="utf-8")
    .split("\n")
    if line and (case := json.loads(line))["area"] == "trajectory-load"
]


def contents(case: dict[str, Any]) -> bytes:
    """The bytes of the case's file."""
    given = case["input"]
    if "raw_b64" in given:
        return base64.b64decode(given["raw_b64"])
    parts = given.get("raw_parts", [given.get("raw")])
    return "".join(p if isinstance(p, str) else p["repeat"] * p["times"] for p in parts).encode()


def matches(result: ReadResult[Trajectory], expect: dict[str, Any]) -> None:
    assert len(result) == expect["loaded"]
    assert [r.line for r in result.rejected] == [r["line"] for r in expect.get("rejected", [])]
    for rejected, wanted in zip(result.rejected, expect.get("rejected", []), strict=True):
        assert all(word in rejected.reason for word in wanted["reason_mentions"]), rejected.reason
    if "turns" in expect:
        assert [len(t.turns) for t in result] == expect["turns"]
    for check in expect.get("checks", []):
        check_record(result[check["record"]], check)
    for trajectory, rewards in zip(result, expect.get("turn_rewards", []), strict=False):
        assert trajectory.turn_rewards is not None
        found = ["missing" if math.isnan(r) else r for r in trajectory.turn_rewards]
        assert found == rewards
    if "last_record" in expect:
        outcome = result[-1].outcome
        assert outcome is not None and outcome.score == expect["last_record"]["outcome"]["score"]


def check_record(trajectory: Trajectory, check: dict[str, Any]) -> None:
    if "metadata" in check:
        assert check["metadata"].items() <= trajectory.metadata.items()
        return
    number = check["message"]
    message = trajectory.messages[number]
    asked = trajectory.answered_call(number)
    for key, wanted in check.items():
        if key in ("record", "message"):
            continue
        elif key == "text":
            assert message.content == wanted
        elif key == "text_contains":
            assert all(part in message.content for part in wanted)
        elif key in ("role", "role_any"):
            assert message.role in ([wanted] if key == "role" else wanted)
        elif key == "calls":
            found = [call.model_dump() for call in message.tool_calls]
            assert [{k: f[k] for k in w} for f, w in zip(found, wanted, strict=True)] == wanted
        elif key == "answers_call":
            assert (asked and asked.name) == wanted
        elif key == "answers_arguments":
            assert asked is not None and asked.arguments == wanted
        elif key == "unanswered":
            turn = next(t.index for t in trajectory.turns if t.start == number)
            assert [call.id for call in trajectory.unanswered(turn)] == wanted
        elif key == "extra":
            assert wanted.items() <= message.extra.items()
        else:
            pytest.fail(f"the adapter does not know the check {key!r}")


def texts(result: ReadResult[Trajectory]) -> list[str]:
    return [m.content for t in result for m in t.messages]


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["id"]))
def test_case(case: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / case["input"]["file_name"]
    path.write_bytes(contents(case))
    result = Trajectory.read(path)
    expect = case["expect"]
    options = expect.get("any_of", [expect])
    matches(result, next((o for o in options if o["loaded"] == len(result)), options[0]))
    for never in expect.get("never_in_text", []):
        assert not any(never in text for text in texts(result))
    assert not any("\ufffd" in text for text in texts(result))
    survives_rewriting(result, tmp_path / "again.jsonl")


def survives_rewriting(result: ReadResult[Trajectory], path: Path) -> None:
    """Whatever was loaded can be written as strict JSON, hashed, and read again as the same."""
    write_trajectories(path, result)
    for line in path.read_bytes().split(b"\n")[:-1]:
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))
    again = Trajectory.read(path)
    assert not again.rejected
    assert [repr(t) for t in again] == [repr(t) for t in result]  # repr: NaN equals itself
    assert all(t.content_hash for t in again)


def test_the_file_holds_the_cases() -> None:
    assert len(CASES) == 22


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    raw = contents(next(case for case in CASES if case["id"] == "D-TL-10"))
    path = tmp_path / "log.jsonl"
    path.write_bytes(raw)
    marked = Trajectory.read(path)
    path.write_bytes(raw.removeprefix(b"\xef\xbb\xbf"))
    assert marked.records == Trajectory.read(path).records


def test_an_orphan_result_never_becomes_speech(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(contents(next(case for case in CASES if case["id"] == "D-TL-09")))
    spoken = [m.content for t in Trajectory.read(path) for m in t.messages if m.role in ("user", "assistant")]
    assert "42 left" not in spoken
