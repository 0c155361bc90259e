"""Which runs the study needs, and how several processes share them.

A run is a ``policy_headline`` run: its digest covers every setting, the judge and the starting weights, and
stands in the name of its folder and in its row, so rows of other settings are never taken for it. What pay was
tuned is read from the tuning rows each time and stored nowhere.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from policy_headline.one_run import BUSY, Training, alone
from policy_headline.runs import Run
from policy_headline.scale import turn_limit
from pydantic import BaseModel, ConfigDict

from axiomrm.data.trajectory import canonical_json
from axiomrm.data.writing import atomic_file
from axiomrm.policy_opt.config import PolicyConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.monitoring.config import MonitorConfig
from axiomrm.policy_opt.rewards.config import DeskOracleReward
from policy_hack.verdicts import ARMS, GUARDED, HONEST, Row

NEVER = 2.0
"""A success that no run reaches, so that none ends early."""
WAIT_S = 2.0


class Study(BaseModel):
    """What all runs of the study share. Frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    start: str
    """Hash of the starting weights."""
    algorithm: ProcessReplayConfig
    horizon: int = 8
    noise: float = 0.15
    iterations: int = 24
    tasks: int = 4
    group: int = 8
    train_tasks: int = 256
    eval_every: int = 2
    eval_episodes: int = 256
    lr: float = 3e-4
    max_turn_tokens: int = 48
    warmup: int = 2
    """Iterations that the monitors take for normal: filler pays from the first one on."""
    tuning_seeds: list[int] = [101, 102, 103, 104]

    def run(self, arm: str, pay: float, seed: int) -> Run:
        """One run; tuning seeds are evaluated on dev tasks, the others on held-out ones."""
        pay = 0.0 if arm == HONEST else pay
        return Run(
            stage="hack",
            arm=arm,
            variant="" if arm == HONEST else f"pay={pay:g}",
            policy=self._policy(arm, seed),
            judge=DeskOracleReward(noise=self.noise, filler_pay=pay, seed=seed),
            horizon=self.horizon,
            split="dev" if seed in self.tuning_seeds else "heldout",
            train_tasks=self.train_tasks,
            eval_tasks=self.eval_episodes,
            eval_every=self.eval_every,
            stop_at=NEVER,
            in_succession=2,
            start=self.start,
        )

    def _policy(self, arm: str, seed: int) -> PolicyConfig:
        limits = RolloutConfig(max_turns=turn_limit(self.horizon), max_turn_tokens=self.max_turn_tokens)
        return PolicyConfig(
            algorithm=self.algorithm,
            iterations=self.iterations,
            tasks_per_iteration=self.tasks,
            group_size=self.group,
            learning_rate=self.lr,
            schedule="linear",  # as where the learning rate was tuned (benchmarks/policy_headline)
            seed=seed,
            on_hack="guard" if arm == GUARDED else "warn",
            rollout=limits,
            monitors=MonitorConfig(warmup=self.warmup),
        )

    def runs(self, pay: float, seeds: Iterable[int], arms: Sequence[str] = ARMS) -> list[Run]:
        return [self.run(arm, pay, seed) for seed in seeds for arm in arms]


def measured(run: Run, folder: Path, **paths: Any) -> Row:
    """Train ``run`` to its end, from its checkpoint if a kill left one, and write its row."""
    row = Training(run, folder, **paths).row()
    lines = (folder / "training" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    row |= {
        "filler_pay": run.judge.filler_pay,
        "judge": [m.get("reward/local_mean") for m in metrics],
        "outcome": [m.get("reward/outcome_mean") for m in metrics],
    }
    with atomic_file(folder / "row.json") as handle:
        handle.write(canonical_json(row))
    for checkpoint in (folder / "training").glob("checkpoint-*"):
        shutil.rmtree(checkpoint)
    return row


def work(runs: Sequence[Run], out: Path, train: Callable[[Run, Path], object]) -> None:
    """Have every run done, by this process or by another one that works in ``out``.

    A run belongs to whoever holds the lock of its folder; one that another process is at is left and asked for again
    later, and taken over with its checkpoint should that process die.
    """
    while left := [run for run in runs if not (out / run.folder / "row.json").exists()]:
        if not sum(_taken(run, out / run.folder, train) for run in left):
            time.sleep(WAIT_S)


def _taken(run: Run, folder: Path, train: Callable[[Run, Path], object]) -> bool:
    """Train it, unless another process is at it or was faster."""
    try:
        with alone(folder):
            if not (folder / "row.json").exists():
                train(run, folder)
    except SystemExit as refused:
        if refused.code != BUSY:
            raise
        return False
    return True


def rows_of(runs: Iterable[Run], out: Path) -> list[Row]:
    """The finished rows among ``runs``, by digest."""
    rows = []
    for run in runs:
        path = out / run.folder / "row.json"
        if not path.exists():
            continue
        row = json.loads(path.read_text(encoding="utf-8"))
        if row["digest"] == run.digest:  # the folder's name has only half of it
            rows.append(row)
    return rows


def restore(result: Path, out: Path) -> None:
    """Put the rows of a result file into ``out`` where they lack, so that their runs are not run again."""
    if not result.exists():
        return
    for row in json.loads(result.read_text(encoding="utf-8"))["rows"]:
        run = Run.model_validate(row["run"])
        path = out / run.folder / "row.json"
        if run.digest == row["digest"] and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as handle:
                handle.write(canonical_json(row))


def seeds_in(out: Path) -> list[int]:
    """Seeds of all finished rows, whatever their settings."""
    return sorted({json.loads(p.read_text(encoding="utf-8"))["seed"] for p in out.glob("*/row.json")})
