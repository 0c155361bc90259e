"""What benchmarks/joint_mode.py counts: what was answered, and differences over what both ways answered."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
bench: Any = importlib.import_module("joint_mode")


def found(*said: float | None, speed: float = 2.0) -> dict[str, Any]:
    """Two dialogues with four questions each, gold Y Y N N; ``None``: a missing verdict."""
    rows = []
    for number, value in enumerate(said):
        verdict: dict[str, Any] = {"status": "failed", "kind": "incomplete"}
        if value is not None:
            verdict = {"status": "scored", "value": value}
        place = {"criterion": "c", "group": f"d{number // 4}", "gold": number % 4 < 2, "kind": "surface"}
        rows.append({**place, "verdict": verdict, "turn": number})
    valid = sum(v is not None for v in said)
    return {"rows": rows, "speed": {"questions": 8, "prompts": 2, "cpu_seconds": speed, "valid": valid}}


RIGHT = (1.0, 0.9, 0.1, 0.0) * 2
HALF = (1.0, None, 0.1, 0.9) * 2


def test_a_missing_verdict_stays_missing() -> None:
    assert bench.of_mode([found(*HALF)])["answered_by_criterion"] == {"c": 0.75}  # all of Y, half of N
    assert bench.of_mode([found(*HALF)])["answered"]["surface"]["missing"] == 2


def test_shares_and_speed_are_counted_from_what_was_answered() -> None:
    made = bench.of_mode([found(*HALF), found(*RIGHT, speed=6.0)])
    assert made["valid_verdicts"] == 14 / 16 and made["failures"] == {"incomplete": 2}
    assert made["valid_verdicts_a_cpu_second"] == 14 / 8 and made["questions_a_cpu_second"] == 16 / 8
    assert made["questions_a_prompt"] == 4


def test_a_difference_is_paired_by_question() -> None:
    same = bench.difference([found(*HALF)], [found(*HALF)], "surface")
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
    gain = bench.difference([found(*RIGHT)], [found(*HALF)], "surface")
    assert gain.value == pytest.approx(0.25) and gain.missing == 2  # of the six that both answered
    assert bench.difference([found(*RIGHT)], [found(*[None] * 8)], "surface") is None
