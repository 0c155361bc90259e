"""Two processes that judge overlapping files with one model and one cache, at the same time.

    python two_judges.py MODEL RUBRIC CACHE LOGS_A OUT_A LOGS_B OUT_B

Both are forks of this process, which has imported everything; they open model and cache themselves and start
together. Prints a JSON object with the readings found and asked for by each.
"""

import json
import os
import sys
from importlib import import_module

from axiomrm.rm.cache import with_cache
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import score_file

import_module("axiomrm.rm.engines.transformers")
import_module("axiomrm.rm.cache_sql")


def judge(words: list[str], logs: str, out: str, ready: int, go: int) -> dict[str, int]:
    """What one process does; it says when it is ready and waits for the other."""
    model = with_cache(RewardModel.from_pretrained(words[0], mode="critique", max_notes_tokens=4), words[2])
    rubric = Rubric.load(words[1])
    os.write(ready, b"r")
    os.read(go, 1)

    score_file(logs, rubric, model, out)
    return {name: n for name, n in model.usage.items() if name.startswith("cache")}


def main(words: list[str]) -> None:
    """Fork, start both, collect."""
    ready_r, ready_w = os.pipe()
    go_r, go_w = os.pipe()
    children = []
    for logs, out in (words[3:5], words[5:7]):
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            found = judge(words, logs, out, ready_w, go_r)
            os.write(write, json.dumps(found).encode())
            os._exit(0)
        os.close(write)
        children.append((child, read))
    os.close(ready_w)
    for _ in children:
        os.read(ready_r, 1)
    os.write(go_w, b"gg")
    told = []
    for child, read in children:
        with os.fdopen(read) as pipe:
            told.append(json.loads(pipe.read()))
        assert os.waitpid(child, 0)[1] == 0
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1:])
