"""From the facts of an audit to its grade.

``harmful``: the reward, or a criterion with a say in it, ranks failures above successes (the interval says
so, and enough groups inform it). ``weak``: it cannot be shown to rank them right, or it shows signs of being
gameable. Else ``ok``. The suggested beta is that of the interval's lower end, and 0 from too few groups.
Thresholds are starting values of ours. What criteria whose sign disagrees with the outcome do to training:
arXiv:2604.02869.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from axiomrm.policy_opt.advantages import effective_beta
from axiomrm.policy_opt.audit.tools import LyingTool

MIN_GROUPS = 20
"""Informative groups below which a reward or a criterion is neither good nor harmful: a bootstrap over a few
is far too sure."""
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
    """A number with its 95 % bootstrap interval; ``None``: cannot be said, ends of fewer than two units."""

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
    known = not harmful and facts.disc.n >= _needed(facts)
    beta = round(effective_beta(BETA, facts.disc.low or 0.0), 3) if known else 0.0
    return facts.model_copy(
        update={"verdict": verdict, "reasons": tuple(harmful + weak), "suggested_beta": beta}
    )


def _needed(facts: Audit) -> int:
    return MIN_POOLED if facts.pooled else MIN_GROUPS


def _too_few(facts: Audit, disc: Interval) -> str:
    return f"{disc.n} informative {'rollouts' if facts.pooled else 'groups'}; {_needed(facts)} are needed"


def _has_say(facts: Audit, item: ItemAudit) -> bool:
    """Alone, or with enough of the variance."""
    return len(facts.items) == 1 if item.variance_share is None else item.variance_share >= SAY


def _against(disc: Interval) -> bool:
    """Failures rank above successes, as far as can be seen."""
    return disc.value is not None and (disc.value if disc.high is None else disc.high) < 0


def _harms(facts: Audit) -> list[str]:
    found = []
    if _against(facts.disc) and facts.disc.n >= _needed(facts):
        found.append(f"failures are rewarded above successes (disc {facts.disc.value:.2f})")
    for name, item in facts.items.items():
        if _has_say(facts, item) and _against(item.disc) and item.disc.n >= _needed(facts):
            found.append(f"criterion {name!r} goes against the outcome (disc {item.disc.value:.2f})")
    return found


def _weaknesses(facts: Audit) -> list[str]:
    disc, found = facts.disc, []
    if disc.value is None:
        found.append("no group has both failures and successes with a reward: nothing to predict")
    elif disc.n < _needed(facts):
        found.append(_too_few(facts, disc))
    elif disc.low is not None and (disc.low <= 0 or disc.value < LEAST_DISC):
        found.append(
            f"the reward is not shown to predict success (disc {disc.value:.2f}, from {disc.low:.2f})"
        )
    if (facts.failed_share or 0) > FAILED_SHARE:
        found.append(f"{facts.failed_share:.0%} of the verdicts failed")
    if (facts.missing_share or 0) > MISSING_SHARE:
        found.append(f"{facts.missing_share:.0%} of the turns have no reward")
    found += _weak_criteria(facts)
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


def _weak_criteria(facts: Audit) -> list[str]:
    """Criteria that move the reward and are not shown to predict success; of too few groups each, said only
    where the whole reward has enough of them."""
    found = []
    for name, item in facts.items.items():
        share = item.variance_share or 0
        idle = share > IDLE_SHARE and (item.disc.low is None or item.disc.low <= 0)
        if item.disc.n >= _needed(facts):
            if idle:
                found.append(f"criterion {name!r} moves the reward ({share:.0%}) but not success")
        elif facts.disc.n >= _needed(facts) and (idle or (_has_say(facts, item) and _against(item.disc))):
            found.append(f"criterion {name!r}: {_too_few(facts, item.disc)}")
    return found
