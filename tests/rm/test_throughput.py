"""The sums of the throughput benchmark, and what it does when a server dies."""

import argparse
import importlib
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.verdict import Scored

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SIDES = ("ours", "first", "vllm", "autorubric", "http")


@pytest.fixture(autouse=True)
def benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> Any:
    """A file of the benchmarks, which are in no package."""
    return importlib.import_module(name)


def row(side: str, conversation: int, valid: int, cpu_s: float, **more: Any) -> dict[str, Any]:
    place = {"side": side, "mode": "critique", "criteria": 8, "conversation": conversation}
    return {**place, "asked": 8, "valid": valid, "cpu_s": cpu_s, **more}


def test_the_ratio_is_that_of_seconds_a_valid_verdict() -> None:
    compared = module("throughput_compare").compared

    ours = [row("ours", i, 8, 4.0, prompt_tokens=100, completion_tokens=100) for i in (0, 1)]
    first = [row("first", i, 4, 8.0, prompt_tokens=500, completion_tokens=140) for i in (0, 1)]
    (table,) = compared([*ours, *first], SIDES)
    assert table["speedup"] == pytest.approx((16 / 8) / (8 / 16)) == 4
    assert (table["failed_ours"], table["failed_other"]) == (0, 0.5)
    assert (table["token_ratio"], table["of_token_ratio"]) == (5, 0.8)
    assert (table["fed_ratio"], table["of_fed_ratio"]) == (3.2, 1.25)  # 640 over 200; 4 over 3.2
    assert (table["conversations"], table["left_out"]) == (2, 0)


def test_a_conversation_without_a_valid_verdict_is_left_out_and_counted() -> None:
    compared = module("throughput_compare").compared

    ours = [row("ours", i, 8, 4.0) for i in range(3)]
    theirs = [row("autorubric", 0, 8, 8.0), row("autorubric", 1, 0, 900.0), row("autorubric", 2, 8, 8.0)]
    (table,) = compared([*ours, *theirs], SIDES)
    assert (table["speedup"], table["conversations"], table["left_out"]) == (2, 2, 1)
    assert table["failed_other"] == pytest.approx(1 / 3, abs=1e-4)


@pytest.mark.parametrize("other", ["first", "autorubric"])
def test_without_any_valid_verdict_there_is_no_ratio_and_the_reason_is_given(other: str) -> None:
    compared = module("throughput_compare").compared

    ours = [row("ours", i, 8, 4.0, prompt_tokens=100) for i in range(2)]
    theirs = [row(other, i, 0, 8.0, prompt_tokens=500) for i in range(2)]
    (table,) = compared([*ours, *theirs], SIDES)
    assert table["speedup"] is None and "valid verdict" in table["why"]
    assert "of_token_ratio" not in table and table["failed_other"] == 1
    assert not [v for v in table.values() if isinstance(v, float) and not math.isfinite(v)]


def test_a_number_that_a_row_lacks_is_no_zero() -> None:
    compared = module("throughput_compare").compared

    ours, first = row("ours", 0, 8, 4.0, prompt_tokens=100), row("first", 0, 8, 8.0)
    with pytest.raises(KeyError, match="prompt_tokens"):
        compared([ours, first], SIDES)


def test_a_row_that_cost_nothing_is_not_kept(capsys: pytest.CaptureFixture[str]) -> None:
    keep = module("throughput_compare").keep

    rows: list[dict[str, Any]] = []
    for cpu_s in (-3.5, 0.0, 2.5):
        keep(row("http", 0, 8, cpu_s), rows)
    assert [r["cpu_s"] for r in rows] == [2.5]
    assert "left out: -3.5 processor seconds" in capsys.readouterr().out


def test_a_server_that_dies_stops_the_run_and_leaves_no_row(
    tmp_path: Path, tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge_throughput, server = module("judge_throughput"), module("throughput_server")

    tiny_tokenizer.save_pretrained(tmp_path / "model")
    sleep = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    asked: list[int] = []

    def start(sides: Any, _: str) -> Any:
        sides._server = server.Server("http://127.0.0.1:9/v1", sleep, tmp_path / "server.log")

        def run(*_: Any) -> dict[str, Any]:
            asked.append(1)
            if len(asked) == 3:  # one to warm up, one that is measured
                sleep.kill()
                sleep.wait()
            sum(range(3_000_000))  # costs something
            return {"asked": 8, "valid": 0, "kinds": {"unreachable": 8}}

        return run

    monkeypatch.setattr(judge_throughput.Sides, "start", start)
    args = argparse.Namespace(
        sides=["http"],
        modes=["critique"],
        criteria=[8],
        conversations=4,
        model=str(tmp_path / "model"),
        tokens=40,
    )
    rows: list[dict[str, Any]] = []
    with pytest.raises(SystemExit, match=r"the server ended with -9: see .*server\.log"):
        judge_throughput.measured(args, rows, lambda: None)
    assert [r["conversation"] for r in rows] == [0]


def test_a_mean_mass_of_nothing_is_missing() -> None:
    calibration = module("calibration")
    some = [Scored(value=1, label="Y", captured_mass=mass) for mass in (0.2, None, 0.4)]
    assert calibration.mean_mass(some) == pytest.approx(0.3)
    assert calibration.mean_mass(some[1:2]) is None
