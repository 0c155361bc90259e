"""One training run by what determines it, and which runs a stage of the experiment still needs."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from axiomrm.data.trajectory import canonical_json
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.rewards.config import DeskOracleReward, RewardConfig, RubricJudgeReward
from policy_headline.choice import Choice, choose
from policy_headline.scale import GRPO, NO_REPLAY, OURS, SWEEPS, Scale

Row = dict[str, Any]
NAMES = ("stage", "arm", "variant")
"""Fields that name a run and do not change it."""
NEEDS = {
    "trained": (OURS,),
    "sweep-horizon": (OURS,),
    "sweep-noise": (OURS, NO_REPLAY),
    "sweep-hack": (OURS,),
    "sweep-dose": (OURS, "grpo_k"),
}
"""Arms without which a stage compares nothing; every sweep needs one of ``GRPO`` too."""


class Run(BaseModel):
    """Frozen. Two runs with one digest are the same run, whatever stage asks for it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    """``tune``, ``fresh``, ``trained`` or ``sweep-NAME``."""
    arm: str
    variant: str = ""
    """What a sweep changed, e.g. ``T=4``."""
    policy: PolicyConfig
    judge: RewardConfig
    horizon: int
    split: Literal["dev", "heldout"]
    train_tasks: int
    eval_tasks: int
    eval_every: int
    stop_at: float
    in_succession: int
    start: str
    """Hash of the starting weights."""

    @cached_property
    def digest(self) -> str:
        fields = {k: v for k, v in self.model_dump(mode="json").items() if k not in NAMES}
        return hashlib.sha256(canonical_json(fields).encode()).hexdigest()[:16]

    @property
    def folder(self) -> str:
        parts = [
            self.stage,
            self.arm,
            self.variant,
            f"lr{self.policy.learning_rate:g}",
            f"seed{self.policy.seed}",
        ]
        return "-".join([p.replace("=", "") for p in parts if p] + [self.digest[:8]])

    @property
    def budget(self) -> int:
        return self.policy.iterations * self.policy.tasks_per_iteration * self.policy.group_size


