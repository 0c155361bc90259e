"""Shared shapes of programmatic judges."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel, ConfigDict

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict

Run = Callable[[Trajectory, int | None, Any], Verdict]
"""``Any``: each judge takes its own arguments model."""


class Arguments(BaseModel):
    """Base of the argument models; itself: no arguments."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def scored(value: float, label: str = "", note: str = "") -> Scored:
    """An exact programmatic verdict."""
    return Scored(value=value, label=label, critique=note, mode="programmatic", readout="exact")


def metrics_of(trajectory: Trajectory) -> dict[str, Any]:
    """Recorded metrics; empty if there is no outcome."""
    return trajectory.outcome.metrics if trajectory.outcome is not None else {}


def recorded(trajectory: Trajectory, *names: str) -> tuple[Any, Verdict | None]:
    """The first of ``names`` that is in the metrics, or the verdict that says why there is none.

    ``metrics["runner_error"]`` (a text) marks a recording whose runner crashed.
    """
    metrics = metrics_of(trajectory)
    if metrics.get("runner_error"):
        return None, Failed(kind="infrastructure", detail=f"runner crashed: {metrics['runner_error']}"[:300])
    for name in names:
        if metrics.get(name) is not None:
            return metrics[name], None
    return None, CannotAssess(reason=f"outcome.metrics has no {' or '.join(repr(n) for n in names)}")


def number(value: Any, name: str) -> tuple[float, Verdict | None]:
    """A finite number ≥ 0, or ``Failed``: what was recorded is broken."""
    ok = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < float("inf")
    if ok:
        return float(value), None
    return 0.0, Failed(kind="infrastructure", detail=f"metric {name!r} is {value!r}, a number >= 0 is needed")
