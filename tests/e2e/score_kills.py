"""``score_file`` in processes that die by SIGKILL at chosen lines of the scoring modules.

    python score_kills.py LOGS RUBRIC TARGET SEED KILLS [MODEL CACHE]

Prints one JSON object: how many lines a run executes, and where it was killed. Each run is a fork of this
process, which has imported everything once. The last run is not killed.
"""

import json
import os
import random
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import score_file

TRACED = ("score_file.py", "score_partial.py", "writing.py", "cache.py", "cache_sql.py")


class Trap:
    """Counts the lines of the traced modules, and kills the process before the N-th."""

    def __init__(self, at: int | None) -> None:
        self.at, self.lines, self.place = at, 0, ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> "Trap | None":
        if Path(frame.f_code.co_filename).name not in TRACED:
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def run(arguments: list[str], target: Path, at: int | None) -> tuple[int, int]:
    """Lines executed (0 if it died) and the signal that ended a fork which scores into ``target``."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        judge, rubric = judge_of(arguments[5:]), Rubric.load(arguments[1])
        trap = Trap(at)
        sys.settrace(trap)
        score_file(arguments[0], rubric, judge, target)
        sys.settrace(None)
        os.write(write, str(trap.lines).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        lines = int(pipe.read() or 0)
    return lines, os.WTERMSIG(os.waitpid(child, 0)[1])


def judge_of(words: list[str]) -> RewardModel:
    """The programmatic judge, or a model that writes notes, with a cache; both are opened in the fork."""
    if not words:
        return RewardModel.programmatic()
    from axiomrm.rm.cache import with_cache

    judge = RewardModel.from_pretrained(words[0], mode="critique", max_notes_tokens=4)
    return with_cache(judge, words[1])


def main(arguments: list[str]) -> None:
    """Kill ``KILLS`` runs one after the other, each going on from the last, then let one end."""
    target, rng = Path(arguments[2]), random.Random(int(arguments[3]))
    if arguments[5:]:  # imported once, before the forks; nothing computes here, so there are no threads yet
        import_module("axiomrm.rm.engines.transformers")
        import_module("axiomrm.rm.cache_sql")
    lines, _ = run(
        [*arguments[:5], *arguments[5:6], *([arguments[6] + ".straight"] if arguments[6:] else [])],
        target.with_name("straight.jsonl"),
        None,
    )
    died = []
    for kill in range(int(arguments[4])):
        # The first runs are killed early or anywhere, the later ones have less left to do.
        at = rng.randrange(1, max(2, lines // (1 + kill % 3)))
        _, ended = run(arguments, target, at)
        died.append([at, ended])
    _, ended = run(arguments, target, None)
    print(json.dumps({"lines": lines, "died": died, "last": ended}))


if __name__ == "__main__":
    main(sys.argv[1:])
