"""The configuration of one run: a section a stage, read from YAML with ``a.b=value`` overrides."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from axiomrm.config_file import Dumper, apply_override, read_document
from axiomrm.config_findings import describe, fault_key
from axiomrm.data.settings import HOTTEST, LONG, MANY, Rate, Settings
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import BestOfKConfig, GRPOConfig, PolicyConfig
from axiomrm.policy_opt.monitoring.trackers import TrackerName
from axiomrm.policy_opt.rewards.config import RewardConfig, RubricJudgeReward, VerifierReward, not_held_out
from axiomrm.policy_opt.rewards.files import profile_files, reward_files
from axiomrm.rm.training.config import JointSize, LoraSettings

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"

START = "cold_start"
COOL = "cold_start_cool"
"""The cold start sampled at a lower temperature: what sharper sampling gives without any training."""
TAKEN = {"train": "the main arm's", START: "the start's", COOL: "the cooler start's"}
"""Names of policies in the evaluation that no arm may have."""


class SynthesizeConfig(Settings):
    """Tasks and scripted dialogues."""

    environment: Literal["service_desk"] = "service_desk"
    demos: int = Field(default=300, ge=1, le=MANY)
    """Dialogues made for the cold start; those that fail their task are left out."""
    dev_demos: int = Field(default=60, ge=1, le=MANY)
    flawed_demos: float = Field(default=0.0, ge=0, le=1)
    """Share of those dialogues by an agent that slips now and then; the rest is by an expert."""
    demo_flaw_rate: float = Field(default=0.3, ge=0, le=1)
    """Share of its turns at which that agent slips."""
    train_tasks: int = Field(default=1400, ge=2, le=MANY)
    """Dialogues of erring agents that the judge learns from."""
    dev_tasks: int = Field(default=60, ge=2, le=MANY)
    heldout_tasks: int = Field(default=1600, ge=2, le=MANY)
    """The same with unseen wordings and one unseen task type, for the judge's test."""
    style_tasks: int = Field(default=60, ge=1, le=MANY)
    """Tasks of which agents of different styles give several dialogues, for users to choose between."""
    min_distinct: int = Field(default=1000, ge=0)
    """Distinct dialogues after masking ids, names and numbers; fewer stop the run."""


class ColdStartConfig(Settings):
    """Fine-tuning of the policy on successful dialogues until the dev loss stops falling."""

    learning_rate: Rate = 1e-3
    optimizer: Literal["adamw", "muon"] = "adamw"
    """As in the judge's stages."""
    max_epochs: int = Field(default=12, ge=1, le=MANY)
    patience: int = Field(default=2, ge=1)
    """Epochs without a lower dev loss after which it stops."""
    tokens_per_step: int = Field(default=4096, ge=8, le=LONG)


class JudgeStageConfig(Settings):
    """Supervised fine-tuning of one judge stage."""

    learning_rate: Rate = 1e-3
    optimizer: Literal["adamw", "muon"] = "adamw"
    """``muon``: orthogonalised steps for the matrices of hidden layers, AdamW for all else."""
    label_weight: float = Field(default=1.0, gt=0)
    """How much a label token counts beside a token of a note."""
    epochs: float = Field(default=1.0, gt=0, le=MANY)
    max_length: int = Field(default=1024, ge=8, le=LONG)
    """Tokens a row; a longer row is dropped and counted."""
    row_tokens: int = Field(default=1024, ge=8, le=LONG)
    """Size up to which questions about one dialogue share a row."""
    batch_tokens: int = Field(default=4096, ge=8, le=LONG)
    """Padded tokens of a forward pass."""
    max_train_tokens: int | None = Field(default=None, ge=1)
    """Tokens after which the stage ends; ``null``: as many as the epochs have."""
    checkpoint_every: int = Field(default=100, ge=1)
    """Optimizer steps between checkpoints; a killed run goes on from the last one."""
    accumulate: int = Field(default=1, ge=1)
    """Forward passes of ``batch_tokens`` an optimizer step."""
    precision: Literal["fp32", "bf16"] = "fp32"
    gradient_checkpointing: bool = False
    lora: LoraSettings | None = None
    """Train low-rank adapters instead of all weights."""


