"""Stage ``policy``: arms train from one cold start on the same tasks; dev success at a fixed cadence."""

import functools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from axiomrm.config import RunConfig
from axiomrm.data.trajectory import Task
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError, DataError
from axiomrm.policy_opt.algorithms.base import Algorithm
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.engines.options import check_engine
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk
from axiomrm.policy_opt.monitoring.kept_rollouts import write_rollouts
from axiomrm.policy_opt.monitoring.spot_checks import write_spot_checks
from axiomrm.policy_opt.monitoring.told_advantages import told_advantages
from axiomrm.policy_opt.monitoring.trackers import Tracker, check_tracker, open_tracker
from axiomrm.policy_opt.reward_build import JudgeFor, build_reward, check_reward
from axiomrm.policy_opt.rewards.base import Episode, TurnJudge
from axiomrm.policy_opt.rewards.config import TRAINED, RewardConfig, VerifierReward
from axiomrm.policy_opt.rewards.heldout import HeldOutCriteria
from axiomrm.policy_opt.rewards.personal import read_profiles
from axiomrm.policy_opt.rewards.users import for_users
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.trainer import PolicyTrainer
from axiomrm.rm import RewardModel
from axiomrm.stage_context import Metrics, StageContext
from axiomrm.stages.judging import judge_of
from axiomrm.stages.world import load_model, save_model, tasks

MAIN = "train"
TRAIN_TASKS = 512
RUBRIC = "service_desk_steps"


def arms(config: RunConfig) -> dict[str, PolicyConfig]:
    """Name → settings; the main arm first."""
    return {MAIN: config.policy.train, **config.policy.arms}


def evaluate(
    model: Any, chat: TemplateChat, drawn: Sequence[Task], settings: PolicyConfig, seed: int
) -> list[Episode]:
    """One sampled episode a task, at the training temperature."""
    sampler = TransformersSampler(model, chat.end_ids, temperature=settings.rollout.temperature)
    requests = group_requests(drawn, 1, "eval")
    return collect(sampler, chat, ServiceDesk, requests, limits=settings.rollout.limits(), seed=seed)


def success(episodes: Sequence[Episode]) -> float | None:
    """Share of episodes with outcome 1 among those that have one."""
    known = [e.record.outcome for e in episodes if e.record.outcome == e.record.outcome]
    return sum(o >= 1 for o in known) / len(known) if known else None


def check(config: RunConfig) -> None:
    """Whether the engines of all arms can start with their options, reward sources have their files and
    judges, and the tracker is installed.

    Raises:
        ConfigError: names the key, what is wrong there and the remedy.
    """
    for key, reward in (("reward", config.policy.reward), ("heldout", config.policy.heldout)):
        try:
            check_reward(reward or VerifierReward())
        except (DataError, ConfigError) as error:
            raise ConfigError(f"policy.{key}: {error}") from error
    for name, settings in arms(config).items():
        arm = "policy.train" if name == MAIN else f"policy.arms.{name}"
        check_engine(settings.rollout.engine, f"{arm}.rollout.engine")
    try:
        check_tracker(config.policy.tracker)
    except ConfigError as error:
        raise ConfigError(f"policy.tracker: {error}") from error


def run(ctx: StageContext) -> Metrics:
    """Write ``<arm>/policy/`` and ``<arm>/curve.json`` for each arm."""

    @functools.cache  # loaded when first asked for, and once for all arms
    def judge_for(name: str) -> RewardModel:
        if name == TRAINED:
            return judge_of(ctx.artifact("rm_personal", "judge/final"))
        return RewardModel.from_pretrained(name)

    metrics: dict[str, Any] = {}
    for name, settings in arms(ctx.config).items():
        metrics[name] = _train_arm(ctx, name, settings, judge_for)
    return metrics


def source(config: RewardConfig | None, judge_for: JudgeFor) -> TurnJudge | None:
    """The reward source of a configuration; ``None``: the verifier's outcome alone."""
    if config is None or isinstance(config, VerifierReward):
        return None
    return build_reward(config, judge_for)


