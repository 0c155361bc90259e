"""Was RL worth it? Cold start, best-of-K at equal compute and RL on the same held-out tasks, with costs."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from axiomrm.eval.bootstrap import DRAWS
from axiomrm.eval.estimate import NOT_MEASURED, Estimate, Value
from axiomrm.eval.policy import success_by_task, success_gain

EQUAL_COMPUTE = 0.15
"""Greatest relative difference of two costs that still counts as equal."""
Answer = Literal["yes", "no", "undecided", "not measured"]


class Cost(Value):
    """What training took, summed over the arm's run (mean over seeds); ``None``: not recorded."""

    rollouts: float | None = None
    generated_tokens: float | None = None
    trained_tokens: float | None = None
    """Tokens through a backward pass."""
    judge_calls: float | None = None
    seconds: float | None = None


class Arm(Value):
    """One way to get a policy."""

    name: str
    label: str = ""
    """As shown; default: the name."""
    role: Literal["cold_start", "best_of_k", "rl", "other"] = "other"
    outcomes: tuple[dict[str, tuple[float | None, ...]], ...]
    """Held-out verifier scores by task, one mapping a training seed."""
    cost: Cost = Cost()


class WorthRow(Value):
    """One line of the table."""

    name: str
    label: str
    role: str
    success: Estimate
    over_cold_start: Estimate
    cost: Cost


class WorthTable(Value):
    """The comparison and its answer."""

    rows: tuple[WorthRow, ...]
    rl_over_best_of_k: Estimate = NOT_MEASURED
    equal_compute: bool | None = None
    """Whether RL and best-of-K cost the same within 15 %; ``None``: not recorded."""
    compared_cost: str = ""
    """Which cost that was."""
    answer: Answer = "not measured"
    reason: str = ""
    seeds: int = Field(default=0, ge=0)


def worth_table(
    arms: Sequence[Arm], *, draws: int = DRAWS, confidence: float = 0.95, seed: int = 0
) -> WorthTable:
    """Compare arms task by task.

    Args:
        arms: at most one each with the roles ``cold_start``, ``best_of_k`` and ``rl``.
        draws: bootstrap samples; they draw seeds, then tasks.
        confidence: of all intervals.
        seed: of the draws.

    Returns:
        ``answer`` is ``yes`` (``no``) if the interval of RL minus best-of-K (minus the cold start, where
        there is no best-of-K) lies above (below) 0, ``undecided`` if it holds 0.

    Raises:
        ValueError: two arms have the same role of the three.
    """
    start, best, rl = (_with_role(arms, role) for role in ("cold_start", "best_of_k", "rl"))

    def gain(a: Arm | None, b: Arm | None) -> Estimate:
        return _gain(a, b, draws, confidence, seed)

    def row(arm: Arm) -> WorthRow:
        success = success_by_task(arm.outcomes, draws=draws, confidence=confidence, seed=seed)
        over = NOT_MEASURED if arm is start else gain(arm, start)
        names = {"name": arm.name, "label": arm.label or arm.name, "role": arm.role}
        return WorthRow(**names, success=success, over_cold_start=over, cost=arm.cost)

    against = gain(rl, best)
    equal, compared = _equal_compute(rl, best)
    answer, reason = _answer(against, gain(rl, start), equal)
    return WorthTable(
        rows=tuple(map(row, arms)),
        rl_over_best_of_k=against,
        equal_compute=equal,
        compared_cost=compared,
        answer=answer,
        reason=reason,
        seeds=max((len(arm.outcomes) for arm in arms), default=0),
    )


def _gain(a: Arm | None, b: Arm | None, draws: int, confidence: float, seed: int) -> Estimate:
    if a is None or b is None or not a.outcomes or len(b.outcomes) not in (1, len(a.outcomes)):
        return NOT_MEASURED
    return success_gain(a.outcomes, b.outcomes, draws=draws, confidence=confidence, seed=seed)


def _with_role(arms: Sequence[Arm], role: str) -> Arm | None:
    found = [arm for arm in arms if arm.role == role]
    if len(found) > 1:
        raise ValueError(f"arms {[arm.name for arm in found]} all have the role {role!r}; one may")
    return found[0] if found else None


def _equal_compute(rl: Arm | None, best: Arm | None) -> tuple[bool | None, str]:
    """Compared by generated tokens where both recorded them, else by rollouts."""
    if rl is None or best is None:
        return None, ""
    for field, shown in (("generated_tokens", "generated tokens"), ("rollouts", "rollouts")):
        a, b = getattr(rl.cost, field), getattr(best.cost, field)
        if a is not None and b is not None and max(a, b) > 0:
            return abs(a - b) / max(a, b) <= EQUAL_COMPUTE, shown
    return None, ""


def _answer(against: Estimate, over_start: Estimate, equal: bool | None) -> tuple[Answer, str]:
    compared, other = (against, "best-of-K") if against.value is not None else (over_start, "the cold start")
    if compared.value is None or compared.low is None or compared.high is None:
        return "not measured", "RL was not compared with anything"
    low, high = f"{100 * compared.low:+.1f}", f"{100 * compared.high:+.1f}"
    points = f"{100 * compared.value:+.1f} points over {other} [{low}, {high}]"
    caveat = "" if other == "the cold start" or equal else "; the compute of the two is not equal"
    if other != "the cold start" and equal is None:
        caveat = "; the compute of the two was not recorded"
    if compared.low > 0:
        return "yes", points + caveat
    if compared.high < 0:
        return "no", points + caveat
    return "undecided", points + caveat
