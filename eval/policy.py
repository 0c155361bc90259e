"""Success and behaviour of a policy on held-out tasks; an outcome without a verdict is missing."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from math import comb

import numpy as np

from axiomrm.eval.bootstrap import DRAWS, Array, bootstrap, from_draws, hierarchical
from axiomrm.eval.estimate import Estimate, wilson

Outcomes = Mapping[str, Sequence[float | None]]
"""Verifier scores of one policy: task id to one score a rollout; ``None`` or NaN = no result."""
SOLVED = 1 - 1e-9
ROUNDING = 1e-9
"""Draws that lie closer together are equal; rates are fractions of a few rollouts."""


def solved(score: float | None, threshold: float = SOLVED) -> float:
    """1 or 0; NaN for a missing score."""
    if score is None or math.isnan(score):
        return float("nan")
    return float(score >= threshold)


def success(
    scores: Sequence[float | None], *, threshold: float = SOLVED, confidence: float = 0.95
) -> Estimate:
    """Success rate of independent rollouts, one a task, with a Wilson interval."""
    known = [s for s in (solved(score, threshold) for score in scores) if not math.isnan(s)]
    return wilson(sum(known), len(known), missing=len(scores) - len(known), confidence=confidence)


def success_by_task(
    outcomes_by_seed: Sequence[Outcomes],
    *,
    threshold: float = SOLVED,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Mean over tasks of each task's success rate; intervals draw training seeds, then tasks.

    With one seed and one rollout a task this is `success`, Wilson interval included; so is a rate of 0 or 1,
    and any other that all tasks share.
    """
    rates = [task_rates(outcomes, threshold) for outcomes in outcomes_by_seed]
    scores = [score for outcomes in outcomes_by_seed for group in outcomes.values() for score in group]
    plain = success(scores, threshold=threshold, confidence=confidence)
    single = len(rates) == 1 and all(len(group) == 1 for group in outcomes_by_seed[0].values())
    if single or plain.value in (None, 0.0, 1.0):
        return plain
    found = hierarchical(rates, draws=draws, confidence=confidence, seed=seed, unit="tasks")
    if _without_spread(found):
        return plain
    return found.model_copy(update={"n": plain.n, "missing": plain.missing})


def task_rates(outcomes: Outcomes, threshold: float = SOLVED) -> Array:
    """``(tasks,)`` success rates in the order of the mapping; NaN for a task without a known outcome."""
    return np.array([_rate(group, threshold) for group in outcomes.values()])


