"""From a run's evaluations to when it crossed, how much it learned and where it ended.

A run that ended early keeps its last success to the budget. A crossing counts when the target is reached by
enough evaluations in a row, at the first of them; a run without one is censored at its budget.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from axiomrm.eval.curves import Point, area

Row = dict[str, Any]
FINAL_POINTS = 2


class Reached(NamedTuple):
    rollouts: float
    """Of the crossing; the budget if there was none."""
    censored: bool
    point: dict[str, Any]
    """The evaluation at that time, with what was spent until then."""


def crossing(row: Row, target: float, in_succession: int = 2) -> Reached:
    """When the run crossed ``target`` for good measure."""
    points = [p for p in row["curve"] if p["success"] is not None]
    for first in range(len(points) - in_succession + 1):
        if all(p["success"] >= target for p in points[first : first + in_succession]):
            return Reached(float(points[first]["rollouts"]), False, points[first])
    return Reached(float(row["budget"]), True, row["curve"][-1])


def filled(row: Row) -> list[Point]:
    """The evaluations, with the last success again at the budget where the run ended before it."""
    points = [Point(p["rollouts"], p["success"]) for p in row["curve"]]
    known = [p for p in points if p.success is not None]
    if known and points[-1].rollouts < row["budget"]:
        points.append(Point(row["budget"], known[-1].success))
    return points


def auc(row: Row) -> float:
    """Mean success over the budget; NaN without two evaluations."""
    value = area(filled(row))
    return math.nan if value is None else value


def final(row: Row) -> float:
    """Mean success of the last evaluations of the run; NaN without any."""
    known = [p["success"] for p in row["curve"] if p["success"] is not None][-FINAL_POINTS:]
    return float(np.mean(known)) if known else math.nan


def restricted(times: Sequence[float]) -> float:
    """Restricted mean: a censored run counts with its budget, so the mean is a lower bound of what it needs."""
    return float(np.mean(times))
