"""Weights among a user's criteria, learned from the user's own earlier choices (PRIVACY.md 3.6).

The profile says *what* a user wants, the choices say how much each of it counts. The evidence is the verdicts
of a model on dialogues that the user compared before; generic quality is one more family, so that a choice
made for quality is not put down to taste. Its own weight is not used: how much the personal part may count is
λ's matter.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from axiomrm.personalization.judging import Learned, PersonalScorer
from axiomrm.personalization.report import PersonalReport, personal_report
from axiomrm.personalization.simulate import UserPair
from axiomrm.personalization.weights import WeightPosterior

FLOOR = 0.02
"""Smallest weight before scaling: what a user stated is never dropped altogether."""


def learn_weights(
    scorer: PersonalScorer, history: Iterable[UserPair], gamma: float = 1.0
) -> dict[str, Learned]:
    """User → number of choices used and weights, the largest being 1.

    Args:
        scorer: with the verdicts on the dialogues of the history.
        history: earlier choices, oldest first; none of the pairs that are scored later.
        gamma: forgetting per event, in (0, 1].

    A choice with a missing score is left out. A question that cannot be assessed on one of the two dialogues
    tells no difference between them.
    """
    by_user: dict[str, list[UserPair]] = defaultdict(list)
    for pair in history:
        by_user[pair.user].append(pair)
    return {user: _learn(scorer, user, pairs, gamma) for user, pairs in by_user.items()}


def _learn(scorer: PersonalScorer, user: str, pairs: Sequence[UserPair], gamma: float) -> Learned:
    used = 0
    posteriors: dict[tuple[str, ...], WeightPosterior] = {}
    for pair in pairs:
        names = tuple(c.id for c in scorer.rubrics.compiled(user, scorer.recordings[pair.a]).criteria)
        delta = _delta(scorer, pair, names)
        if delta is None:
            continue
        used += 1
        if names:
            before = posteriors.get(names) or WeightPosterior.uniform(len(names) + 1)
            posteriors[names] = before.updated(np.array(delta), pair.choice == "a", gamma)
    weights: dict[str, float] = {}
    for names, posterior in posteriors.items():
        found = np.maximum(posterior.mean_C[1:], FLOOR)
        weights |= {name: float(w) for name, w in zip(names, found / found.max(), strict=True)}
    return Learned(float(used), weights)


def _delta(scorer: PersonalScorer, pair: UserPair, names: Sequence[str]) -> list[float] | None:
    """Generic quality, then each criterion: a minus b; ``None``: something is missing."""
    generic = scorer.generic(pair.a), scorer.generic(pair.b)
    personal = scorer.personal(pair.user, pair.a), scorer.personal(pair.user, pair.b)
    if generic[0] is None or generic[1] is None or personal[0] is None or personal[1] is None:
        return None
    if generic[0].reward is None or generic[1].reward is None:
        return None
    points = [{c.id: c.point for c in p.contributions} for p in personal if p is not None]
    out = [generic[0].reward - generic[1].reward]
    for name in names:
        a, b = points[0].get(name), points[1].get(name)
        out.append(a - b if a is not None and b is not None else 0.0)
    return out


def evaluate_personal(
    scorer: PersonalScorer,
    history: Iterable[UserPair],
    pairs: Iterable[UserPair],
    swapped: Mapping[str, str],
    *,
    seed: int = 0,
) -> PersonalReport:
    """Learn from the history, then score the held-out pairs under the three arms.

    Args:
        scorer: before learning, with verdicts for ``rubrics.units([*history, *pairs], …, swapped)``.
        history: earlier choices of the same users; empty: stated slots alone.
        pairs: held-out pairs.
        swapped: user → the user whose whole profile (slots, weights, evidence) stands in.
        seed: of the bootstrap.

    Raises:
        DataError: no pair could be scored.
    """
    rubrics = scorer.rubrics.with_learned(learn_weights(scorer, history))
    after = PersonalScorer(rubrics, scorer.recordings, scorer.verdicts)
    return personal_report([after.pair(p, swapped) for p in pairs], seed=seed)