def success_gain(
    a_by_seed: Sequence[Outcomes],
    b_by_seed: Sequence[Outcomes],
    *,
    threshold: float = SOLVED,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> Estimate:
    """Success of ``a`` minus ``b`` on the tasks that both have; a task missing on either side is missing.

    Args:
        a_by_seed: one policy, one mapping a training seed.
        b_by_seed: the other; one mapping for every seed of ``a``, or a single one that stands for all.
        threshold: least score that counts as solved.
        draws: bootstrap samples; they draw seeds, then tasks.
        confidence: of the interval.
        seed: of the draws.

    Raises:
        ValueError: the numbers of seeds do not match.
    """
    if len(b_by_seed) not in (1, len(a_by_seed)):
        raise ValueError(f"{len(a_by_seed)} seeds against {len(b_by_seed)}; give as many, or one for all")
    others = list(b_by_seed) * (len(a_by_seed) // len(b_by_seed))
    gains = [
        {t: _rate(a[t], threshold) - _rate(b[t], threshold) for t in a if t in b}
        for a, b in zip(a_by_seed, others, strict=True)
    ]
    each = [np.array(list(gain.values())) for gain in gains]
    found = hierarchical(each, draws=draws, confidence=confidence, seed=seed, unit="paired tasks")
    if found.value is None or not (found.low is None or _without_spread(found)):
        return found
    left = [_compared(a, gain) for a, gain in zip(a_by_seed, gains, strict=True)]
    right = [_compared(b, gain) for b, gain in zip(others, gains, strict=True)]
    if len(b_by_seed) == 1:  # It stands for every seed, but its rollouts are there once.
        right = [{task: group for one in right for task, group in one.items()}]
    rate = partial(success_by_task, threshold=threshold, draws=draws, confidence=confidence, seed=seed)
    return _newcombe(found, rate(left), rate(right))


def _compared(outcomes: Outcomes, gains: Mapping[str, float]) -> Outcomes:
    """Those of the tasks whose gain is known."""
    return {task: outcomes[task] for task, gain in gains.items() if not math.isnan(gain)}


def pass_hat_k(outcomes: Outcomes, k: int, *, threshold: float = SOLVED) -> Estimate:
    """Chance that ``k`` rollouts of a task all succeed (arXiv:2406.12045), unbiased from n ≥ k rollouts.

    A task with fewer than ``k`` known outcomes is missing. Where all tasks agree: Wilson interval over tasks.
    """
    values = []
    for group in outcomes.values():
        known = [s for s in (solved(score, threshold) for score in group) if not math.isnan(s)]
        values.append(comb(int(sum(known)), k) / comb(len(known), k) if len(known) >= k else math.nan)
    found = bootstrap(values, unit="tasks")
    return _wilson_ends(found, found.n)


def behaviour(
    rollouts_by_seed: Sequence[Sequence[Mapping[str, float | None]]], *, draws: int = DRAWS, seed: int = 0
) -> dict[str, Estimate]:
    """Mean over rollouts of each behavioural metric; ``None`` = no opportunity in that rollout, left out.

    Args:
        rollouts_by_seed: for each training seed, one mapping of metric to value a rollout.
        draws: bootstrap samples; they draw seeds, then rollouts.
        seed: of the draws.
    """
    names = dict.fromkeys(name for rollouts in rollouts_by_seed for rollout in rollouts for name in rollout)
    return {
        name: hierarchical(
            [np.array([_number(r.get(name)) for r in rollouts]) for rollouts in rollouts_by_seed],
            draws=draws,
            seed=seed,
            unit="rollouts",
        )
        for name in names
    }


def probability_of_improvement(
    a: Sequence[float], b: Sequence[float], *, draws: int = DRAWS, confidence: float = 0.95, seed: int = 0
) -> Estimate:
    """Chance that a run of ``a`` beats one of ``b``, a tie a half (arXiv:2108.13264); draws runs of both.

    Where all draws agree (every run of one beats every run of the other), the Wilson interval of as many runs
    as the side with fewer has.
    """
    left, right = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    left, right = left[~np.isnan(left)], right[~np.isnan(right)]
    missing = len(a) + len(b) - left.size - right.size
    if not left.size or not right.size:
        return Estimate(value=None, missing=missing, confidence=confidence)
    wins = (left[:, None] > right) + 0.5 * (left[:, None] == right)
    rng = np.random.default_rng(seed)
    rows, columns = (
        rng.integers(left.size, size=(draws, left.size)),
        rng.integers(right.size, size=(draws, right.size)),
    )
    sampled = np.array([wins[np.ix_(i, j)].mean() for i, j in zip(rows, columns, strict=True)])
    units = min(left.size, right.size)
    found = from_draws(
        float(wins.mean()),
        sampled,
        n=left.size + right.size,
        missing=missing,
        confidence=confidence,
        units=units,
        unit="runs",
    )
    return _wilson_ends(found, units)


def _without_spread(found: Estimate) -> bool:
    """All bootstrap draws agree up to rounding, which says nothing of how far the value may be off."""
    return found.low is not None and found.high is not None and found.high - found.low < ROUNDING


def _wilson_ends(found: Estimate, units: int) -> Estimate:
    """With the interval of a share of ``units`` where all draws agree."""
    if found.value is None or not _without_spread(found):
        return found
    own = wilson(found.value * units, units, confidence=found.confidence)
    return found.model_copy(update={"low": own.low, "high": own.high, "method": own.method})


def _newcombe(found: Estimate, a: Estimate, b: Estimate) -> Estimate:
    """Where every task differs by the same amount: the interval of the two rates' (Newcombe 1998)."""
    if None in (found.value, a.value, a.low, a.high, b.value, b.low, b.high):
        return found
    va, la, ha, vb, lb, hb = (float(x or 0.0) for x in (a.value, a.low, a.high, b.value, b.low, b.high))
    down, up = math.hypot(va - la, hb - vb), math.hypot(ha - va, vb - lb)
    value = found.value or 0.0
    ends = {"low": max(-1.0, value - down), "high": min(1.0, value + up), "method": "newcombe"}
    return found.model_copy(update=ends)


def _rate(group: Sequence[float | None], threshold: float) -> float:
    known = [s for s in (solved(score, threshold) for score in group) if not math.isnan(s)]
    return float(np.mean(known)) if known else float("nan")


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)
