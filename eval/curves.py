"""Learning curves: rollouts until half of the held-out tasks are solved, with runs that never get there.

A run that does not reach the target within its budget is *censored*: it counts as "more than the budget", it
is never dropped and never counted as the budget itself. A median that touches censored runs is a bound.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axiomrm.eval.bootstrap import DRAWS, iqm
from axiomrm.eval.estimate import Value


class Point(NamedTuple):
    """One evaluation during training."""

    rollouts: int
    """Training rollouts used so far."""
    success: float | None
    """On held-out or dev tasks; ``None``: not known."""


class Crossing(NamedTuple):
    """When one run reached the target."""

    rollouts: int
    """At the first evaluation that did, or the budget if none did."""
    censored: bool
    """The target was not reached."""


class RolloutsTo(Value):
    """Rollouts to the target, over the runs of one arm."""

    target: float
    median: float | None
    """``None``: no runs."""
    bounded: bool
    """The median lies among runs that never reached the target: it is *more than* ``median``."""
    low: float | None = None
    high: float | None = None
    """Bootstrap interval over runs (three or more); ``None``: an infinite end, the upper one flagged."""
    high_unbounded: bool = False
    runs: int = 0
    censored: int = 0
    budget: int | None = None
    """Greatest number of rollouts of a run."""

    def text(self) -> str:
        """``448 [320, > 1280] (1 of 3 never)``."""
        if self.median is None:
            return "not measured"
        high = (
            f"> {self.budget}" if self.high_unbounded else f"{self.high:g}" if self.high is not None else ""
        )
        interval = f" [{self.low:g}, {high}]" if self.low is not None and high else ""
        never = f" ({self.censored} of {self.runs} never)" if self.censored else ""
        return f"{'> ' if self.bounded else ''}{self.median:g}{interval}{never}"


def first_crossing(curve: Sequence[Point], target: float = 0.5) -> Crossing | None:
    """When a run first reached ``target``; ``None`` for a run without any known evaluation."""
    known = [p for p in curve if p.success is not None and not math.isnan(p.success)]
    if not known:
        return None
    for point in known:
        if point.success is not None and point.success >= target:
            return Crossing(point.rollouts, False)
    return Crossing(known[-1].rollouts, True)


def rollouts_to(
    curves: Sequence[Sequence[Point]],
    target: float = 0.5,
    *,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> RolloutsTo:
    """Median over runs of the rollouts to ``target``.

    Args:
        curves: evaluations of each run in order of rollouts.
        target: success rate to reach.
        draws: bootstrap samples over runs.
        confidence: of the interval.
        seed: of the draws.
    """
    found = [
        crossing for crossing in (first_crossing(curve, target) for curve in curves) if crossing is not None
    ]
    if not found:
        return RolloutsTo(target=target, median=None, bounded=False)
    budget = max(point.rollouts for curve in curves for point in curve)
    times = np.array([math.inf if c.censored else float(c.rollouts) for c in found])
    median = _median(times)
    summary = RolloutsTo(
        target=target,
        median=_median(np.array([c.rollouts for c in found]), upper=False) if math.isinf(median) else median,
        bounded=math.isinf(median),
        runs=len(found),
        censored=int(np.isinf(times).sum()),
        budget=budget,
    )
    if len(found) < 3:
        return summary
    return summary.model_copy(update=_interval(times, draws, confidence, seed))


def _interval(times: NDArray[Any], draws: int, confidence: float, seed: int) -> dict[str, Any]:
    """Fields of `RolloutsTo`: quantiles that are times of draws, so that infinity does not average."""
    rng = np.random.default_rng(seed)
    sampled = np.array([_median(times[rng.integers(times.size, size=times.size)]) for _ in range(draws)])
    tail = (1 - confidence) / 2
    low, high = np.quantile(sampled, [tail, 1 - tail], method="inverted_cdf")
    return {
        "low": None if math.isinf(low) else float(low),
        "high": None if math.isinf(high) else float(high),
        "high_unbounded": bool(math.isinf(high)),
    }


def best_rate(curves_by_rate: Mapping[float, Sequence[Sequence[Point]]], target: float = 0.5) -> float | None:
    """Learning rate with the fewest rollouts to ``target``; ties go to the greater area under the curve.

    ``None`` if no rate has a run. Choose on tuning seeds and report others, or the winner is flattered.
    """
    ranked = []
    for rate, curves in curves_by_rate.items():
        reached = rollouts_to(curves, target)
        if reached.median is not None:
            areas = [a for a in map(area, curves) if a is not None]
            ranked.append((reached.bounded, reached.median, -iqm(areas), rate))
    return min(ranked)[-1] if ranked else None


def area(curve: Sequence[Point]) -> float | None:
    """Mean success over the rollouts of a run (trapezoids between known evaluations); ``None`` below two."""
    known = [(p.rollouts, p.success) for p in curve if p.success is not None and not math.isnan(p.success)]
    if len(known) < 2 or known[-1][0] == known[0][0]:
        return None
    x, y = np.array([k[0] for k in known], dtype=float), np.array([k[1] for k in known], dtype=float)
    return float(np.sum((x[1:] - x[:-1]) * (y[1:] + y[:-1]) / 2) / (x[-1] - x[0]))


def _median(times: NDArray[Any], *, upper: bool = True) -> float:
    """Mean of the two middle times, or the lower of them; infinite as soon as one of them is."""
    ordered = np.sort(times).astype(float)
    lower, higher = ordered[(times.size - 1) // 2], ordered[times.size // 2]
    return float((lower + higher) / 2 if upper else lower)
