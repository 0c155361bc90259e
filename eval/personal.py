"""Does a judge know its user? Pair accuracy by user, gain over the generic judge, the swapped-profile check.

The user is the sampling unit: accuracies are means over users, intervals draw users. With another user's
profile the gain must vanish, or the profile is not what produced it. Gains pair the two judges on the same
pairs: a pair that either judge could not score counts for neither.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from axiomrm.eval.bootstrap import DRAWS, Array, from_draws, hierarchical, item_draws, over_seeds
from axiomrm.eval.estimate import Estimate, Value, finite, wilson

MIN_PAIRS = 8
"""Pairs that a user needs to be named as the worst one."""
NAN = float("nan")
ARMS = ("personal", "generic", "swapped")


class UserPair(NamedTuple):
    """One held-out choice of one user, as three judges saw it: 1 right, 0.5 tied, 0 wrong, NaN missing."""

    user: str
    personal: float
    """With the user's own profile; see ``preference.credit``."""
    generic: float
    """Without a profile."""
    swapped: float = NAN
    """With another user's profile, judged by this user's choice."""
    equal_quality: bool = False
    """The two answers are equally good by general standards, so only taste decides."""
    seen: bool = False
    """The user's other choices were trained on."""


class PersonalMetrics(Value):
    """One set of users."""

    users: int
    pairs: int
    missing: dict[str, int]
    """Pairs without a score, by judge."""
    personal: Estimate
    """Pair accuracy, mean over users."""
    generic: Estimate
    swapped: Estimate
    gain: Estimate
    """personal − generic."""
    swapped_gain: Estimate
    """swapped − generic; should be about 0."""
    swapped_drop: Estimate
    """personal − swapped; should be about the gain."""
    worst_decile: Estimate
    """Mean accuracy of the worst 10 % of users (at least one)."""
    worst_user: float | None
    """Accuracy of the worst user with at least eight pairs."""
    harmed: Estimate
    """Share of users for whom the generic judge is better."""

    @property
    def profile_is_used(self) -> bool | None:
        """The upper end of the swapped gain is below a third of the gain; ``None``: not measured."""
        if self.gain.value is None or self.swapped_gain.high is None:
            return None
        return self.swapped_gain.high < self.gain.value / 3


def personal_metrics(
    pairs_by_seed: Sequence[Sequence[UserPair]],
    *,
    draws: int = DRAWS,
    confidence: float = 0.95,
    seed: int = 0,
) -> PersonalMetrics:
    """Metrics over users, drawn together with seeds if there are several.

    Args:
        pairs_by_seed: held-out pairs, one sequence a training seed.
        draws: bootstrap samples.
        confidence: of all intervals.
        seed: of the draws.
    """
    everything = [pair for pairs in pairs_by_seed for pair in pairs]

    def over_users(score: Callable[[UserPair], float], *, accuracy: bool = False) -> Estimate:
        per_seed = [user_means(pairs, score) for pairs in pairs_by_seed]
        found = hierarchical(per_seed, draws=draws, confidence=confidence, seed=seed, unit="users")
        flat = found.value is not None and found.low == found.high and found.value in (0.0, 1.0)
        if flat and accuracy:
            return wilson(
                (found.value or 0.0) * found.n, found.n, missing=found.missing, confidence=confidence
            )
        return found

    return PersonalMetrics(
        users=len({pair.user for pair in everything}),
        pairs=len(everything),
        missing={a: sum(math.isnan(getattr(p, a)) for p in everything) for a in ARMS},
        personal=over_users(lambda p: p.personal, accuracy=True),
        generic=over_users(lambda p: p.generic, accuracy=True),
        swapped=over_users(lambda p: p.swapped, accuracy=True),
        gain=over_users(lambda p: p.personal - p.generic),
        swapped_gain=over_users(lambda p: p.swapped - p.generic),
        swapped_drop=over_users(lambda p: p.personal - p.swapped),
        worst_decile=_worst_decile(pairs_by_seed, draws, confidence, seed),
        worst_user=_worst_user(pairs_by_seed),
        harmed=_harmed(pairs_by_seed, confidence),
    )


def by_subset(
    pairs_by_seed: Sequence[Sequence[UserPair]], *, draws: int = DRAWS, seed: int = 0
) -> dict[str, PersonalMetrics]:
    """The equal-quality pairs, and seen and unseen users, each where there are any."""
    subsets: dict[str, Callable[[UserPair], bool]] = {
        "equal quality": lambda p: p.equal_quality,
        "seen users": lambda p: p.seen,
        "unseen users": lambda p: not p.seen,
    }
    found = {
        name: [[p for p in pairs if keep(p)] for pairs in pairs_by_seed] for name, keep in subsets.items()
    }
    return {name: personal_metrics(kept, draws=draws, seed=seed) for name, kept in found.items() if any(kept)}


def user_means(pairs: Sequence[UserPair], score: Callable[[UserPair], float]) -> Array:
    """``(U,)``: mean score of each user over the pairs that have one; NaN for a user without any."""
    return np.array([mean for mean, _ in _users(pairs, score).values()])


def _users(pairs: Sequence[UserPair], score: Callable[[UserPair], float]) -> dict[str, tuple[float, int]]:
    """Mean and number of present scores, by user."""
    scores: dict[str, list[float]] = {}
    for pair in pairs:
        value = score(pair)
        scores.setdefault(pair.user, []).extend([] if math.isnan(value) else [value])
    return {user: (float(np.mean(v)) if v else NAN, len(v)) for user, v in scores.items()}


def worst_tenth(means: Array) -> float:
    """Mean of the lowest 10 % of the values, at least one of them."""
    return float(np.sort(means)[: max(1, math.ceil(0.1 * means.size))].mean())


def _worst_decile(
    pairs_by_seed: Sequence[Sequence[UserPair]], draws: int, confidence: float, seed: int
) -> Estimate:
    rng = np.random.default_rng(seed)
    means = [user_means(pairs, lambda p: p.personal) for pairs in pairs_by_seed]
    present = [m[~np.isnan(m)] for m in means]
    missing = sum(m.size for m in means) - sum(p.size for p in present)
    kept = [p for p in present if p.size]
    if not kept:
        return Estimate(value=None, missing=missing, confidence=confidence)
    sampled = over_seeds([item_draws(p, worst_tenth, draws, rng) for p in kept], rng)
    return from_draws(
        float(np.mean([worst_tenth(p) for p in kept])),
        sampled,
        n=sum(p.size for p in kept),
        missing=missing,
        confidence=confidence,
        units=max(p.size for p in kept),
        unit="users",
    )


def _worst_user(pairs_by_seed: Sequence[Sequence[UserPair]]) -> float | None:
    users = [u for pairs in pairs_by_seed for u in _users(pairs, lambda p: p.personal).values()]
    return finite(min((mean for mean, n in users if n >= MIN_PAIRS), default=NAN))


def _harmed(pairs_by_seed: Sequence[Sequence[UserPair]], confidence: float) -> Estimate:
    gains = np.concatenate(
        [np.zeros(0), *(user_means(pairs, lambda p: p.personal - p.generic) for pairs in pairs_by_seed)]
    )
    present = gains[~np.isnan(gains)]
    harmed = int((present < -1e-12).sum())
    return wilson(harmed, present.size, missing=gains.size - present.size, confidence=confidence)
