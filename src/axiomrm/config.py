"""The configuration of one run: a section a stage, read from YAML with ``a.b=value`` overrides."""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from axiomrm.config_file import Dumper, apply_override, describe, read_document
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import BestOfKConfig, GRPOConfig, PolicyConfig

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"


class Config(BaseModel):
    """Frozen; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class LoraSettings(Config):
    """Train low-rank adapters instead of all weights."""

    rank: int = Field(default=16, ge=1)
    alpha: float = Field(default=32.0, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)


class FineTuneConfig(Config):
    """Supervised fine-tuning; the same fields for the policy's cold start and each judge stage."""

    epochs: float = Field(default=1.0, gt=0)
    max_steps: int | None = Field(default=None, ge=1)
    """Optimizer steps at most; ``null``: as many as the epochs have."""
    learning_rate: float = Field(default=5e-4, gt=0)
    batch_size: int = Field(default=16, ge=1)
    """Rows a forward pass."""
    accumulation: int = Field(default=1, ge=1)
    """Forward passes an optimizer step."""
    max_length: int = Field(default=640, ge=8)
    """Tokens a row; a longer row is dropped and counted."""
    warmup_share: float = Field(default=0.05, ge=0, le=1)
    """Share of the steps over which the learning rate rises."""
    weight_decay: float = Field(default=0.01, ge=0)
    checkpoint_every: int = Field(default=50, ge=1)
    """Optimizer steps between checkpoints; a killed run goes on from the last one."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    lora: LoraSettings | None = None


class SynthesizeConfig(Config):
    """Tasks and scripted dialogues."""

    environment: Literal["service_desk"] = "service_desk"
    train_tasks: int = Field(default=1200, ge=1)
    dev_tasks: int = Field(default=200, ge=1)
    heldout_tasks: int = Field(default=240, ge=1)
    """Tasks with unseen wordings and one unseen task type."""
    flawed_per_task: int = Field(default=2, ge=0)
    """Rollouts of flawed agents a task, beside the expert's one."""
    min_distinct: int = Field(default=1000, ge=0)
    """Distinct dialogues after masking ids, names and numbers; fewer stop the run."""


class ColdStartConfig(Config):
    """Fine-tuning of the policy on successful dialogues."""

    train: FineTuneConfig = FineTuneConfig()
    max_dialogues: int | None = Field(default=None, ge=1)
    patience: int = Field(default=2, ge=1)
    """Dev evaluations without a lower loss after which it stops."""
    eval_episodes: int = Field(default=100, ge=1)


class GeneralConfig(Config):
    """First judge stage: overall quality from pairs and scores."""

    train: FineTuneConfig = FineTuneConfig()
    pairs: str | None = None
    """JSONL of human preference pairs; ``null``: pairs of expert and flawed rollouts."""
    max_examples: int = Field(default=4000, ge=1)
    eval_pairs: int = Field(default=400, ge=1)
    bradley_terry: bool = True
    """Also train a scalar reward model on the same pairs, for comparison."""


class RubricConfig(Config):
    """Second judge stage: many criteria on turns and dialogues."""

    train: FineTuneConfig = FineTuneConfig()
    rubric: str = "support_agent"
    """Name in the library or path of a rubric file."""
    max_examples: int = Field(default=16000, ge=1)
    missing_evidence_share: float = Field(default=0.1, ge=0, le=1)
    """Examples whose decisive turn is deleted; the right answer is that it cannot be assessed."""
    replay_share: float = Field(default=0.15, ge=0, le=1)
    """Examples of the stage before."""
    eval_per_criterion: int = Field(default=200, ge=1)
    min_minority: float = Field(default=0.3, ge=0, le=0.5)
    """Least share of the rarer label among the evaluated examples of a criterion."""