class GeneralConfig(Settings):
    """First judge stage: overall quality of turns and dialogues."""

    train: JudgeStageConfig = JudgeStageConfig()
    max_examples: int = Field(default=4000, ge=1, le=MANY)
    """A criterion."""


class RubricConfig(Settings):
    """Second judge stage: many criteria on turns and dialogues."""

    train: JudgeStageConfig = JudgeStageConfig()
    max_examples: int = Field(default=1600, ge=1, le=MANY)
    """A criterion."""
    missing_evidence_share: float = Field(default=0.05, ge=0, le=1)
    """Examples whose history is hidden; the right answer is that it cannot be assessed."""
    replay_share: float = Field(default=0.15, ge=0, le=1)
    """Examples of the stage before."""


class PersonalConfig(Settings):
    """Third judge stage: criteria compiled from profiles."""

    train: JudgeStageConfig = JudgeStageConfig()
    train_users: int = Field(default=40, ge=2, le=MANY)
    heldout_users: int = Field(default=60, ge=2, le=MANY)
    history_pairs: int = Field(default=24, ge=0, le=MANY)
    """Earlier choices of a user, from which weights among stated tastes are learned."""
    eval_pairs: int = Field(default=20, ge=1, le=MANY)
    """Held-out choices a user."""
    per_label: int = Field(default=100, ge=1, le=MANY)
    """Training rows of one label of one question."""
    replay_share: float = Field(default=1.0, ge=0, le=10)
    """Examples of both earlier stages, a personal example: too few, and the judge forgets what it knew."""


class JudgeConfig(Settings):
    """The reward model in its three stages."""

    direct_share: float = Field(default=0.5, ge=0, le=1)
    """Training rows that answer without a critique."""
    joint_share: float = Field(default=0.0, ge=0, le=1)
    """Training examples asked together with others about their turn, in one prompt with a line for each."""
    joint_size: JointSize = (2, 8)
    """Fewest and most questions of such a prompt."""
    on_policy_tasks: int = Field(default=0, ge=0, le=MANY)
    """Training tasks on which the cold-started policy is rolled out, four times each, for the rubric stage to
    learn from its own mistakes; needs an environment whose oracle labels turns."""
    eval_per_criterion: int = Field(default=240, ge=1, le=MANY)
    """Held-out questions a criterion, balanced."""
    general: GeneralConfig = GeneralConfig()
    rubric: RubricConfig = RubricConfig()
    personal: PersonalConfig = PersonalConfig()


class PolicyStageConfig(Settings):
    """Policy optimisation: one main arm and the arms it is compared with, same tasks, seed and start."""

    train: PolicyConfig = PolicyConfig()
    arms: dict[Annotated[str, Field(pattern=NAME, max_length=100)], PolicyConfig] = Field(
        default_factory=lambda: {
            "grpo": PolicyConfig(algorithm=GRPOConfig()),
            "best_of_k": PolicyConfig(algorithm=BestOfKConfig()),
        }
    )
    reward: RewardConfig = RubricJudgeReward()
    """Where turn rewards come from; the outcome is always the verifier's unless a source holds it too."""
    heldout: RewardConfig | None = None
    """Criteria without reward, asked about a sample of the rollouts for the monitors; no source of ``reward``
    may be among them."""
    tracker: TrackerName = "none"
    """Besides ``metrics.jsonl``."""
    keep_rollouts: bool = False
    """Write every training rollout to ``<arm>/rollouts.jsonl``."""
    eval_every: int = Field(default=5, ge=1)
    """Iterations between two evaluations on dev tasks."""
    eval_episodes: int = Field(default=64, ge=1, le=MANY)
    """Dev episodes an evaluation."""

    @model_validator(mode="before")
    @classmethod
    def _turn_reward(cls, values: Any) -> Any:
        """Runs of before ``reward`` existed say ``turn_reward: judge`` or ``none``."""
        if not isinstance(values, dict) or "turn_reward" not in values:
            return values
        rest = {key: value for key, value in values.items() if key != "turn_reward"}
        rewards: dict[Any, RubricJudgeReward | VerifierReward] = {
            "judge": RubricJudgeReward(),
            "none": VerifierReward(),
        }
        if values["turn_reward"] not in rewards or "reward" in rest:
            raise ValueError(
                f"turn_reward: {values['turn_reward']!r}; it is 'judge' or 'none' and stands without reward, "
                "which replaces it"
            )
        return {"reward": rewards[values["turn_reward"]].model_dump(), **rest}

    @model_validator(mode="after")
    def _names_are_free(self) -> "PolicyStageConfig":
        for name in self.arms:
            if name in TAKEN:
                raise ValueError(f"an arm is named {name!r}, which is {TAKEN[name]} name; choose another")
        if isinstance(self.heldout, VerifierReward):
            raise ValueError("heldout: kind 'verifier' asks no criteria; name criteria, or leave it out")
        if self.heldout is not None and (rewarded := not_held_out(self.reward, self.heldout)):
            raise ValueError(
                f"heldout: {rewarded} is the same source, and the policy is rewarded for it, so nothing is "
                "held out; name other criteria, or leave heldout out"
            )
        return self


