"""Configuration of policy training; one class an algorithm, told apart by ``kind``."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from axiomrm.data.settings import HOTTEST, LONG, MANY, Rate, Settings
from axiomrm.policy_opt.engines.config import EngineConfig, TransformersEngine
from axiomrm.policy_opt.monitoring.config import MonitorConfig
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.schedule import Schedule


class ProcessReplayConfig(Settings):
    """Per-turn rewards and outcome as two critic-free advantages, with corrected replay."""

    kind: Literal["process_replay"] = "process_replay"
    alpha: float = Field(default=1.0, ge=0)
    """Weight of the outcome advantage."""
    beta: float = Field(default=0.5, ge=0)
    """Weight of the per-turn advantage before calibration by discrimination."""
    calibrate_beta: bool = True
    """Scale beta by how well the per-turn reward ranks outcomes within groups."""
    disc_prior: float = Field(default=0.2, ge=-1, le=1)
    """Discrimination assumed before 20 informative groups exist (from an audit of the cold start)."""
    local_return: Literal["immediate", "rtg", "delta"] = "immediate"
    gamma: float = Field(default=0.95, ge=0, le=1)
    """Discount a turn, for ``rtg`` and ``delta``."""
    kappa: float = Field(default=2.0, ge=0)
    """How many group members the running statistic weighs."""
    local_baseline: Literal["group", "none"] = "group"
    """``none``: per-turn rewards as they are, so that right turns are pushed up and wrong ones not down. Less
    noise where wrong turns are mostly rare tokens, whose gradients are the largest; with ``reweight`` it also
    sharpens the policy towards what it does already."""
    anchors: bool = False
    """Compare turns that share a state (``info["state_key"]``) before turns that share an index."""
    scale: Literal["none", "batch"] = "batch"
    outcome_range: float = Field(default=1.0, gt=0)
    local_range: float = Field(default=1.0, gt=0)
    """Width of the declared reward range, in reward units; scales are floored at 5 % of it."""
    correction: Literal["taper", "ratio", "none"] = "taper"
    reweight: float = Field(default=0.0, ge=0, le=1)
    """α of arXiv:2505.12929: a token's advantage is weighed by α·μ(token) + 1 − α, μ the probability with
    which it was sampled, so that rare tokens do not drown the others' gradients."""
    trust_mask: bool = True
    aggregation: Literal["constant", "token", "step", "trajectory"] = "constant"
    reuse: int = Field(default=3, ge=0, le=MANY)
    """Mixed passes after the fresh one (U)."""
    minibatches: int = Field(default=1, ge=1, le=MANY)
    """Optimizer steps a pass."""
    window: int = Field(default=4, ge=0)
    """Greatest lag of a replayed trajectory, in policy versions."""
    fresh_share: float = Field(default=0.5, ge=0, le=1)
    """Least share of fresh trajectories in a mixed minibatch."""
    capacity: int = Field(default=2048, ge=1, le=MANY)
    """Trajectories held."""
    rescue: bool = False
    """Add one stored success of the task to a fresh group in which every rollout failed (imitation)."""
    rescore_turns: int = Field(default=0, ge=0)
    """Stored turns that a changed judge is asked about again, newest first; the rest is evicted."""


class GRPOConfig(Settings):
    """Group-relative policy optimisation on the trajectory's return."""

    kind: Literal["grpo"] = "grpo"
    passes: int = Field(default=1, ge=1, le=MANY)
    """Optimizer passes over a batch (mu); ``reuse + 1`` of process_replay is the fair control."""
    minibatches: int = Field(default=1, ge=1, le=MANY)
    clip_low: float = Field(default=0.2, gt=0)
    clip_high: float = Field(default=0.2, gt=0)
    scale: Literal["none", "group"] = "group"
    reward: Literal["outcome", "summed"] = "outcome"
    """``summed`` adds the per-turn rewards to the outcome, as users of other toolkits do."""
    aggregation: Literal["constant", "token", "step", "trajectory"] = "trajectory"


