"""What is compared and how long: every size and every choice of the experiment, in one JSON file."""

from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from axiomrm.policy_opt.config import AlgorithmConfig, PolicyConfig, RolloutConfig
from axiomrm.policy_opt.presets import PRESETS

HERE = Path(__file__).parent
FROZEN, QUICK = HERE / "scale.json", HERE / "quick.json"
START = HERE / "start"
"""The policy that all runs start from, kept so that runs on another machine count beside the others."""
OURS = "process_replay"
GRPO = ("grpo", "grpo_k")
"""Outcome-only GRPO, one pass and as many as ``OURS``: the better of the two is the rival."""
NO_REPLAY = "process"
ARMS = (*GRPO, "grpo_summed", "gigpo", NO_REPLAY, OURS, "ppo", "best_of_k")
SWEEPS = ("horizon", "noise", "hack", "dose")


class Scale(BaseModel):
    """Defaults are what the protocol's file overrides; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    horizon: int = 8
    """Turns of the shortest right dialogue of every task."""
    noise: float = 0.15
    """Share of turns whose oracle reward is flipped."""
    iterations: int = Field(default=24, ge=1)
    tune_iterations: int = Field(default=24, ge=1)
    tasks_per_iteration: int = Field(default=4, ge=1)
    group_size: int = Field(default=8, ge=1)
    train_tasks: int = Field(default=256, ge=1)
    eval_tasks: int = Field(default=100, ge=1)
    """One sampled episode each; the same tasks for every arm and seed."""
    eval_every: int = Field(default=2, ge=1)
    """Iterations between evaluations; the start and the end are evaluated too."""
    target: float = 0.5
    stop_at: float = 0.8
    """A run ends early when ``in_succession`` evaluations reach this."""
    in_succession: int = Field(default=2, ge=1)
    """Evaluations in a row that must reach the target before it counts as crossed, at the first of them."""
    rates: list[float] = [1e-4, 3e-4, 1e-3]
    rates_of: dict[str, list[float]] = {}
    """An arm's own grid."""
    widen_factor: float = Field(default=3.0, gt=1)
    max_widenings: int = Field(default=2, ge=0)
    tuning_seeds: list[int] = [101, 102]
    fresh_seeds: list[int] = [1, 2, 3, 4, 5]
    few_seeds: list[int] = [1, 2, 3]
    few: list[str] = ["ppo", "best_of_k"]
    """Arms that get ``few_seeds``."""
    sweep_seeds: list[int] = [1, 2, 3]
    arms: dict[str, AlgorithmConfig] = {name: PRESETS[name] for name in ARMS}
    policy: dict[str, Any] = {}
    """Further fields of ``PolicyConfig``, for every arm."""
    horizons: list[int] = [2, 4, 8, 12, 16]
    noises: list[float] = [0.0, 0.15, 0.3, 0.45]
    pays: list[float] = [0.0, 0.5, 0.8]
    """Weight of polite filler in the hackable judge's reward."""
    doses: list[int] = [0, 1, 3, 10]
    """Re-uses U of ``process_replay``, against GRPO with U + 1 passes."""

    @model_validator(mode="after")
    def _disjoint_seeds(self) -> "Scale":
        both = set(self.tuning_seeds) & {*self.fresh_seeds, *self.few_seeds, *self.sweep_seeds}
        if both:
            raise ValueError(f"seeds {sorted(both)} both tune and measure; keep them apart")
        unknown = {*self.few, *self.rates_of} - set(self.arms)
        if unknown:
            raise ValueError(f"{sorted(unknown)} are no arms; arms: {', '.join(self.arms)}")
        return self

    @cached_property
    def rollouts_per_iteration(self) -> int:
        return self.tasks_per_iteration * self.group_size

    def grid(self, arm: str) -> list[float]:
        return sorted(self.rates_of.get(arm, self.rates))

    def seeds(self, arm: str) -> list[int]:
        return self.few_seeds if arm in self.few else self.fresh_seeds

    def settings(
        self, algorithm: Any, rate: float, seed: int, *, horizon: int, iterations: int, on_hack: str
    ) -> PolicyConfig:
        """The training configuration of one run."""
        rollout = RolloutConfig(max_turns=turn_limit(horizon), max_turn_tokens=48)
        fields = {"rollout": rollout, "on_hack": on_hack, **self.policy}
        return PolicyConfig.model_validate(
            fields
            | {
                "algorithm": algorithm,
                "learning_rate": rate,
                "seed": seed,
                "iterations": iterations,
                "tasks_per_iteration": self.tasks_per_iteration,
                "group_size": self.group_size,
            }
        )  # fmt: skip


def turn_limit(horizon: int) -> int:
    """Turns after which the desk closes: twice what is needed, and four."""
    return 2 * horizon + 4


def read_scale(path: Path) -> Scale:
    return Scale.model_validate_json(path.read_text(encoding="utf-8"))
