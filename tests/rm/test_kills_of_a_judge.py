"""Kill -9 during ``axiomrm score`` with a model and its cache on, at ten seeded points."""

import importlib.util
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from axiomrm.rm.cache_sql import ReadingStore

KILLS = Path(__file__).parents[1] / "e2e" / "test_score_kills.py"
RUBRIC = """
schema: atr/1
rubric: {id: brief, version: 1.0.0}
defaults: {judge: {kind: llm}}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
theorems:
  - {id: th.done, derived_from: [ax.help], derivation: purpose, statement: The request is settled.}
"""
RECORDS = 24


def kills() -> Any:
    spec = importlib.util.spec_from_file_location("axiomrm_tests_score_kills", KILLS)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_judge_killed_ten_times_says_what_an_uninterrupted_one_says(
    tmp_path: Path, make_model: Any, tiny_tokenizer: Any
) -> None:
    make_model().save_pretrained(tmp_path / "judge")
    tiny_tokenizer.save_pretrained(tmp_path / "judge")
    module = kills()
    module.logs(tmp_path / "logs.jsonl", RECORDS, "word ")
    told = module.killed(tmp_path, RUBRIC, "10", "judge", "cache.sqlite")
    ends = [ended for _, ended in told["died"]]
    assert ends.count(signal.SIGKILL) >= 7, ends
    rows = [json.loads(line) for line in (tmp_path / "killed.jsonl").read_text().splitlines()]
    rejected = [json.loads(line) for line in (tmp_path / "killed.rejected.jsonl").read_text().splitlines()]
    places = [(row["line"], row["side"]) for row in rows]
    assert len(set(places)) == len(places)
    assert {line for line, _ in places} | {row["line"] for row in rejected} == set(range(1, RECORDS + 1))
    verdicts = [v for row in rows for v in row["judgement"]["verdicts"].values()]
    assert {(v["status"], v["mode"]) for v in verdicts} == {("scored", "critique")}
    assert len({v["value"] for v in verdicts}) > 10  # a model said this
    kept = []
    for place in ("cache.sqlite", "cache.sqlite.straight"):
        store = ReadingStore(tmp_path / place)
        kept.append((store.stats().readings, store.stats().kinds))
        store.close()
    assert kept[0] == kept[1] and set(kept[0][1]) == {"generation", "labels"}
