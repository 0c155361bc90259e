"""How much a user's own criteria may count: the share λ, and the weights among them (PRIVACY.md 3.2, 3.6).

λ shrinks to 0 with the evidence: λ = λ_max · n_eff / (n_eff + κ). The weight posterior is a Laplace-style
online update of P(a preferred to b) = σ(w·Δ), Δ = difference of criterion scores (in the spirit of LoRe,
arXiv:2504.14439, and PReF, arXiv:2503.06358).

Deviation from PRIVACY.md 3.6: the bound of 0.05 is kept by scaling the whole step of an event, before and
after the projection, so that the direction of the step stays.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from axiomrm.errors import ConfigError, DataError
from axiomrm.personalization.profile import FeedbackEvent, moment

LAMBDA_MAX = 0.4
KAPPA = 8.0
STATED_WORTH = 2.0
"""Events that one confirmed stated slot is worth."""
HALF_LIFE_DAYS = 60.0
MAX_STEP = 0.05
"""No event moves a weight by more."""
Array = npt.NDArray[np.float64]
"""Suffix C: criterion families."""


def share(n_eff: float, *, maximum: float = LAMBDA_MAX, kappa: float = KAPPA) -> float:
    """λ of a user: 0, 0.2, 0.3, 0.36 for n_eff = 0, 8, 24, 72.

    Args:
        n_eff: effective number of events, >= 0.
        maximum: λ_max in [0, 0.4].
        kappa: n_eff at which half of the maximum is reached, > 0.

    Raises:
        ConfigError: a number outside its range.
    """
    if not 0 <= maximum <= LAMBDA_MAX:
        raise ConfigError(f"lambda_max {maximum!r} must be in [0, {LAMBDA_MAX}]")
    if not kappa > 0:
        raise ConfigError(f"kappa {kappa!r} must be > 0")
    if not (math.isfinite(n_eff) and n_eff >= 0):
        raise ConfigError(f"n_eff {n_eff!r} must be a finite number >= 0")
    return maximum * n_eff / (n_eff + kappa)


def event_evidence(
    events: Iterable[FeedbackEvent], now: datetime, half_life_days: float = HALF_LIFE_DAYS
) -> float:
    """Σ 2^(−age / half-life) over a user's choices; a tie is a choice too.

    Raises:
        ConfigError: the half-life is not > 0.
        DataError: an event lies in the future of ``now``, or ``now`` has no time zone.
    """
    now = moment(now)
    if not half_life_days > 0:
        raise ConfigError(f"half_life_days {half_life_days!r} must be > 0")
    total = 0.0
    for event in events:
        age = (now - event.created_at).total_seconds() / 86400
        if age < 0:
            raise DataError(f"event of {event.created_at.isoformat()} lies after now = {now.isoformat()}")
        total += 2.0 ** (-age / half_life_days)
    return total


@dataclass(frozen=True)
class WeightPosterior:
    """Mean and precision over the weights of C criterion families."""

    mean_C: Array
    """On the simplex: each >= 0, sum 1."""
    precision_CC: Array
    prior_precision_CC: Array
    steepness: float = 8.0
    """Scale of w·Δ inside the logistic function; weights on the simplex alone could never say "surely"."""

    @classmethod
    def uniform(cls, n: int, prior_sd: float = 0.25) -> "WeightPosterior":
        """Equal weights for ``n`` families.

        Raises:
            ConfigError: ``n`` or the standard deviation is not positive.
        """
        if n < 1 or not prior_sd > 0:
            raise ConfigError(f"need n >= 1 families and prior_sd > 0, found {n!r} and {prior_sd!r}")
        precision = np.eye(n) / prior_sd**2
        return cls(np.full(n, 1.0 / n), precision, precision)

    def probability(self, delta_C: Array) -> float:
        """P(a preferred to b) for the score difference a − b."""
        return float(1.0 / (1.0 + np.exp(-self.steepness * float(self.mean_C @ delta_C))))

    def updated(self, delta_C: Array, chose_a: bool, gamma: float = 0.98) -> "WeightPosterior":
        """The posterior after one choice.

        Args:
            delta_C: ``(C,)`` criterion scores of a minus those of b, each in [−1, 1]. With a score missing
                there is no event: leave it out.
            chose_a: what the user chose.
            gamma: forgetting, in (0, 1]; 1 keeps everything.

        Raises:
            DataError: a difference is not a finite number in [−1, 1], or there are not C of them.
        """
        delta = np.asarray(delta_C, dtype=np.float64)
        if delta.shape != self.mean_C.shape or not np.all(np.abs(delta) <= 1):
            raise DataError(f"delta {delta.tolist()!r} must hold {self.mean_C.size} numbers in [-1, 1]")
        p = self.probability(delta)
        scaled = self.steepness * delta
        precision = gamma * self.precision_CC + (1 - gamma) * self.prior_precision_CC
        precision += p * (1 - p) * np.outer(scaled, scaled)
        step: Array = np.asarray(np.linalg.solve(precision, scaled), dtype=np.float64) * (float(chose_a) - p)
        moved = project_to_simplex(self.mean_C + _bounded(step))
        mean = self.mean_C + _bounded(moved - self.mean_C)
        return WeightPosterior(mean, precision, self.prior_precision_CC, self.steepness)


def _bounded(step_C: Array) -> Array:
    largest = float(np.max(np.abs(step_C)))
    return step_C * (MAX_STEP / largest) if largest > MAX_STEP else step_C


def project_to_simplex(weights_C: Array) -> Array:
    """The nearest point with weights >= 0 that sum to 1 (Euclidean)."""
    ordered = np.sort(weights_C)[::-1]
    surplus = np.cumsum(ordered) - 1.0
    kept = np.nonzero(ordered - surplus / np.arange(1, ordered.size + 1) > 0)[0][-1]
    moved: Array = np.maximum(weights_C - surplus[kept] / (kept + 1), 0.0)
    return moved
