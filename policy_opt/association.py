"""Correlations that know what they cannot say: NaN where there are too few pairs or nothing varies."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def known_mean(values: Sequence[float]) -> float:
    """Mean of the values that are not NaN; NaN if none is."""
    known = [v for v in values if not np.isnan(v)]
    return float(np.mean(known)) if known else float("nan")


def correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Pearson's r over pairs without NaN; NaN below three pairs or where one side does not vary."""
    table = _complete(x, y)
    if len(table) < 3 or np.ptp(table[:, 0]) == 0 or np.ptp(table[:, 1]) == 0:
        return float("nan")
    return float(np.corrcoef(table[:, 0], table[:, 1])[0, 1])


def partial_correlation(x: Sequence[float], y: Sequence[float], given: Sequence[float]) -> float:
    """Correlation of ``x`` and ``y`` with the linear part of ``given`` taken out of both.

    What does not vary takes nothing out; NaN below four complete triples or where a rest does not vary.
    """
    table = _complete(x, y, given)
    if len(table) < 4:
        return float("nan")
    rests = [_rest(table[:, column], table[:, 2]) for column in (0, 1)]
    if any(np.ptp(rest) < 1e-9 for rest in rests):
        return float("nan")
    return correlation(rests[0], rests[1])


def _rest(values: NDArray[np.float64], given: NDArray[np.float64]) -> list[float]:
    centred = given - given.mean()
    spread = float(centred @ centred)
    slope = float(centred @ values) / spread if spread > 0 else 0.0
    rest: list[float] = (values - values.mean() - slope * centred).tolist()
    return rest


def _complete(*columns: Sequence[float]) -> NDArray[np.float64]:
    table = np.array(list(zip(*columns, strict=True)), dtype=np.float64).reshape(-1, len(columns))
    complete: NDArray[np.float64] = table[~np.isnan(table).any(axis=1)]
    return complete
