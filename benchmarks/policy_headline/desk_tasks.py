"""Service-desk tasks that need T turns: drawn as the environment draws them, kept if a perfect agent takes T.

The perfect agent asks for everything that is missing in one question and makes one call a turn, so T is the
length of the shortest right dialogue with single calls. Long ones are compound tasks (two requests).
"""

import functools
import json
import random
from pathlib import Path

from axiomrm.data.trajectory import Task
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.envs.service_desk import Expert, ServiceDesk, Style, sample_task
from axiomrm.policy_opt.envs.service_desk.tasks import COMPOUND, Split

FIRST = 10_000_000
"""First task seed; the pipeline's own tasks lie below."""
BANDS = {16: (14, 16)}
"""Horizons that hold more than one length, because one alone is too rare."""
COMPOUND_FROM = 10
MOST = 400_000
"""Tasks looked at before a horizon is given up."""


def required_turns(task: Task) -> int:
    """Turns of the perfect agent."""
    env = ServiceDesk(turn_limit=60)
    expert = Expert(random.Random(0), Style(batched=True))
    _, info = env.reset(task=task)
    turns, ended = 0, False
    while not ended:
        _, _, terminated, truncated, info = env.step(expert.act((), info))
        turns, ended = turns + 1, terminated or truncated
    env.close()
    return turns


def desk_tasks(split: Split, count: int, horizon: int, folder: Path) -> list[Task]:
    """The first ``count`` tasks of a split that need ``horizon`` turns; found once, kept in ``folder``."""
    low, high = BANDS.get(horizon, (horizon, horizon))
    kind = COMPOUND if low >= COMPOUND_FROM else None
    kept = folder / f"{split}-T{horizon}-{count}.json"
    if kept.exists():
        return [sample_task(split, seed, kind) for seed in json.loads(kept.read_text(encoding="utf-8"))]
    found: list[int] = []
    seed = FIRST
    while len(found) < count:
        if seed - FIRST >= MOST:
            raise ConfigError(
                f"{len(found)} of {MOST} {split} tasks need {low} to {high} turns; wanted {count}"
            )
        if low <= _required(split, seed, kind) <= high:
            found.append(seed)
        seed += 1
    with atomic_file(kept) as handle:
        json.dump(found, handle)
    return [sample_task(split, seed, kind) for seed in found]


@functools.cache
def _required(split: Split, seed: int, kind: str | None) -> int:
    return required_turns(sample_task(split, seed, kind))
