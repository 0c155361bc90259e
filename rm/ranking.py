"""Comparing and ranking by pointwise judgements, with a band of ties."""

from collections.abc import Sequence

from axiomrm.rm.judgement import Judgement, Outcome, PairJudgement, Ranked

TIE_BAND = 0.05
"""Rewards that differ by at most this are a tie; our own starting value."""


def ahead(a: Judgement, b: Judgement, tie_band: float) -> Outcome | None:
    """Which of two is better: a hard violation loses, else the reward, with a band of ties."""
    if a.reward is None or b.reward is None or a.rank_key is None or b.rank_key is None:
        return None
    if a.rank_key[0] != b.rank_key[0]:
        return "a" if a.rank_key[0] else "b"
    if abs(a.reward - b.reward) <= tie_band:
        return "tie"
    return "a" if a.reward > b.reward else "b"


def compared(a: Judgement, b: Judgement, tie_band: float) -> PairJudgement:
    """Two judgements of one task side by side."""
    margin = None if a.reward is None or b.reward is None else a.reward - b.reward
    return PairJudgement(winner=ahead(a, b, tie_band), margin=margin, a=a, b=b)


def ranked(judgements: Sequence[Judgement], tie_band: float) -> list[Ranked]:
    """Best first, in the order of ``ahead``: no hard violation, then the reward; gate and base break ties.

    Within the band of the leader of a place a place is shared; abstentions stand last.
    """
    known = [(order, -i) for i, j in enumerate(judgements) if (order := _order(j)) is not None]
    places: list[Ranked] = []
    for position, (_, at) in enumerate(sorted(known, reverse=True), 1):
        i = -at
        leader = next((r for r in places if r.place == places[-1].place), None)
        tied = leader is not None and ahead(leader.judgement, judgements[i], tie_band) == "tie"
        place = leader.place if tied and leader is not None else position
        places.append(Ranked(index=i, place=place, judgement=judgements[i]))
    return places + [
        Ranked(index=i, place=None, judgement=j) for i, j in enumerate(judgements) if _order(j) is None
    ]


def _order(judgement: Judgement) -> tuple[bool, float, float, float] | None:
    if judgement.reward is None or judgement.rank_key is None:
        return None
    clean, gate, base = judgement.rank_key
    return clean, judgement.reward, gate, base