class RLOOConfig(Settings):
    """REINFORCE with a leave-one-out baseline on the trajectory's return."""

    kind: Literal["rloo"] = "rloo"
    passes: int = Field(default=1, ge=1, le=MANY)
    minibatches: int = Field(default=1, ge=1, le=MANY)
    clip: float = Field(default=0.2, gt=0)
    """Of the whole sequence's ratio; of no effect in the first pass."""
    reward: Literal["outcome", "summed"] = "outcome"
    kl_place: Literal["loss", "reward"] = "loss"
    kl_coefficient: float = Field(default=0.02, ge=0)
    """Of k1 in the return, reward units a nat, for ``kl_place: reward``."""


class GiGPOConfig(Settings):
    """Group-in-group policy optimisation: episode groups and groups of equal states."""

    kind: Literal["gigpo"] = "gigpo"
    omega: float = Field(default=1.0, ge=0)
    """Weight of the step term."""
    gamma: float = Field(default=0.95, ge=0, le=1)
    """Discount a turn."""
    passes: int = Field(default=1, ge=1, le=MANY)
    minibatches: int = Field(default=1, ge=1, le=MANY)
    clip_low: float = Field(default=0.2, gt=0)
    clip_high: float = Field(default=0.2, gt=0)
    scale: Literal["none", "group"] = "group"
    reward: Literal["outcome", "summed"] = "outcome"
    """``outcome``: the last turn's reward is the outcome, the others 0 (the paper's setting)."""
    aggregation: Literal["constant", "token", "step", "trajectory"] = "trajectory"


class PPOConfig(Settings):
    """Proximal policy optimisation with a value head; tokens are the actions."""

    kind: Literal["ppo"] = "ppo"
    passes: int = Field(default=4, ge=1, le=MANY)
    minibatches: int = Field(default=1, ge=1, le=MANY)
    clip: float = Field(default=0.2, gt=0, lt=1)
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount a token."""
    lam: float = Field(default=0.95, ge=0, le=1)
    """GAE's lambda, a token."""
    value_coefficient: float = Field(default=0.5, gt=0)
    value_learning_rate: Rate = 1e-3
    """Of the value head."""
    value_only_iterations: int = Field(default=2, ge=0, le=MANY)
    """First iterations in which only the value head learns."""
    reward: Literal["outcome", "summed"] = "outcome"
    kl_place: Literal["loss", "reward"] = "reward"
    kl_coefficient: float = Field(default=0.02, ge=0)
    """Of k1 in each token's reward, for ``kl_place: reward``."""


class BestOfKConfig(Settings):
    """Rejection sampling: supervised steps on the best rollouts of each group, repeated."""

    kind: Literal["best_of_k"] = "best_of_k"
    keep: int = Field(default=1, ge=1)
    """Best rollouts kept of a group."""
    threshold: float = 1.0
    """Least outcome of a kept rollout."""
    passes: int = Field(default=2, ge=1, le=MANY)
    minibatches: int = Field(default=1, ge=1, le=MANY)


AlgorithmConfig = Annotated[
    ProcessReplayConfig | GRPOConfig | RLOOConfig | GiGPOConfig | PPOConfig | BestOfKConfig,
    Field(discriminator="kind"),
]
COMPARE_IN_GROUPS = ("grpo", "rloo", "gigpo")
GUARDABLE = ("process_replay",)
"""Those that can go on without turn rewards."""


def cannot_guard(algorithm: str) -> str:
    """What is said of ``on_hack: guard`` with another algorithm."""
    instead = "use process_replay, or on_hack 'warn' or 'stop'"
    return f"on_hack 'guard': {algorithm} cannot drop turn rewards; {instead}"


class KLConfig(Settings):
    """KL to the starting policy."""

    enabled: bool = True
    initial_beta: float = Field(default=0.02, ge=0)
    """Coefficient at first, adapted within 1e-4 to 1; 0 = no KL term for the whole run, only its measure."""
    target_nats_per_token: float = Field(default=0.1, gt=0)


class RolloutConfig(Settings):
    """How episodes are sampled."""

    engine: EngineConfig = TransformersEngine()
    temperature: float = Field(default=1.0, gt=0, le=HOTTEST)
    max_turns: int = Field(default=32, ge=1, le=MANY)
    max_turn_tokens: int = Field(default=64, ge=1, le=LONG)
    max_episode_tokens: int = Field(default=2048, ge=2, le=LONG)
    max_live: int = Field(default=64, ge=1, le=MANY)
    """Episodes in flight at once."""

    def limits(self) -> RolloutLimits:
        """As the rollout functions take them."""
        return RolloutLimits(self.max_turns, self.max_turn_tokens, self.max_episode_tokens, self.max_live)


