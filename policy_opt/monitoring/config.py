"""Thresholds of the alarms: starting values of ours, not facts."""

from pydantic import Field

from axiomrm.data.settings import Settings


class MonitorConfig(Settings):
    """Shares lie in [0, 1]."""

    warmup: int = Field(default=5, ge=1)
    """Iterations that define "normal"."""
    divergence_slack: float = Field(default=0.5, ge=0)
    """Lead of the judge over the outcome that is tolerated, in standard deviations an iteration."""
    divergence_threshold: float = Field(default=4.0, gt=0)
    """Summed lead beyond the slack from which the alarm fires, in standard deviations."""
    canned_share: float = Field(default=0.5, gt=0, le=1)
    """Share of the most frequent action text that counts as canned, where it also doubled since warm-up."""
    repetition_rise: float = Field(default=0.25, gt=0, le=1)
    """Rise of the share of repeated word 4-grams, of duplicate turns and of calls without effect."""
    refusal_rise: float = Field(default=0.2, gt=0, le=1)
    length_correlation: float = Field(default=0.8, gt=0, le=1)
    """Correlation of turn reward with action length, or of mean reward with turns, once 0.3 above warm-up."""
    abstention_rise: float = Field(default=0.2, gt=0, le=1)
    coverage_drop: float = Field(default=0.2, gt=0, le=1)
    dominant_share: float = Field(default=0.6, gt=0, le=1)
    """Share of the reward's variance that one criterion of several may supply."""
    failed_share: float = Field(default=0.05, gt=0, le=1)
    """Failed verdicts among the turns asked about."""
    collapse_share: float = Field(default=0.5, gt=0, lt=1)
    """Of its mean over 20 iterations, below which the spread within groups or the entropy has collapsed."""
    gradient_factor: float = Field(default=5.0, gt=1)
    """Times the median gradient norm."""
    ess_frac: float = Field(default=0.2, gt=0, lt=1)
    """Effective share of replayed steps below which two iterations in a row raise the alarm."""
    disc_least: float = Field(default=0.05, ge=-1, le=1)
    """Discrimination below which turn rewards do not predict success, on 64 groups or more."""
    clamped_iterations: int = Field(default=10, ge=1)
    """Iterations in a row with the KL coefficient at a bound."""
    heldout_share: float = Field(default=0.05, gt=0, le=1)
    """Share of the rollouts that held-out criteria are asked about, two rollouts at least."""
