"""Local returns of one trajectory from its per-turn rewards.

Missing stays missing: a return that needs a missing reward is NaN, later ones are not. One discount a turn;
observations between turns have no reward, no discount and no reset.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LocalReturn = Literal["immediate", "rtg", "delta"]
FloatArray = NDArray[np.float64]


def immediate(r_local: Sequence[float]) -> FloatArray:
    """The turn's own reward: the judge already answers "did this turn help the goal"."""
    return np.asarray(r_local, dtype=np.float64)


def return_to_go(
    r_local: Sequence[float],
    *,
    gamma: float = 0.95,
    cost: float | Sequence[float] = 0.0,
    tail: float = 0.0,
) -> FloatArray:
    """Discounted sum of ``r - cost`` from each turn on.

    Args:
        r_local: one a turn; NaN = missing.
        gamma: discount a turn, in [0, 1].
        cost: declared cost of a turn (the running mean of ``r_local``), one for all or one each; with 0 and
            positive rewards the policy learns to talk.
        tail: value of the state where the trajectory was cut; 0 if it ended by itself, NaN if it was cut and
            no baseline exists (then every return of the trajectory is missing).
    """
    out = np.empty(len(r_local), dtype=np.float64)
    cost_T, value = np.broadcast_to(cost, len(r_local)), tail
    for t in range(len(r_local) - 1, -1, -1):
        value = (r_local[t] - float(cost_T[t])) + gamma * value
        out[t] = value
    return out


def progress_delta(progress: Sequence[float], *, terminal: float, gamma: float = 1.0) -> FloatArray:
    """``gamma * value(next state) - value(state)``: stalling and extra turns earn nothing.

    Args:
        progress: the judge's value of the state before each turn; NaN = missing.
        terminal: value of the last state, credited at once: the outcome or the state's own score. 0 here
            would punish finishing; use 0 only where the deltas are summed to a return-to-go (policy
            invariance).
        gamma: discount a turn.
    """
    values = np.asarray([*progress, terminal], dtype=np.float64)
    delta: FloatArray = gamma * values[1:] - values[:-1]
    return delta


def local_returns(
    kind: LocalReturn,
    r_local: Sequence[float],
    progress: Sequence[float],
    *,
    gamma: float,
    cost: float | Sequence[float],
    tail: float,
    terminal: float,
) -> FloatArray:
    """The configured local return of one trajectory; see the three functions above."""
    if kind == "immediate":
        return immediate(r_local)
    if kind == "rtg":
        return return_to_go(r_local, gamma=gamma, cost=cost, tail=tail)
    return progress_delta(progress, terminal=terminal, gamma=gamma)