class PolicyConfig(Settings):
    """One training run."""

    algorithm: AlgorithmConfig = ProcessReplayConfig()
    iterations: int = Field(default=20, ge=1, le=MANY)
    tasks_per_iteration: int = Field(default=4, ge=1, le=MANY)
    group_size: int = Field(default=8, ge=1, le=MANY)
    """Rollouts a task instance."""
    seed: int = 0
    learning_rate: Rate = 3e-4
    schedule: Schedule = "constant"
    """Of the learning rate over ``iterations``: ``linear`` falls from its full value in the first iteration
    to ``1 / iterations`` of it in the last. A run that is given more iterations later takes the new line."""
    weight_decay: float = Field(default=0.0, ge=0)
    grad_clip: float = Field(default=1.0, gt=0)
    tokens_per_forward: int = Field(default=8192, ge=1, le=LONG)
    """Padded tokens of one micro-batch; does not change the result."""
    max_failed_verdicts: float = Field(default=0.05, ge=0, le=1)
    """Share of failed turn judgements above which a run stops: of the last 200, or of a longer iteration."""
    max_failed_rollouts: float = Field(default=0.1, ge=0, le=1)
    admission_max_gap: float = Field(default=1e-3, gt=0)
    """Greatest accepted difference of trainer and sampler log-probs on fresh tokens, nats; another engine has
    ``rollout.engine.mismatch`` instead."""
    accelerate: bool = False
    """Update through Hugging Face ``accelerate``: device placement, mixed precision, several processes."""
    checkpoint_every: int = Field(default=1, ge=1)
    """Iterations."""
    on_hack: Literal["warn", "guard", "stop"] = "warn"
    """When judge and outcome diverge: only warn; guard, that is leave the criteria out that are gamed, or all
    turn rewards where they cannot be told; or stop the run."""
    monitors: MonitorConfig = MonitorConfig()
    kl: KLConfig = KLConfig()
    rollout: RolloutConfig = RolloutConfig()

    @model_validator(mode="after")
    def _an_iteration_ends(self) -> "PolicyConfig":
        if (rollouts := self.tasks_per_iteration * self.group_size) > MANY:
            raise ValueError(
                f"tasks_per_iteration={self.tasks_per_iteration} times group_size={self.group_size} are "
                f"{rollouts} rollouts an iteration; at most {MANY} are held at once"
            )
        return self

    @model_validator(mode="after")
    def _groups_can_compare(self) -> "PolicyConfig":
        if self.algorithm.kind in COMPARE_IN_GROUPS and self.group_size < 2:
            raise ValueError(
                f"group_size={self.group_size}: {self.algorithm.kind} compares rollouts of a group, "
                "set at least 2"
            )
        return self

    @model_validator(mode="after")
    def _groups_hold_what_is_kept(self) -> "PolicyConfig":
        if isinstance(self.algorithm, BestOfKConfig) and self.algorithm.keep > self.group_size:
            raise ValueError(
                f"algorithm.keep={self.algorithm.keep}: a group has group_size={self.group_size} rollouts; "
                "keep at most as many"
            )
        return self

    @model_validator(mode="after")
    def _terms_exist(self) -> "PolicyConfig":
        algorithm = self.algorithm
        penalised = isinstance(algorithm, RLOOConfig | PPOConfig) and algorithm.kl_place == "reward"
        if penalised and not self.kl.enabled and getattr(algorithm, "kl_coefficient", 0) > 0:
            raise ValueError(
                f"kl.enabled=false: {algorithm.kind} has kl_place 'reward' and no reference to measure "
                "KL to; enable kl, or set algorithm.kl_coefficient: 0"
            )
        if self.on_hack == "guard" and algorithm.kind not in GUARDABLE:
            raise ValueError(cannot_guard(type(algorithm).__name__.removesuffix("Config")))
        if self.on_hack == "guard" and isinstance(algorithm, ProcessReplayConfig) and algorithm.alpha == 0:
            raise ValueError(
                "on_hack='guard': without turn rewards and with alpha=0 nothing is left to train on; "
                "set alpha > 0, or on_hack 'warn' or 'stop'"
            )
        return self
