"""Stage ``synthesize``: tasks, demonstrations that succeed, erring rollouts with oracle labels."""

import random
import re
from collections.abc import Iterable, Sequence
from typing import Any

from axiomrm.config import SynthesizeConfig
from axiomrm.data.synthesis.rollouts import roll_many, successful
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.writing import write_trajectories
from axiomrm.errors import DataError
from axiomrm.policy_opt.envs.service_desk import ServiceDesk
from axiomrm.policy_opt.envs.service_desk.style import styled_rollouts
from axiomrm.policy_opt.envs.service_desk.tasks import Split
from axiomrm.policy_opt.envs.service_desk.words import CITIES, ITEMS, NAMES
from axiomrm.stage_context import Metrics, StageContext
from axiomrm.stages.world import expert_for, flawed_for, tasks

_VALUES = re.compile(r"\b[A-Za-z]-?\d\d\b|\d+|\b(?:" + "|".join((*NAMES, *CITIES, *ITEMS)) + r")\b")
FLAW_RATES = (0.25, 0.55)
FAULT_SENTENCES = 0.3
"""Chance of each kind of fault sentence, and of a wrong name, in a text of the second agent on training
tasks: they are rare otherwise, and every further label of a dialogue that is read anyway is cheap."""


def masked(trajectory: Trajectory) -> str:
    """The dialogue with ids, names, places, things and numbers replaced by one mark."""
    lines = [
        f"{m.role} {m.content} {[(c.name, c.arguments) for c in m.tool_calls]}" for m in trajectory.messages
    ]
    return _VALUES.sub("#", "\n".join(lines))


def user_wordings(trajectories: Iterable[Trajectory]) -> set[str]:
    """Masked first messages of users."""
    return {_VALUES.sub("#", next(m.content for m in t.messages if m.role == "user")) for t in trajectories}


def run(ctx: StageContext) -> Metrics:
    """Write ``demos_*`` (successful), ``judge_*`` (labelled), ``styles_*`` (for pairs)."""
    sizes = ctx.config.synthesize
    metrics: dict[str, Any] = {}
    demos = {
        "train": demonstrations("train", sizes.demos, sizes, ctx.seed),
        "dev": demonstrations("dev", sizes.dev_demos, sizes, ctx.seed),
    }
    judged = {
        "train": _judged("train", sizes.train_tasks, ctx.seed),
        "dev": _judged("dev", sizes.dev_tasks, ctx.seed),
        "heldout": _judged("heldout", sizes.heldout_tasks, ctx.seed),
    }
    styles = {split: _styles(split, sizes.style_tasks, ctx.seed) for split in ("train", "heldout")}
    for name, groups in (("demos", demos), ("judge", judged), ("styles", styles)):
        for split, found in groups.items():
            write_trajectories(ctx.stage_dir / f"{name}_{split}.jsonl", found)
            metrics[f"{name}_{split}"] = len(found)
    rollouts = judged["train"]
    metrics["success_share_of_erring_agents"] = len(successful(rollouts)) / len(rollouts)
    metrics["distinct_masked"] = _check_distinct([*rollouts, *demos["train"]], sizes.min_distinct)
    metrics["heldout_wordings_seen"] = len(user_wordings(judged["heldout"]) & user_wordings(rollouts))
    if metrics["heldout_wordings_seen"]:
        raise DataError(f"{metrics['heldout_wordings_seen']} held-out wordings occur in the train split")
    return metrics


def demonstrations(split: Split, count: int, sizes: SynthesizeConfig, seed: int) -> list[Trajectory]:
    """The successful ones of ``count`` dialogues, of which a share is by an agent that slips."""
    drawn, flawed = tasks(split, "demos", count, seed), round(count * sizes.flawed_demos)
    found = roll_many(ServiceDesk, flawed_for(sizes.demo_flaw_rate, salt=2), drawn[:flawed], "flawed")
    found += roll_many(ServiceDesk, expert_for, drawn[flawed:], "expert")
    return successful(found)


def _judged(split: Split, count: int, seed: int) -> list[Trajectory]:
    found: list[Trajectory] = []
    drawn = tasks(split, "judge", count, seed)
    for i, rate in enumerate(FLAW_RATES):
        build = flawed_for(rate, i, FAULT_SENTENCES if i and split == "train" else 0.0)
        found += roll_many(ServiceDesk, build, drawn[i :: len(FLAW_RATES)], f"flawed{i}")
    return found


def _styles(split: Split, count: int, seed: int) -> list[Trajectory]:
    rng = random.Random(f"styles/{split}/{seed}")
    return styled_rollouts(tasks(split, "eval", count, seed + 500), rng)


def _check_distinct(trajectories: Sequence[Trajectory], least: int) -> int:
    distinct = len({masked(t) for t in trajectories})
    if distinct < least:
        raise DataError(f"{distinct} distinct dialogues after masking, synthesize.min_distinct is {least}")
    return distinct
