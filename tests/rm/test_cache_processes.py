"""One cache, two processes that judge at the same time."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from axiomrm.rm.cache import with_cache
from axiomrm.rm.cache_sql import ReadingStore
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import score_file

DRIVER = Path(__file__).with_name("two_judges.py")
RUBRIC = """
schema: atr/1
rubric: {id: brief, version: 1.0.0}
defaults: {judge: {kind: llm}}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
theorems:
  - {id: th.done, derived_from: [ax.help], derivation: purpose, statement: The request is settled.}
  - {id: th.kind, derived_from: [ax.help], derivation: manners, statement: The agent is kind.}
"""


def write(path: Path, numbers: list[int]) -> None:
    with path.open("w") as handle:
        for i in numbers:
            said = [
                {"role": "user", "content": f"question {i}"},
                {"role": "assistant", "content": "word " * (i % 9)},
            ]
            handle.write(json.dumps({"id": f"r{i}", "messages": said}) + "\n")


def verdicts(path: Path) -> dict[tuple[str, str], Any]:
    rows = [json.loads(line)["judgement"] for line in path.read_text().splitlines()]
    return {(row["id"], name): v for row in rows for name, v in row["verdicts"].items()}


@pytest.mark.slow
def test_two_judges_on_one_cache_lose_and_mix_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_model: Any, tiny_tokenizer: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model().save_pretrained("judge")
    tiny_tokenizer.save_pretrained("judge")
    Path("brief.yaml").write_text(RUBRIC)
    # 16 conversations are asked by both, from opposite ends; 8 by one of them alone.
    write(Path("a.jsonl"), [*range(16), *range(100, 104)])
    write(Path("b.jsonl"), [*range(15, -1, -1), *range(200, 204)])
    words = ["judge", "brief.yaml", "cache.sqlite", "a.jsonl", "a.out", "b.jsonl", "b.out"]
    done = subprocess.run(
        [sys.executable, str(DRIVER), *words], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    asked = 20 * 2 * 2  # conversations, criteria, a critique and a label each
    assert [counts["cache_hits"] + counts["cache_misses"] for counts in told] == [asked, asked]
    assert sum(counts["cache_hits"] for counts in told) > 0
    store = ReadingStore("cache.sqlite")
    assert store.stats().kinds == {"generation": 24 * 2, "labels": 24 * 2}
    plain = RewardModel.from_pretrained("judge", mode="critique", max_notes_tokens=4)
    again = with_cache(plain, store)
    for name in "ab":
        score_file(f"{name}.jsonl", Rubric.load("brief.yaml"), plain, f"{name}.plain")
        score_file(f"{name}.jsonl", Rubric.load("brief.yaml"), again, f"{name}.again")
        wanted, found = verdicts(Path(f"{name}.plain")), verdicts(Path(f"{name}.out"))
        assert found.keys() == wanted.keys()
        for place, verdict in found.items():
            assert verdict["critique"] == wanted[place]["critique"]
            assert verdict["value"] == pytest.approx(wanted[place]["value"], abs=1e-5)
        assert {p: v["critique"] for p, v in verdicts(Path(f"{name}.again")).items()} == {
            p: v["critique"] for p, v in found.items()
        }
    assert again.usage["cache_misses"] == 0
    assert len({v["value"] for v in verdicts(Path("a.out")).values()}) > 10
    store.close()
