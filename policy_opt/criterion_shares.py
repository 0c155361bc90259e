"""How much each criterion moves the reward of a turn."""

from collections.abc import Mapping, Sequence

import numpy as np


def criterion_shares(rewards: Sequence[float], parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Share of the turn reward's variance that each of several criteria supplies; they sum to 1.

    ``cov(part, sum of the parts) / var(sum of the parts)`` over the turns that have a reward and a part. A
    criterion that does not speak of a turn (absent, or NaN beside a known reward) gives 0 to its reward, so
    that criteria which never stand on one turn have shares too.

    Args:
        rewards: one a turn; NaN = missing.
        parts: what each reward consists of; NaN = missing.

    Returns:
        Empty below two criteria, below three such turns, and where the sum does not vary.
    """
    names = sorted({name for row in parts for name in row})
    if len(names) < 2:
        return {}
    table = np.array(
        [
            [row.get(name, np.nan) for name in names]
            for reward, row in zip(rewards, parts, strict=True)
            if not np.isnan(reward)
        ],
        dtype=np.float64,
    ).reshape(-1, len(names))
    table = np.nan_to_num(table[~np.isnan(table).all(axis=1)], nan=0.0)
    total = table.sum(axis=1)
    if len(table) < 3 or np.ptp(total) < 1e-12:
        return {}
    centred = total - total.mean()
    shares = (table - table.mean(axis=0)).T @ centred / float(centred @ centred)
    return dict(zip(names, shares.tolist(), strict=True))
