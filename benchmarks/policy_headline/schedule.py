"""Runs in processes of their own, one pinned to each core, until a plan needs nothing more."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from axiomrm.data.writing import atomic_file
from policy_headline.runs import Run

BUSY = 75
WAIT_S = 0.5


@dataclass
class _Child:
    run: Run
    core: int
    process: subprocess.Popen[bytes]


def command(run: Run, core: int, out: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start ``run`` on ``core``; what it says goes to ``log.txt`` in its folder."""
    folder = out / run.folder
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_file(folder / "run.json") as handle:
        handle.write(run.model_dump_json())
    script = Path(__file__).parent / "run.py"
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    with (folder / "log.txt").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, str(script), "one", str(folder), "--core", str(core), *options],
            stdout=log, stderr=subprocess.STDOUT, env=environment,
        )  # fmt: skip


def work(
    plan: Callable[[], list[Run]],
    start: Callable[[Run, int], subprocess.Popen[bytes]],
    cores: Sequence[int],
    out: Path,
) -> list[str]:
    """Run what ``plan`` still needs; returns the folders of the runs that failed.

    Args:
        plan: asked again whenever a core is free, so that finished runs can ask for others.
        start: starts a run on a core.
        cores: one run at a time on each.
        out: where the folders of the runs are.
    """
    children: list[_Child] = []
    given_up: set[str] = set()
    failed: list[str] = []
    try:
        while True:
            needed = [r for r in plan() if r.digest not in given_up]
            busy = {c.core for c in children}
            under_way = {c.run.digest for c in children}
            waiting = [r for r in needed if r.digest not in under_way]
            for core, run in zip([c for c in cores if c not in busy], waiting, strict=False):
                print(f"core {core}: {run.folder} ({len(waiting)} to start)", flush=True)
                children.append(_Child(run, core, start(run, core)))
            if not children:
                return failed
            for child in _ended(children):
                children.remove(child)
                status = child.process.returncode
                if status:
                    given_up.add(child.run.digest)
                    failed.append(child.run.folder)
                    print(_why(out / child.run.folder, status), flush=True)
    finally:
        for child in children:
            child.process.terminate()
        for child in children:
            child.process.wait()


def _ended(children: Sequence[_Child]) -> list[_Child]:
    """Children that ended; waits for the first."""
    while True:
        ended = [c for c in children if c.process.poll() is not None]
        if ended:
            return ended
        time.sleep(WAIT_S)


def _why(folder: Path, status: int) -> str:
    if status == BUSY:
        return f"{folder.name}: another process is at it"
    lines = (folder / "log.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    return f"{folder.name} failed ({status}): " + "\n  ".join(lines[-5:])
