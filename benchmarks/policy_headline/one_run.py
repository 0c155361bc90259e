"""One run from its specification to its row; a killed one goes on from its trainer's checkpoint."""

import fcntl
import functools
import json
import math
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from axiomrm.data.trajectory import Task, canonical_json
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk
from axiomrm.policy_opt.envs.service_desk.tasks import HELDOUT_KIND
from axiomrm.policy_opt.reward_build import build_reward
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.trainer import PolicyTrainer
from axiomrm.rm import RewardModel
from axiomrm.stages.judging import judge_of
from axiomrm.stages.policy import success
from axiomrm.stages.world import load_model
from policy_headline.desk_tasks import desk_tasks
from policy_headline.runs import Row, Run
from policy_headline.scale import turn_limit

EVAL_SEED = 0
BUSY = 75
"""Exit status of a run that another process is at."""


class _Enough(Exception):
    """Success has stayed high: the run is over."""


class Training:
    """A run in its folder."""

    def __init__(self, run: Run, folder: Path, start: Path, judge: Path | None, tasks: Path) -> None:
        self.run, self.folder, self.judge = run, folder, judge
        torch.manual_seed(run.policy.seed)
        self.model, tokenizer = load_model(start)
        self.chat = TemplateChat(tokenizer)
        self.env = functools.partial(ServiceDesk, turn_limit(run.horizon))
        self.train: list[Task] = desk_tasks("train", run.train_tasks, run.horizon, tasks)
        self.held: list[Task] = desk_tasks(run.split, run.eval_tasks, run.horizon, tasks)
        self.curve: list[dict[str, Any]] = []
        if self._curve_file.exists():
            self.curve = json.loads(self._curve_file.read_text(encoding="utf-8"))

    @property
    def _curve_file(self) -> Path:
        return self.folder / "curve.json"

    def row(self) -> Row:
        """Train to the end or until success stays high."""
        if not self.curve:
            self._measure(0)
        trainer = PolicyTrainer(
            self.model, self.chat, self.env, self.train, self.run.policy, self.folder / "training",
            turn_judge=build_reward(self.run.judge, self._judge), on_iteration=self._after,
        )  # fmt: skip
        with suppress(_Enough):
            trainer.run()
        return self._summary()

    def _judge(self, name: str) -> RewardModel:
        if self.judge is None:
            raise ConfigError(f"run {self.folder.name}: judge {name!r} is asked for; pass --judge FOLDER")
        return judge_of(self.judge)

    def _after(self, iteration: int, row: dict[str, float], episodes: list[Episode]) -> None:
        done, last = iteration + 1, self.run.policy.iterations
        print(f"{done}/{last}: outcome {row['reward/outcome_mean']:.2f}", flush=True)
        if done % self.run.eval_every and done != last:
            return
        self._measure(done)
        tail = [p["success"] for p in self.curve[-self.run.in_succession :]]
        if len(tail) == self.run.in_succession and all(s is not None and s >= self.run.stop_at for s in tail):
            raise _Enough

    def _measure(self, done: int) -> None:
        """Success now, on kinds that training has, and what was spent on it; replaces a point of an earlier attempt."""
        started = time.perf_counter()
        episodes = self._evaluate()
        seconds = time.perf_counter() - started
        rows = self._rows()[:done]
        per_iteration = self.run.policy.tasks_per_iteration * self.run.policy.group_size
        point = {
            "iteration": done,
            "rollouts": done * per_iteration,
            "success": success(of_training_kinds(episodes)),
            "solved": solved_by_type(episodes),
            "turns": sum(r["rollout/turns"] * r["rollout/episodes"] for r in rows),
            "updates": sum(r["policy/updates"] for r in rows),
            "seconds": sum(v for r in rows for k, v in r.items() if k.startswith("time/")),
            "kl": rows[-1].get("kl/k3_fresh_nats_per_token") if rows else 0.0,
            "eval_seconds": seconds,
        }
        self.curve = [p for p in self.curve if p["iteration"] < done] + [point]
        with atomic_file(self._curve_file) as handle:
            json.dump(self.curve, handle)

    def _evaluate(self) -> list[Episode]:
        settings = self.run.policy.rollout
        sampler = TransformersSampler(self.model, self.chat.end_ids, temperature=settings.temperature)
        requests = group_requests(self.held, 1, "eval")
        return collect(sampler, self.chat, self.env, requests, limits=settings.limits(), seed=EVAL_SEED)

    def _rows(self) -> list[dict[str, Any]]:
        path = self.folder / "training" / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def _summary(self) -> Row:
        rows, run = self._rows(), self.run
        alarms: dict[str, int] = {}
        for row in rows:
            for key in (k for k in row if k.startswith("monitor/")):
                alarms.setdefault(key.removeprefix("monitor/"), int(row["iteration"]) + 1)
        return {
            "digest": run.digest,
            "stage": run.stage,
            "arm": run.arm,
            "variant": run.variant,
            "learning_rate": run.policy.learning_rate,
            "seed": run.policy.seed,
            "horizon": run.horizon,
            "split": run.split,
            "budget": run.budget,
            "iterations": len(rows),
            "stopped_early": len(rows) < run.policy.iterations,
            "curve": self.curve,
            "alarms": alarms,
            "run": run.model_dump(mode="json"),
            "commit": commit(),
        }


def of_training_kinds(episodes: Sequence[Episode]) -> list[Episode]:
    """Those whose kind of task training has too; the others are counted in ``solved_by_type`` alone."""
    return [episode for episode in episodes if episode.record.task_type != HELDOUT_KIND]


def solved_by_type(episodes: Sequence[Episode]) -> dict[str, list[int]]:
    """Task type to how many episodes were solved, and of how many whose outcome is known."""
    found: dict[str, list[int]] = {}
    for record in (e.record for e in episodes if not math.isnan(e.record.outcome)):
        pair = found.setdefault(record.task_type, [0, 0])
        pair[0] += record.outcome >= 1
        pair[1] += 1
    return dict(sorted(found.items()))


def finish(run: Run, folder: Path, results: Path, **paths: Any) -> Row:
    """The row of ``run``, from disk if it is there, appended to ``results`` once."""
    done = folder / "row.json"
    if done.exists():
        row: Row = json.loads(done.read_text(encoding="utf-8"))
    else:
        row = Training(run, folder, **paths).row()
        with atomic_file(done) as handle:
            handle.write(canonical_json(row))
    for checkpoint in (folder / "training").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    append(results / f"{run.stage}.jsonl", row)
    return row


def append(path: Path, row: Row) -> None:
    """One line, in one write, under a lock, unless a row of that digest is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        text = handle.read()
        if f'"{row["digest"]}"'.encode() in text:
            return
        start = b"" if not text or text.endswith(b"\n") else b"\n"
        handle.write(start + canonical_json(row).encode() + b"\n")
        handle.flush()
        os.fsync(handle.fileno())


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the run's folder.

    Raises:
        SystemExit: with `BUSY`, another process holds it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(BUSY) from None
        yield


def commit() -> str:
    """The commit that is checked out; empty outside a repository."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
    )
    return found.stdout.strip()
