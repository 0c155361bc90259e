"""Per-user pair accuracy of the three arms, with intervals by user bootstrap (PRIVACY.md 6).

Only pairs that all three arms scored are compared. Users count alike, whatever their number of pairs.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from axiomrm.errors import DataError
from axiomrm.personalization.judging import PairScores

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean over users with its interval."""

    value: float
    """NaN: no user has a pair."""
    low: float
    high: float
    n: int
    """Users."""


@dataclass(frozen=True)
class Subset:
    """The three arms on one set of pairs."""

    generic: Estimate
    personal: Estimate
    swapped: Estimate
    gain: Estimate
    """Personal minus generic, a user at a time."""
    swapped_gain: Estimate
    """Swapped minus generic."""
    pairs: int


@dataclass(frozen=True)
class PersonalReport:
    """What personalisation bought."""

    all: Subset
    equal_quality: Subset
    """Pairs with the same outcome and share of right turns: only taste can decide."""
    worst_tenth: float
    """Mean personal accuracy of the worst 10 % of users (at least one); NaN without users."""
    harmed: float
    """Share of users whom the personal arm serves worse than the generic one."""
    unscored: int
    """Pairs without a score in some arm, left out everywhere."""

    @property
    def passes(self) -> bool:
        """Gain at least 0.10, and the upper bound of the swapped gain below a third of the gain."""
        return self.all.gain.value >= 0.10 and self.all.swapped_gain.high < self.all.gain.value / 3

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a JSON file."""
        return asdict(self)


def personal_report(
    scores: Sequence[PairScores], *, seed: int = 0, resamples: int = 2000, confidence: float = 0.95
) -> PersonalReport:
    """Summarise scored pairs.

    Args:
        scores: one a pair, of held-out users.
        seed: of the bootstrap.
        resamples: bootstrap samples of users.
        confidence: of the percentile intervals, in (0, 1).

    Raises:
        DataError: no pair was scored.
    """
    kept = [s for s in scores if s.scored]
    if not kept:
        raise DataError(
            f"none of {len(scores)} pairs has a score in all three arms; look at the failed verdicts"
        )
    rng = np.random.default_rng(seed)
    tail = (1 - confidence) / 2
    whole = _subset(kept, rng, resamples, tail)
    equal = _subset([s for s in kept if s.pair.equal_quality], rng, resamples, tail)
    per_user = _per_user(kept)
    personal = np.sort(per_user[:, 1])
    worst = personal[: max(1, round(len(personal) / 10))]
    return PersonalReport(
        all=whole,
        equal_quality=equal,
        worst_tenth=float(worst.mean()),
        harmed=float(np.mean(per_user[:, 1] < per_user[:, 0])),
        unscored=len(scores) - len(kept),
    )


def _per_user(scores: Sequence[PairScores]) -> Array:
    """``(U, 3)`` mean agreement of generic, personal, swapped."""
    rows: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for s in scores:
        rows[s.pair.user].append(tuple(float(v) for v in (s.generic, s.personal, s.swapped) if v is not None))
    return np.array([np.mean(found, axis=0) for found in rows.values()], dtype=np.float64).reshape(-1, 3)


def _subset(scores: Sequence[PairScores], rng: np.random.Generator, resamples: int, tail: float) -> Subset:
    per_user = _per_user(scores)
    generic, personal, swapped = per_user.T
    columns = np.stack([generic, personal, swapped, personal - generic, swapped - generic], axis=1)
    n = len(columns)
    if n == 0:
        nothing = Estimate(float("nan"), float("nan"), float("nan"), 0)
        return Subset(nothing, nothing, nothing, nothing, nothing, 0)
    means = columns[rng.integers(0, n, size=(resamples, n))].mean(axis=1)
    low, high = np.quantile(means, (tail, 1 - tail), axis=0)
    value = columns.mean(axis=0)
    g, p, s, gain, swapped_gain = (
        Estimate(float(v), float(a), float(b), n) for v, a, b in zip(value, low, high, strict=True)
    )
    return Subset(g, p, s, gain, swapped_gain, len(scores))
