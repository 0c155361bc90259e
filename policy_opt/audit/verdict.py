"""From the facts of an audit to its grade.

``harmful``: the reward, or a criterion with a say in it, ranks failures above successes (the interval says
so). ``weak``: it cannot be shown to rank them right, or it shows signs of being gameable. Else ``ok``. The
suggested beta is that of the interval's lower end. Thresholds are starting values of ours. What criteria
whose sign disagrees with the outcome do to training: arXiv:2604.02869.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from axiomrm.policy_opt.advantages import effective_beta
from axiomrm.policy_opt.audit.tools import LyingTool

MIN_GROUPS = 20
MIN_POOLED = 40
"""Rollouts needed where no task has two."""
LEAST_DISC = 0.1
SAY = 0.1
"""Share of the reward's variance from which a criterion has a say."""
IDLE_SHARE = 0.3
"""Share of the variance that a criterion may supply without predicting the outcome."""
FAILED_SHARE = 0.05
MISSING_SHARE = 0.5
LENGTH_CORRELATION = 0.8
HABIT_LIMITS = {"canned": 0.5, "duplicates": 0.25, "no_effect": 0.25}
BETA = 0.5


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Interval(_Value):
    """A number with its 95 % bootstrap interval; ``None``: cannot be said."""

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    """Groups (or, pooled, rollouts) it stands on."""


class ItemAudit(_Value):
    """One criterion or part of the reward."""

    disc: Interval
    variance_share: float | None
    """Of the reward over turns; ``None``: it is the only one, or nothing varies."""


class Look(_Value):
    """A rollout to read."""

    id: str
    why: str
    reward: float
    outcome: float | None


class Audit(_Value):
    """What was found."""

    verdict: Literal["ok", "weak", "harmful"]
    reasons: tuple[str, ...]
    """Why not ``ok``."""
    suggested_beta: float
    rollouts: int
    turns: int
    groups: int
    pooled: bool
    """No task has two rollouts: compared over all tasks, so that their difficulty mixes in."""
    success: float | None
    """Share of known outcomes that are at least ``solved_at``."""
    solved_at: float
    notes: tuple[str, ...]
    """What about the outcomes looks as if ``solved_at`` were not meant for them."""
    disc: Interval
    items: dict[str, ItemAudit]
    correlations: dict[str, float | None]
    """Reward with length and number of turns; ``_given_outcome``: at equal outcome."""
    verdicts: int
    """Turns that were to be judged."""
    missing: dict[str, int]
    """Turns without a reward, by reason."""
    missing_share: float | None
    failed_share: float | None
    habits: dict[str, float | None]
    failures_among_best: float | None
    """Share of failures among the tenth that is rewarded most."""
    lying_tools: tuple[LyingTool, ...]
    spot_checks: tuple[Look, ...]


def graded(facts: Audit) -> Audit:
    """The same facts with verdict, reasons and suggested beta."""
    harmful, weak = _harms(facts), _weaknesses(facts)
    verdict: Literal["ok", "weak", "harmful"] = "harmful" if harmful else "weak" if weak else "ok"
    low = facts.disc.low or 0.0
    beta = 0.0 if harmful else round(effective_beta(BETA, low), 3)
    return facts.model_copy(
        update={"verdict": verdict, "reasons": tuple(harmful + weak), "suggested_beta": beta}
    )


def _harms(facts: Audit) -> list[str]:
    found = []
    if facts.disc.high is not None and facts.disc.high < 0:
        found.append(f"failures are rewarded above successes (disc {facts.disc.value:.2f})")
    for name, item in facts.items.items():
        say = item.variance_share is None or item.variance_share >= SAY
        if say and item.disc.high is not None and item.disc.high < 0:
            found.append(f"criterion {name!r} goes against the outcome (disc {item.disc.value:.2f})")
    return found


def _weaknesses(facts: Audit) -> list[str]:
    disc, needed = facts.disc, MIN_POOLED if facts.pooled else MIN_GROUPS
    found = []
    if disc.value is None:
        found.append("no group has both failures and successes with a reward: nothing to predict")
    elif disc.n < needed:
        found.append(f"{disc.n} informative {'rollouts' if facts.pooled else 'groups'}; {needed} are needed")
    elif disc.low is not None and (disc.low <= 0 or disc.value < LEAST_DISC):
        found.append(
            f"the reward is not shown to predict success (disc {disc.value:.2f}, from {disc.low:.2f})"
        )
    if (facts.failed_share or 0) > FAILED_SHARE:
        found.append(f"{facts.failed_share:.0%} of the verdicts failed")
    if (facts.missing_share or 0) > MISSING_SHARE:
        found.append(f"{facts.missing_share:.0%} of the turns have no reward")
    for name, item in facts.items.items():
        idle = item.disc.low is not None and item.disc.low <= 0
        if idle and (item.variance_share or 0) > IDLE_SHARE:
            found.append(f"criterion {name!r} moves the reward ({item.variance_share:.0%}) but not success")
    for name in ("turn_length_given_outcome", "turns_given_outcome"):
        value = facts.correlations[name]
        if value is not None and value > LENGTH_CORRELATION:
            found.append(
                f"at equal outcome the reward follows {name.removesuffix('_given_outcome')} ({value:.2f})"
            )
    for name, limit in HABIT_LIMITS.items():
        value = facts.habits[name]
        if value is not None and value > limit:
            found.append(f"{name}: {value:.0%} (limit {limit:.0%})")
    found += [f"tool {lie.tool!r} answers the same call differently" for lie in facts.lying_tools[:3]]
    return found