class EvaluateConfig(Settings):
    """What is measured at the end, on held-out tasks."""

    episodes: int = Field(default=200, ge=1, le=MANY)
    """Held-out episodes a policy."""
    cool_temperature: float = Field(default=0.3, gt=0, le=HOTTEST)
    """Sampling temperature of a second evaluation of the cold start: sharper sampling costs no training."""
    best_of_k: int = Field(default=8, ge=2, le=MANY)
    bootstrap_draws: int = Field(default=2000, ge=100, le=MANY)
    confidence: float = Field(default=0.95, gt=0.5, lt=1)
    transcripts: int = Field(default=10, ge=0)
    """Dialogues shown in the report."""


class RunConfig(Settings):
    """Everything that decides the result of a run."""

    name: str = Field(pattern=NAME, max_length=100)
    """Folder under ``runs/``."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    base: str = "nano"
    """``nano`` (shipped) or the folder of a causal language model."""
    threads: int = Field(default=2, ge=1, le=4096)
    """CPU threads; sums run in another order with another number, so it belongs to the run."""
    synthesize: SynthesizeConfig = SynthesizeConfig()
    cold_start: ColdStartConfig = ColdStartConfig()
    rm: JudgeConfig = JudgeConfig()
    policy: PolicyStageConfig = PolicyStageConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def input_paths(self) -> dict[str, Path]:
        """Files and folders the run reads, by config key; names of shipped things are not among them."""
        path = Path(self.base).expanduser()
        if self.base != "nano" and not path.exists():
            raise ConfigError(f"base: there is no folder {self.base!r}; give 'nano' or a causal LM's folder")
        base = {"base": path} if path.exists() else {}
        return base | self._of_rewards(reward_files)

    def profile_paths(self) -> dict[str, Path]:
        """Those of them that hold a profile a line; lines may go when a user withdraws consent."""
        return self._of_rewards(profile_files)

    def _of_rewards(self, files: Callable[[RewardConfig | None, str], dict[str, Path]]) -> dict[str, Path]:
        return files(self.policy.reward, "policy.reward") | files(self.policy.heldout, "policy.heldout")


def load_config(path: str | Path, overrides: Iterable[str] = ()) -> RunConfig:
    """Read a run's configuration.

    Args:
        path: YAML file.
        overrides: ``a.b=value``, applied in order.

    Raises:
        ConfigError: cannot be read, an unknown key, a value out of range; names ``file:line`` and remedy.
    """
    document = read_document(Path(path))
    document.faults = _faults(document.values)
    for override in overrides:
        apply_override(document, override)
    try:
        return RunConfig.model_validate(document.values)
    except ValidationError as error:
        raise ConfigError(describe(error, RunConfig, document)) from error


def _faults(values: dict[str, Any]) -> frozenset[Any]:
    try:
        RunConfig.model_validate(values)
    except ValidationError as error:
        return frozenset(fault_key(dict(item)) for item in error.errors())
    return frozenset()


def save_config(config: RunConfig, path: Path) -> None:
    """Write the resolved configuration; ``load_config`` reads it back equal."""
    with atomic_file(path) as handle:
        yaml.dump(config.model_dump(mode="json"), handle, Dumper=Dumper, sort_keys=False, allow_unicode=True)