class Planner:
    """The runs of each stage, from the scale and the rows that exist."""

    def __init__(self, scale: Scale, start: str, judge: str | None = None) -> None:
        self.scale, self.start, self.judge = scale, start, judge

    def needed(
        self, stage: str, rows: Mapping[str, Sequence[Row]], arms: Collection[str] | None = None
    ) -> list[Run]:
        """Every run of ``stage``, done or not; for ``tune`` as far as the finished ones tell.

        Args:
            stage: its name.
            rows: finished rows by stage; stages after tuning read its choice there.
            arms: of ``fresh`` these alone, and no other needs to be tuned; default: all.

        Raises:
            ConfigError: the scale lacks an arm that the stage compares.
            SystemExit: an arm of the stage is not tuned yet.
        """
        self._check_arms(stage)
        if stage == "tune":
            return list(self.tuning(rows.get("tune", ())))
        compared = self._compared(stage, arms)
        rates = {arm: choice.rate for arm, choice in self.choices(rows.get("tune", ()), compared).items()}
        if stage == "fresh":
            return [self.run(stage, arm, rates[arm], s) for arm in compared for s in self.scale.seeds(arm)]
        if stage == "trained":
            return [self._trained(rates[OURS], seed) for seed in self.scale.fresh_seeds]
        return list(self._sweep(stage.removeprefix("sweep-"), rates, self.rival(rows.get("tune", ()))))

    def _compared(self, stage: str, arms: Collection[str] | None) -> list[str]:
        """The arms whose tuned rates the stage uses."""
        used = {*NEEDS[stage], *(GRPO if stage.startswith("sweep-") else ())} if stage in NEEDS else arms
        return [arm for arm in self.scale.arms if used is None or arm in used]

    def _check_arms(self, stage: str) -> None:
        lacking = [arm for arm in NEEDS.get(stage, ()) if arm not in self.scale.arms]
        if stage.startswith("sweep-") and not set(GRPO) & set(self.scale.arms):
            lacking.append(" or ".join(GRPO))
        if lacking:
            there = ", ".join(self.scale.arms)
            raise ConfigError(f"arms: found {there}; {stage} needs {', '.join(lacking)} too")

    def tuning(self, rows: Sequence[Row]) -> Iterator[Run]:
        """Grid and widenings of each arm."""
        for arm in self.scale.arms:
            for rate in self.choice(arm, rows).grid:
                for seed in self.scale.tuning_seeds:
                    yield self.run("tune", arm, rate, seed)

    def choice(self, arm: str, rows: Sequence[Row]) -> Choice:
        """The arm's grid as far as the rows tell, and its best rate once that is interior (or the widest)."""
        by_rate: dict[float, list[Row]] = {}
        digests = {}
        for row in rows:
            digests[row["digest"]] = row

        def found(rate: float) -> list[Row] | None:
            runs = [self.run("tune", arm, rate, seed) for seed in self.scale.tuning_seeds]
            if any(r.digest not in digests for r in runs):
                return None
            by_rate[rate] = [digests[r.digest] for r in runs]
            return by_rate[rate]

        return choose(self.scale, self.scale.grid(arm), found)

    def tuned(self, rows: Sequence[Row]) -> list[str]:
        """The arms whose rate is chosen."""
        return [arm for arm in self.scale.arms if self.choice(arm, rows).rate is not None]

    def choices(self, rows: Sequence[Row], arms: Collection[str] | None = None) -> dict[str, Choice]:
        """Of these arms; default: of all.

        Raises:
            SystemExit: an arm is not tuned yet.
        """
        found = {arm: self.choice(arm, rows) for arm in self.scale.arms if arms is None or arm in arms}
        if missing := [arm for arm, choice in found.items() if choice.rate is None]:
            raise SystemExit(f"not tuned yet: {', '.join(missing)}; run `run.py tune` first")
        return found

    def rival(self, rows: Sequence[Row]) -> str:
        """The outcome-GRPO that tuned better on dev tasks; GRPO's sweeps use it."""
        choices = self.choices(rows, GRPO)
        return min(choices, key=lambda arm: choices[arm].score or (0.0, 0.0))

    def run(self, stage: str, arm: str, rate: float | None, seed: int, **changes: Any) -> Run:
        """A run at the headline's setting, or with ``horizon``, ``judge``, ``algorithm``, ``on_hack``, ``variant`` changed."""
        scale, horizon = self.scale, changes.get("horizon", self.scale.horizon)
        assert rate is not None
        return Run(
            stage=stage,
            arm=arm,
            variant=changes.get("variant", ""),
            policy=scale.settings(
                changes.get("algorithm", scale.arms[arm]), rate, seed, horizon=horizon,
                iterations=scale.tune_iterations if stage == "tune" else scale.iterations,
                on_hack=changes.get("on_hack", "warn"),
            ),
            judge=changes.get("judge", DeskOracleReward(noise=scale.noise, seed=seed)),
            horizon=horizon,
            split="dev" if stage == "tune" else "heldout",
            train_tasks=scale.train_tasks,
            eval_tasks=scale.eval_tasks,
            eval_every=scale.eval_every,
            stop_at=scale.stop_at,
            in_succession=scale.in_succession,
            start=self.start,
        )  # fmt: skip

    def _trained(self, rate: float | None, seed: int) -> Run:
        if self.judge is None:
            raise SystemExit("the row of the trained judge needs --judge FOLDER")
        judge = RubricJudgeReward(judge=f"trained-{self.judge}", level="turn")
        return self.run("trained", OURS, rate, seed, judge=judge, variant="trained judge")

    def _sweep(self, name: str, rates: Mapping[str, float | None], rival: str) -> Iterator[Run]:
        if name not in SWEEPS:
            raise SystemExit(f"sweep {name!r}: one of {', '.join(SWEEPS)}")
        for seed in self.scale.sweep_seeds:
            for arm, changes in self._points(name, rival, seed):
                yield self.run(f"sweep-{name}", arm, rates[arm], seed, **changes)

    def _points(self, name: str, rival: str, seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
        """``(arm, changes)`` of one seed; the point of the headline has the headline's digest and is not run again."""
        scale = self.scale
        if name == "horizon":
            for horizon in scale.horizons:
                for arm in (OURS, rival):
                    yield arm, {"horizon": horizon, "variant": f"T={horizon}"}
        elif name == "noise":
            for noise in scale.noises:
                for arm in (OURS, NO_REPLAY):
                    yield (
                        arm,
                        {"judge": DeskOracleReward(noise=noise, seed=seed), "variant": f"noise={noise:g}"},
                    )
        elif name == "hack":
            for pay in scale.pays:
                judge = DeskOracleReward(noise=scale.noise, filler_pay=pay, seed=seed)
                for guard in ("warn", "guard"):
                    yield OURS, {"judge": judge, "on_hack": guard, "variant": f"pay={pay:g} {guard}"}
        else:
            for dose in scale.doses:
                ours = scale.arms[OURS].model_copy(update={"reuse": dose})
                grpo = scale.arms["grpo_k"].model_copy(update={"passes": dose + 1})
                yield OURS, {"algorithm": ours, "variant": f"U={dose}"}
                yield "grpo_k", {"algorithm": grpo, "variant": f"U={dose}"}


def weights_digest(folder: Path) -> str:
    """Hash of the weights in a model folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def read_rows(folder: Path) -> dict[str, list[Row]]:
    """Finished rows by stage; half a line (the machine went down) is no row."""
    rows: dict[str, list[Row]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        rows[path.stem] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                rows[path.stem].append(json.loads(line))
            except json.JSONDecodeError:
                print(f"{path}: half a line left out")
    return rows
