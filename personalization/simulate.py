"""Simulated users: choices come from hidden mixtures of tastes plus noise, never from compiled criteria.

A user's utility of a dialogue is ``(1 − q)·Σ_f s_f·m_f·z_f + q·quality``: magnitudes m from a sparse
Dirichlet distribution, directions s = ±1, z_f ∈ [−1, 1] how much of habit f the dialogue shows (0: nothing
shows it), quality ∈ [−1, 1] from the verifier and the share of right turns, q the user's own weight of
quality. A choice is drawn from σ(β·(u_a − u_b)).

What the user *states* is a coarse, noisy reflection: small tastes are often not stated, some are stated the
wrong way round, and nothing says how much each one matters. Mixtures, because personas that a model writes
come out too alike (arXiv:2409.20296). How the numbers of ``Population`` were chosen: docs/PERSONAL.md.
"""

import math
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError, DataError
from axiomrm.personalization.profile import PURPOSES, Profile, Purpose, profile_of

FEATURES = ("short", "casual", "named", "next_steps", "batched")
BehaviourOf = Callable[[Trajectory], Mapping[str, float | None]]
"""Dialogue → how much of each habit it shows, in [0, 1]; ``None``: nothing shows it."""
MIN_DIFFERING = 2
"""Habits in which the two dialogues of a pair differ, at least: a choice is asked between two manners."""
_SLOTS: dict[str, tuple[str, tuple[bool | int | str, ...], tuple[bool | int | str, ...]]] = {
    "short": ("stated.verbosity", (1, 2), (4, 5)),
    "casual": ("stated.tone", ("casual",), ("formal",)),
    "named": ("stated.use_name", (True,), (False,)),
    "next_steps": ("stated.next_steps", (True,), (False,)),
    "batched": ("stated.batched_questions", (True,), (False,)),
}
"""Habit → slot, values that say "yes please", values that say "please not"."""
_ALLOWED: tuple[Purpose, ...] = (*PURPOSES, "rm_training")
"""What simulated users say yes to: some of them are those that a judge is trained on."""


@dataclass(frozen=True)
class Population:
    """How users are drawn; with the defaults who knew every taste would be right in .91 of choices."""

    concentration: float = 0.4
    """Of the Dirichlet distribution over habits: below 1 a user cares about one or two of them."""
    quality_low: float = 0.15
    quality_high: float = 0.65
    """The weight of quality is uniform between these."""
    steepness: float = 10.0
    """β: ln odds for a utility difference of 1."""
    stated_above: float = 0.15
    """Magnitude from which a habit is stated with ``p_stated``; a smaller one with ``p_stated_small``."""
    p_stated: float = 0.95
    p_stated_small: float = 0.3
    p_wrong_way: float = 0.04
    """A stated direction is the wrong one."""


POPULATION = Population()


@dataclass(frozen=True)
class SimulatedUser:
    """One user; ``tastes`` and ``quality`` are hidden from everything but the drawing of choices."""

    id: str
    profile: Profile
    tastes: Mapping[str, float] = field(repr=False)
    """Habit → signed weight; magnitudes sum to 1."""
    quality: float = field(repr=False)
    steepness: float = field(repr=False)

    def utility(self, behaviour: Mapping[str, float | None], quality: float) -> float:
        """How much the user likes a dialogue.

        Args:
            behaviour: habit → [0, 1] or ``None``.
            quality: in [0, 1].
        """
        liked = sum(w * (2 * v - 1) for f, w in self.tastes.items() if (v := behaviour.get(f)) is not None)
        return (1 - self.quality) * liked + self.quality * (2 * quality - 1)


@dataclass(frozen=True)
class UserPair:
    """Two dialogues of one task, and which one the user chose."""

    user: str
    a: str
    """Trajectory id."""
    b: str
    task_id: str
    choice: Literal["a", "b"]
    equal_quality: bool
    """Same outcome and same share of right turns: only taste can decide."""


def draw_users(
    n: int,
    rng: random.Random,
    population: Population = POPULATION,
    prefix: str = "u",
) -> list[SimulatedUser]:
    """``n`` users with ids ``prefix0`` …; two prefixes give disjoint sets.

    Raises:
        ConfigError: fewer than two users: a profile could not be swapped.
    """
    if n < 2:
        raise ConfigError(f"need at least 2 users so that profiles can be swapped, found {n!r}")
    return [_draw_user(f"{prefix}{i}", rng, population) for i in range(n)]


def _draw_user(name: str, rng: random.Random, population: Population) -> SimulatedUser:
    raw = [rng.gammavariate(population.concentration, 1.0) for _ in FEATURES]
    total = sum(raw)
    tastes = {f: rng.choice((-1, 1)) * g / total for f, g in zip(FEATURES, raw, strict=True)}
    quality = rng.uniform(population.quality_low, population.quality_high)
    slots: dict[str, bool | int | str] = {}
    for habit, weight in tastes.items():
        known = abs(weight) >= population.stated_above
        if rng.random() >= (population.p_stated if known else population.p_stated_small):
            continue
        key, yes, no = _SLOTS[habit]
        positive = (weight > 0) != (rng.random() < population.p_wrong_way)
        slots[key] = rng.choice(yes if positive else no)
        if habit == "short" and not known and rng.random() < 0.5:
            slots[key] = 3
    profile = profile_of(name, slots, purposes=_ALLOWED)
    return SimulatedUser(name, profile, tastes, quality, population.steepness)


