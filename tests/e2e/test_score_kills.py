"""Kill -9 during ``axiomrm score`` at ten seeded points: the output equals the uninterrupted one."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DRIVER = Path(__file__).with_name("score_kills.py")
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


def logs(path: Path, count: int, say: str) -> Path:
    """Chat logs and pairs; every seventh line is broken, every eleventh has nothing to judge."""
    with path.open("w") as handle:
        for i in range(count):
            user = [{"role": "user", "content": f"question {i}"}]
            record: dict[str, Any] = {
                "id": f"r{i}",
                "messages": [*user, {"role": "assistant", "content": say * (i % 7)}],
            }
            if i % 3 == 0:
                record = {"id": f"r{i}", "kind": "pair", "context": user, "a": say, "b": say * (i % 9)}
            if i % 11 == 5:
                record = {"id": f"r{i}", "messages": user}
            handle.write("{broken\n" if i % 7 == 6 else json.dumps(record) + "\n")
    return path


def killed(folder: Path, rubric: str, *arguments: str) -> dict[str, Any]:
    """Runs the driver; the uninterrupted output is ``straight.jsonl``, the other ``killed.jsonl``."""
    (folder / "brief.yaml").write_text(rubric)
    seed = os.environ.get("AXIOMRM_KILL_SEED", "4")
    command = [sys.executable, str(DRIVER), "logs.jsonl", "brief.yaml", "killed.jsonl", seed, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert told["last"] == 0
    for kind in ("jsonl", "rejected.jsonl"):
        assert (folder / f"killed.{kind}").read_bytes() == (folder / f"straight.{kind}").read_bytes()
    assert not [p.name for p in folder.iterdir() if "partial" in p.name or p.suffix == ".tmp"]
    return told


@pytest.mark.slow
def test_a_score_killed_ten_times_loses_and_doubles_no_row(tmp_path: Path) -> None:
    logs(tmp_path / "logs.jsonl", 90, "word ")
    told = killed(tmp_path, RUBRIC, "10")
    ends = [ended for _, ended in told["died"]]
    assert ends.count(signal.SIGKILL) >= 7, ends  # a late point may lie behind the end of a run that goes on
    rows = [json.loads(line) for line in (tmp_path / "killed.jsonl").read_text().splitlines()]
    rejected = [json.loads(line) for line in (tmp_path / "killed.rejected.jsonl").read_text().splitlines()]
    places = [(row["line"], row["side"]) for row in rows]
    assert len(set(places)) == len(places)
    assert {line for line, _ in places} | {row["line"] for row in rejected} == set(range(1, 91))