class PersonalConfig(Config):
    """Third judge stage: criteria compiled from profiles."""

    train: FineTuneConfig = FineTuneConfig()
    train_users: int = Field(default=80, ge=1)
    heldout_users: int = Field(default=40, ge=1)
    pairs_per_user: int = Field(default=24, ge=2)
    eval_pairs_per_user: int = Field(default=24, ge=1)
    choice_noise: float = Field(default=0.1, ge=0, lt=0.5)
    """Share of a user's choices that are flipped."""
    shrinkage: float = Field(default=4.0, ge=0)
    """Pairs that the prior towards the generic judge is worth."""
    replay_share: float = Field(default=0.15, ge=0, le=1)


class JudgeConfig(Config):
    """The reward model in its three stages."""

    direct_share: float = Field(default=0.5, ge=0, le=1)
    """Training rows that answer without a critique."""
    max_critique_tokens: int = Field(default=48, ge=1)
    general: GeneralConfig = GeneralConfig()
    rubric: RubricConfig = RubricConfig()
    personal: PersonalConfig = PersonalConfig()


class PolicyStageConfig(Config):
    """Policy optimisation: one main arm and the arms it is compared with, same tasks, seed and start."""

    train: PolicyConfig = PolicyConfig()
    arms: dict[str, PolicyConfig] = Field(
        default_factory=lambda: {
            "grpo": PolicyConfig(algorithm=GRPOConfig()),
            "best_of_k": PolicyConfig(algorithm=BestOfKConfig()),
        }
    )
    turn_reward: Literal["judge", "none"] = "judge"
    """``judge``: the judge trained in this run."""
    eval_every: int = Field(default=5, ge=1)
    """Iterations between two evaluations on dev tasks."""
    eval_episodes: int = Field(default=64, ge=1)
    """Dev episodes an evaluation."""

    @model_validator(mode="after")
    def _names_are_free(self) -> "PolicyStageConfig":
        if "train" in self.arms:
            raise ValueError("an arm is named 'train', which is the main arm's name; choose another")
        return self


class EvaluateConfig(Config):
    """What is measured at the end, on held-out tasks."""

    episodes: int = Field(default=200, ge=1)
    """Held-out episodes a policy."""
    best_of_k: int = Field(default=8, ge=2)
    bootstrap_draws: int = Field(default=2000, ge=100)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    transcripts: int = Field(default=10, ge=0)
    """Dialogues shown in the report."""


class RunConfig(Config):
    """Everything that decides the result of a run."""

    name: str = Field(pattern=NAME)
    """Folder under ``runs/``."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    base: str = "nano"
    """``nano`` (shipped), the folder of a causal LM, or a hub id."""
    threads: int = Field(default=2, ge=1)
    """CPU threads; sums run in another order with another number, so it belongs to the run."""
    synthesize: SynthesizeConfig = SynthesizeConfig()
    cold_start: ColdStartConfig = ColdStartConfig()
    rm: JudgeConfig = JudgeConfig()
    policy: PolicyStageConfig = PolicyStageConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def input_paths(self) -> dict[str, Path]:
        """Files and folders the run reads, by config key; names of shipped things are not among them."""
        named = {
            "base": self.base,
            "rm.general.pairs": self.rm.general.pairs,
            "rm.rubric.rubric": self.rm.rubric.rubric,
        }
        paths = {key: Path(value).expanduser() for key, value in named.items() if value is not None}
        must_exist = {"rm.general.pairs"}
        for key in must_exist & paths.keys():
            if not paths[key].exists():
                raise ConfigError(f"{key}: there is no file {str(paths[key])!r}")
        return {key: path for key, path in paths.items() if path.exists()}


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a run's configuration.

    Args:
        path: YAML file.
        overrides: ``a.b=value``, applied in order.

    Raises:
        ConfigError: cannot be read, an unknown key, a value out of range; names ``file:line`` and remedy.
    """
    document = read_document(Path(path))
    for override in overrides:
        apply_override(document, override)
    try:
        return RunConfig.model_validate(document.values)
    except ValidationError as error:
        raise ConfigError(describe(error, RunConfig, document)) from error


def save_config(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration; ``load_config`` reads it back equal."""
    with atomic_file(path) as handle:
        yaml.dump(config.model_dump(mode="json"), handle, Dumper=Dumper, sort_keys=False, allow_unicode=True)