def quality_of(trajectory: Trajectory) -> tuple[float, float]:
    """The verifier's outcome and the share of right turns among those that were right or wrong.

    Raises:
        DataError: the recording lacks an outcome or the oracle's word on its turns (``metadata["oracle"]``).
    """
    oracle = [v for v in trajectory.metadata.get("oracle", ()) if v]
    score = trajectory.outcome.score if trajectory.outcome is not None else None
    if score is None or not oracle:
        raise DataError(
            f"trajectory {trajectory.id!r}: users are simulated on recordings with outcome and oracle"
        )
    return score, sum(v > 0 for v in oracle) / len(oracle)


def draw_pairs(
    users: Sequence[SimulatedUser],
    recordings: Sequence[Trajectory],
    behaviour_of: BehaviourOf,
    rng: random.Random,
    *,
    per_user: int = 20,
    equal_share: float = 0.4,
) -> list[UserPair]:
    """Pairs of dialogues of one task by agents that wrote differently, with the choices of each user.

    Args:
        users: whose choices are drawn.
        recordings: rollouts with distinct ids, several a task.
        behaviour_of: reads the habits off a dialogue.
        rng: draws pairs, order and choices.
        per_user: pairs a user; no user meets a pair twice.
        equal_share: share of pairs of equal quality, as far as there are enough of them.

    Raises:
        DataError: two recordings share an id, or there are too few pairs.
    """
    if len({t.id for t in recordings}) < len(recordings):
        raise DataError("two recordings share an id; name the agents of one task differently")
    seen = {t.id: _Seen(t.task_id, behaviour_of(t), quality_of(t)) for t in recordings}
    equal, other = _candidates(recordings, seen)
    if len(equal) + len(other) < per_user:
        raise DataError(f"{len(equal) + len(other)} pairs of different habits, need {per_user} a user")
    out = []
    for user in users:
        n_equal = min(len(equal), max(round(per_user * equal_share), per_user - len(other)))
        chosen = rng.sample(equal, n_equal) + rng.sample(other, min(len(other), per_user - n_equal))
        rng.shuffle(chosen)
        out += [_choice(user, pair, seen, rng) for pair in chosen]
    return out


def _choice(
    user: SimulatedUser, pair: tuple[str, str], seen: Mapping[str, "_Seen"], rng: random.Random
) -> UserPair:
    """What the user prefers of two recordings, shown in either order."""
    a, b = pair if rng.random() < 0.5 else (pair[1], pair[0])
    gap = user.utility(*seen[a].told) - user.utility(*seen[b].told)
    choice: Literal["a", "b"] = "a" if rng.random() < 1 / (1 + math.exp(-user.steepness * gap)) else "b"
    return UserPair(user.id, a, b, seen[a].task_id, choice, seen[a].quality == seen[b].quality)


@dataclass(frozen=True)
class _Seen:
    task_id: str
    behaviour: Mapping[str, float | None]
    quality: tuple[float, float]

    @property
    def told(self) -> tuple[Mapping[str, float | None], float]:
        return self.behaviour, (self.quality[0] + self.quality[1]) / 2


def _candidates(
    recordings: Sequence[Trajectory], seen: Mapping[str, _Seen]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Pairs of one task that differ in several habits: of equal quality, and the rest."""
    by_task: dict[str, list[str]] = defaultdict(list)
    for trajectory in recordings:
        by_task[trajectory.task_id].append(trajectory.id)
    equal: list[tuple[str, str]] = []
    other: list[tuple[str, str]] = []
    for ids in by_task.values():
        for pair in combinations(ids, 2):
            if _differing(seen[pair[0]].behaviour, seen[pair[1]].behaviour) >= MIN_DIFFERING:
                (equal if seen[pair[0]].quality == seen[pair[1]].quality else other).append(pair)
    return equal, other


def _differing(a: Mapping[str, float | None], b: Mapping[str, float | None]) -> int:
    """Number of habits that tell the two apart."""

    def apart(x: float | None, y: float | None) -> bool:
        return (x is None) != (y is None) or (x is not None and y is not None and abs(x - y) > 0.25)

    return sum(apart(a.get(f), b.get(f)) for f in FEATURES)


def derangement(users: Sequence[SimulatedUser], rng: random.Random, tries: int = 50) -> dict[str, str]:
    """User → another user whose profile is put in place of their own, each used once.

    Of ``tries`` random ones without fixed point the one in which most users get other slots than their own.

    Raises:
        ConfigError: fewer than two users.
    """
    if len(users) < 2:
        raise ConfigError(f"need at least 2 users so that profiles can be swapped, found {len(users)!r}")
    slots = [tuple(sorted((v.key, str(v.value)) for v in u.profile.values)) for u in users]
    best: list[int] = []
    most = -1
    for _ in range(tries):
        order = _shift(len(users), rng)
        changed = sum(slots[i] != slots[j] for i, j in enumerate(order))
        if changed > most:
            best, most = order, changed
        if most == len(users):
            break
    return {users[i].id: users[j].id for i, j in enumerate(best)}


def _shift(n: int, rng: random.Random) -> list[int]:
    """A random cycle through all: nobody keeps their place."""
    order = list(range(n))
    rng.shuffle(order)
    target = [0] * n
    for i, here in enumerate(order):
        target[here] = order[(i + 1) % n]
    return target
