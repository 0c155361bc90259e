"""Rollouts of the cold-started policy, labelled by the environment's oracle, for judges to learn from.

Scripted agents slip in other ways than a small model does, so a judge that has read them alone ranks the
model's own turns poorly. The rollouts stand in ``on_policy.jsonl`` in the folder of the first stage that asks
for them, in the format of ``judge_train.jsonl``. The file is put in place whole after every wave of tasks and
each draw is keyed by task, rollout and turn, so a killed run goes on after the last wave to the same file.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from axiomrm.data.environment import TurnEnv
from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.synthesis.judge_examples import dense, turn_examples
from axiomrm.data.synthesis.rollouts import oracle_view, successful
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.writing import write_trajectories
from axiomrm.errors import ConfigError, DataError
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk
from axiomrm.policy_opt.envs.service_desk.criteria import ASK
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.rollouts.rollout import RolloutRequest, collect, group_requests
from axiomrm.stage_context import StageContext
from axiomrm.stages.judging import TAGS
from axiomrm.stages.world import load_model, tasks

FILE = "on_policy.jsonl"
GROUP = 4
"""Rollouts a task; what differs between them is what the judge has to tell apart."""
WAVE = 32
"""Tasks between two writes of the file."""


def examples(ctx: StageContext, per_criterion: int, rng: random.Random) -> list[JudgeExample]:
    """Balanced examples from the policy's dialogues; none where ``rm.on_policy_tasks`` is 0."""
    found = dense(turn_examples(rollouts(ctx), ASK, TAGS), per_criterion, rng)
    return [replace(example, source="on_policy") for example in found]


def rollouts(ctx: StageContext, env_factory: Callable[[], TurnEnv] = ServiceDesk) -> list[Trajectory]:
    """The dialogues, rolled where no stage has done so.

    Raises:
        ConfigError: the environment labels no turn.
        DataError: the file holds something else.
    """
    count = ctx.config.rm.on_policy_tasks
    if not count:
        return []
    path = _file(ctx)
    requests = group_requests(tasks("train", "on_policy", count, ctx.seed), GROUP, "on_policy")
    done = _read(path)
    if [t.id for t in done] != [f"{r.group_id}#{r.rollout}" for r in requests[: len(done)]]:
        raise DataError(f"{path}: holds other rollouts than this run's; delete it to roll them again")
    if len(done) < len(requests):
        _roll(ctx, path, done, requests, env_factory)
        done = _read(path)
    return done


def labelled(trajectory: Trajectory) -> Trajectory:
    """A rollout of ``collect`` with the oracle's view in its metadata, as scripted rollouts have it."""
    told = trajectory.metadata
    # A turn that the environment never saw has an info without labels, an action that never became a
    # message has an info without a turn.
    view = oracle_view(told["turns"][: len(trajectory.turns)])
    kept = {"agent": "cold_start", "ending": told["ending"]}
    return trajectory.model_copy(update={"metadata": view | kept})


def summary(ctx: StageContext) -> dict[str, Any]:
    """How many rollouts there are and how many succeeded; empty where there are none."""
    found = rollouts(ctx)
    return (
        {"on_policy": len(found), "on_policy_success": len(successful(found)) / len(found)} if found else {}
    )


def _file(ctx: StageContext) -> Path:
    made = [ctx.run_dir / stage / FILE for stage in ctx.finished]
    return next((path for path in made if path.exists()), ctx.stage_dir / FILE)


def _read(path: Path) -> list[Trajectory]:
    if not path.exists():
        return []
    found = Trajectory.read(path)
    trajectories = list(found)
    if found.rejected:
        raise DataError(f"{found.rejected[0]}; delete {path} to roll it again")
    return trajectories


def _roll(
    ctx: StageContext,
    path: Path,
    done: list[Trajectory],
    requests: Sequence[RolloutRequest],
    env_factory: Callable[[], TurnEnv],
) -> None:
    model, tokenizer = load_model(ctx.artifact("cold_start", "policy"))
    settings = ctx.config.policy.train.rollout
    chat = TemplateChat(tokenizer)
    sampler = TransformersSampler(model, chat.end_ids, temperature=settings.temperature)
    done = list(done)
    while len(done) < len(requests):
        wave = requests[len(done) : len(done) + WAVE * GROUP]
        episodes = collect(sampler, chat, env_factory, wave, limits=settings.limits(), seed=ctx.seed)
        done += [labelled(episode.trajectory) for episode in episodes]
        if not any(labels for t in done for labels in t.metadata["labels"]):
            raise ConfigError(
                f"rm.on_policy_tasks {ctx.config.rm.on_policy_tasks}: {env_factory().__class__.__name__} "
                "labels no turn (info 'labels'); set it to 0, or use an environment with an oracle"
            )
        write_trajectories(path, done)
        ctx.progress("rollouts of the policy", len(done), len(requests))
        ctx.kill_point("on_policy")
