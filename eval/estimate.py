"""A number with its interval, what it stands on and what was missing; an absent number is ``None``."""

import math
from statistics import NormalDist

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """Frozen; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Estimate(Value):
    """One measured number."""

    value: float | None
    """``None``: could not be measured."""
    low: float | None = None
    high: float | None = None
    """Ends of the interval; ``None``: too little data for one."""
    n: int = 0
    """Items that the value stands on."""
    missing: int = 0
    """Items without a result; they are left out, not guessed."""
    confidence: float = 0.95
    method: str = ""
    """How the interval was made, e.g. ``wilson``, ``bootstrap over users``."""

    @property
    def coverage(self) -> float | None:
        """Share of the items that had a result; ``None``: there were none."""
        total = self.n + self.missing
        return self.n / total if total else None

    def percent(self) -> str:
        """``71.0 % [64.2, 77.1]``; ``not measured`` if absent."""
        if self.value is None:
            return "not measured"
        interval = (
            "" if self.low is None or self.high is None else f" [{100 * self.low:.1f}, {100 * self.high:.1f}]"
        )
        return f"{100 * self.value:.1f} %{interval}"


NOT_MEASURED = Estimate(value=None)


def finite(value: float) -> float | None:
    """``None`` for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def wilson(successes: float, n: int, *, missing: int = 0, confidence: float = 0.95) -> Estimate:
    """A proportion with its Wilson score interval, which stays honest at 0, at 1 and for small ``n``.

    Args:
        successes: may be fractional (ties count a half); then the interval is slightly too wide.
        n: items with a result.
        missing: items without one.
        confidence: of the two-sided interval.
    """
    if n == 0:
        return Estimate(value=None, missing=missing, confidence=confidence)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = max(0.0, min(centre - half, share)), min(1.0, max(centre + half, share))
    return Estimate(
        value=share, low=low, high=high, n=n, missing=missing, confidence=confidence, method="wilson"
    )