class _Arm:
    """One arm in training: its model, its folder and its dev curve."""

    def __init__(self, ctx: StageContext, name: str, settings: PolicyConfig) -> None:
        self.ctx, self.name, self.folder = ctx, name, ctx.stage_dir / name
        self.settings = settings.model_copy(update={"seed": ctx.seed})
        self.model, self.tokenizer = load_model(ctx.artifact("cold_start", "policy"))
        self.chat = TemplateChat(self.tokenizer)
        self.dev = tasks("dev", "eval", ctx.config.policy.eval_episodes, ctx.seed)
        self.curve = _Curve(self.folder / "curve.json")

    def trainer(self, judge_for: JudgeFor, tracker: Tracker | None) -> PolicyTrainer:
        """The arm's trainer, which reports here after each iteration."""
        config, seed = self.ctx.config.policy, self.ctx.seed
        heldout = source(config.heldout, judge_for)
        trainer = PolicyTrainer(
            self.model,
            self.chat,
            ServiceDesk,
            self._tasks(),
            self.settings,
            self.folder / "training",
            turn_judge=source(config.reward, judge_for),
            on_iteration=lambda *told: self._after(trainer.algorithm, *told),
            heldout=HeldOutCriteria(heldout, self.settings.monitors.heldout_share, seed) if heldout else None,
            tracker=tracker,
        )
        return trainer

    def _tasks(self) -> list[Task]:
        """The training tasks; with personal rewards each is one of their users'."""
        files = set(self.ctx.config.profile_paths().values())
        tokens = {token for path in files for token in read_profiles(path)[0]}
        return for_users(tasks("train", "policy", TRAIN_TASKS, self.ctx.seed), tokens)

    def measure(self, done: int) -> None:
        """Dev success after ``done`` iterations."""
        found = success(evaluate(self.model, self.chat, self.dev, self.settings, self.ctx.seed))
        self.curve.add(done, done * self.settings.tasks_per_iteration * self.settings.group_size, found)

    def _after(
        self, algorithm: Algorithm, iteration: int, row: dict[str, float], episodes: list[Episode]
    ) -> None:
        done, planned = iteration + 1, self.settings.iterations
        told = f"{self.name}: rollout success {row.get('reward/outcome_mean', math.nan):.2f}"
        self.ctx.progress(told, done, planned)
        advantages = told_advantages(algorithm, [episode.record for episode in episodes])
        write_spot_checks(self.folder / "spot_checks.jsonl", iteration, episodes, advantages)
        if self.ctx.config.policy.keep_rollouts:
            write_rollouts(self.folder / "rollouts.jsonl", iteration, episodes)
        if done % self.ctx.config.policy.eval_every == 0 or done == planned:
            self.measure(done)
        self.ctx.kill_point(f"{self.name}_iteration")


def _train_arm(ctx: StageContext, name: str, settings: PolicyConfig, judge_for: JudgeFor) -> dict[str, Any]:
    finished = ctx.stage_dir / name / "finished.json"
    if finished.exists():
        found: dict[str, Any] = json.loads(finished.read_text(encoding="utf-8"))
        return found
    arm = _Arm(ctx, name, settings)
    if not arm.curve.has(0):
        arm.measure(0)
    shown = arm.settings.model_dump(mode="json")
    tracker = open_tracker(ctx.config.policy.tracker, arm.folder, f"{ctx.config.name}-{name}", shown)
    try:
        rows = arm.trainer(judge_for, tracker).run()
    finally:
        if tracker is not None:
            tracker.close()
    save_model(arm.model, arm.tokenizer, arm.folder / "policy")
    summary = _summary(arm.settings, arm.curve, rows)
    with atomic_file(finished) as handle:
        json.dump(summary, handle)
    return summary


def _summary(settings: PolicyConfig, curve: "_Curve", rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    return {
        "curve": curve.points,
        "rollouts": settings.iterations * settings.tasks_per_iteration * settings.group_size,
        "seconds": sum(value for row in rows for key, value in row.items() if key.startswith("time/")),
        "last": dict(rows[-1]),
    }


class _Curve:
    """Dev success by iteration, one file, each point written once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points: list[dict[str, Any]] = (
            json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        )

    def has(self, iteration: int) -> bool:
        """Whether that point is there."""
        return any(p["iteration"] == iteration for p in self.points)

    def add(self, iteration: int, rollouts: int, value: float | None) -> None:
        """Write a point; one of an earlier attempt is replaced."""
        self.points = [p for p in self.points if p["iteration"] < iteration]
        self.points.append({"iteration": iteration, "rollouts": rollouts, "success": value})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(self.path) as handle:
            json.dump(self.points, handle)
