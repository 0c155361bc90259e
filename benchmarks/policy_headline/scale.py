"""What is compared and how long: every size and every choice of the experiment, in one JSON file."""

import json
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from axiomrm.config_file import Document
from axiomrm.config_findings import describe
from axiomrm.data.settings import Rate, Settings
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.algorithms.presets import PRESETS
from axiomrm.policy_opt.config import AlgorithmConfig, PolicyConfig, RolloutConfig

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


def _each_once(values: list[Any]) -> list[Any]:
    if twice := sorted({v for v in values if values.count(v) > 1}):
        raise ValueError(f"{twice} stand more than once; each counts once")
    return values


Model = TypeVar("Model", bound=BaseModel)
Rates = Annotated[list[Rate], Field(min_length=1), AfterValidator(_each_once)]
Share = Annotated[float, Field(ge=0, le=1)]
Turns = Annotated[int, Field(ge=1, le=100)]
Seeds = Annotated[list[Annotated[int, Field(ge=0)]], AfterValidator(_each_once)]
Name = Annotated[str, Field(pattern=r"^[\w.-]+$")]
"""It stands in names of folders."""


class Scale(Settings, BaseModel):  # BaseModel: by it ruff knows that defaults are copied
    """Defaults are what the protocol's file overrides; unknown fields are errors."""

    horizon: Turns = 8
    """Turns of the shortest right dialogue of every task."""
    noise: Share = 0.15
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
    target: float = Field(default=0.5, gt=0, le=1)
    stop_at: float = Field(default=0.8, gt=0)
    """A run ends early when ``in_succession`` evaluations reach this."""
    in_succession: int = Field(default=2, ge=1)
    """Evaluations in a row that must reach the target before it counts as crossed, at the first of them."""
    rates: Rates = [1e-4, 3e-4, 1e-3]
    rates_of: dict[str, Rates] = {}
    """An arm's own grid."""
    widen_factor: float = Field(default=3.0, gt=1)
    max_widenings: int = Field(default=2, ge=0)
    tuning_seeds: Seeds = Field(default=[101, 102], min_length=1)
    fresh_seeds: Seeds = Field(default=[1, 2, 3, 4, 5], min_length=1)
    few_seeds: Seeds = [1, 2, 3]
    few: list[str] = ["ppo", "best_of_k"]
    """Arms that get ``few_seeds``."""
    sweep_seeds: Seeds = [1, 2, 3]
    arms: dict[Name, AlgorithmConfig] = Field(default={name: PRESETS[name] for name in ARMS}, min_length=1)
    policy: dict[str, Any] = {}
    """Further fields of ``PolicyConfig``, for every arm."""
    horizons: list[Turns] = [2, 4, 8, 12, 16]
    noises: list[Share] = [0.0, 0.15, 0.3, 0.45]
    pays: list[Share] = [0.0, 0.5, 0.8]
    """Weight of polite filler in the hackable judge's reward."""
    doses: list[Annotated[int, Field(ge=0)]] = [0, 1, 3, 10]
    """Re-uses U of ``process_replay``, against GRPO with U + 1 passes."""

    @model_validator(mode="after")
    def _disjoint_seeds(self) -> "Scale":
        for name in ("fresh_seeds", "few_seeds", "sweep_seeds"):
            if both := sorted(set(self.tuning_seeds) & set(getattr(self, name))):
                raise ValueError(
                    f"{name}: found tuning_seeds there: {both} both tune and measure; keep them apart"
                )
        return self

    @model_validator(mode="after")
    def _known_arms(self) -> "Scale":
        for name, given in (("few", self.few), ("rates_of", self.rates_of)):
            if unknown := sorted(set(given) - set(self.arms)):
                raise ValueError(f"{name}: found {unknown}, which are no arms; arms: {', '.join(self.arms)}")
        if self.few and not self.few_seeds:
            raise ValueError(f"few_seeds: found []; {', '.join(self.few)} of few need one at least")
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
    """The scale in a file.

    Raises:
        ConfigError: in one line: the file, the key, what was found and what is accepted.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: found {type(values).__name__}; a scale is an object {{key: value}}")
    scale = _checked(Scale, values, str(path))
    for name, algorithm in scale.arms.items():
        _check_policy(scale, algorithm, f"{path}: arm {name}")
    return scale


def _check_policy(scale: Scale, algorithm: AlgorithmConfig, place: str) -> None:
    """Let the training configuration refuse ``policy`` now and not when the first run begins."""
    own = ("algorithm", "learning_rate", "seed", "iterations", "tasks_per_iteration", "group_size")
    if taken := sorted(set(scale.policy) & set(own)):
        raise ConfigError(f"{place}: policy.{taken[0]}: found in policy; the scale has a place for it")
    given = {"algorithm": algorithm.model_dump(), "group_size": scale.group_size, **scale.policy}
    _checked(PolicyConfig, given, f"{place}, policy")


def _checked(model: type[Model], values: dict[str, Any], place: str) -> Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError(describe(error, model, Document(values, source=place))) from error


def no_folder(path: Path, option: str) -> str | None:
    """What is wrong with a path that is to be a folder, made if absent; ``None``: nothing."""
    there = next(p for p in (path, *path.absolute().parents) if p.exists())
    return None if there.is_dir() else f"{option} {path}: found the file {there}; a folder is wanted"
