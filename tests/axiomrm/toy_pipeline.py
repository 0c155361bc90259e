"""A pipeline of three small stages that resume from their own files, driven in a process that can be killed.

``python toy_pipeline.py RUNS_ROOT [--die-at-rename REGEX N]``: the second form ends the process with SIGKILL
just before the N-th rename whose target matches, that is, between writing a file and putting it in place.
"""

import json
import os
import random
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from axiomrm import manifest
from axiomrm.config import RunConfig
from axiomrm.data.writing import atomic_file
from axiomrm.runner import Stage, StageContext, run_pipeline

STEPS = 6


def make_numbers(context: StageContext) -> Mapping[str, Any]:
    """A stage without checkpoints: it starts over."""
    rng = random.Random(context.seed)
    numbers = [rng.random() for _ in range(STEPS)]
    with atomic_file(context.stage_dir / "numbers.json") as handle:
        json.dump(numbers, handle)
    return {"n": len(numbers)}


def accumulate(context: StageContext) -> Mapping[str, Any]:
    """A stage with a checkpoint every two steps; the state between them exists in memory only."""
    numbers = json.loads(context.artifact("numbers", "numbers.json").read_text())
    checkpoint = context.stage_dir / "checkpoint.json"
    state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "sum": 0.0}
    context.rewind_metrics(lambda row: row["step"] <= state["step"])
    while state["step"] < STEPS:
        context.kill_point("step")
        state = {"step": state["step"] + 1, "sum": state["sum"] * 0.5 + numbers[state["step"]]}
        context.log_metrics(state)
        context.progress("adding", int(state["step"]), STEPS)
        if state["step"] % 2 == 0:
            with atomic_file(checkpoint) as handle:
                handle.write(json.dumps(state)[:10])
                handle.flush()
                context.kill_point("half_a_checkpoint")
                handle.write(json.dumps(state)[10:])
    return {"sum": state["sum"], "rows": len(context.logged_metrics()), "missing": float("nan")}


def conclude(context: StageContext) -> Mapping[str, Any]:
    """A stage that reads an earlier one's metrics."""
    before = context.metrics_of("accumulate") or {}
    return {"doubled": 2 * before["sum"], "rows": before["rows"]}


STAGES = [Stage("numbers", make_numbers), Stage("accumulate", accumulate), Stage("conclude", conclude)]


def config(**changes: Any) -> RunConfig:
    """The toy's configuration."""
    return RunConfig.model_validate({"name": "toy", "seed": 3, **changes})


def die_at_rename(pattern: str, number: int) -> None:
    """Arm the trap for the rest of this process."""
    seen = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "os.rename" and re.search(pattern, str(arguments[1])):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def pin_code() -> None:
    """Toy runs are about the runner: an edit of the package while a test runs must not end them."""
    manifest.code_hash = lambda: "pinned"


if __name__ == "__main__":
    pin_code()
    if len(sys.argv) > 2:
        die_at_rename(sys.argv[3], int(sys.argv[4]))
    run_pipeline(STAGES, config(), Path(sys.argv[1]))
