"""Axioms with several readings are decided by majority: each reading is a verdict of its own, with one vote.

A reading that failed, or holds too little mass, does not vote. Where at least half of the votes say that the
recording does not tell, that is the verdict (the threshold that one reading's X has). Else the votes that do
tell are counted, compliance (a value of one half or more) against violation; X and failures are on neither
side. As many for as against is no verdict: nothing says that a tie is a violation, so it is missing.

Value, label and distribution are means over the votes of the larger side; spread, critiques and quotes are
those of all. The mean over all would let one sure vote overrule two unsure ones.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.rm.labels import LabelSet

HALF = 0.5
"""From this value on a vote is for compliance, as for the gates of ``axiomrm.rubrics``."""
_SLACK = 1e-9


class _Count(NamedTuple):
    unsure: list[CannotAssess]
    complies: list[Scored]
    violated: list[Scored]

    @property
    def cast(self) -> int:
        return len(self.unsure) + len(self.complies) + len(self.violated)

    @property
    def side(self) -> list[Scored]:
        """The larger side; empty where they are equal."""
        ahead = len(self.complies) - len(self.violated)
        return [] if ahead == 0 else self.complies if ahead > 0 else self.violated


def majority(votes: Sequence[Verdict], labels: LabelSet) -> Verdict:
    """What most of the votes say.

    Args:
        votes: the verdict of each reading alone, calibrated if there is a calibrator; at least one.
        labels: the axiom's labels.
    """
    count = _counted(votes)
    if not count.cast:
        return next(vote for vote in votes if isinstance(vote, Failed))
    cast = [vote for vote in votes if not isinstance(vote, Failed)]
    critique = "\n\n".join(vote.critique for vote in cast if vote.critique)
    p_na = [vote.p_na for vote in cast if vote.p_na is not None]
    common = {"critique": critique, "p_na": fmean(p_na) if p_na else None, "flags": _flags(votes)}
    if 2 * len(count.unsure) >= count.cast:
        return count.unsure[0].model_copy(update=common | {"reason": _reason(count.unsure)})
    if not count.side:
        detail = f"{len(count.complies)} readings for compliance, {len(count.violated)} against: no majority"
        return Failed(kind="no_verdict", detail=detail)
    scored = [vote for vote in cast if isinstance(vote, Scored)]
    values = [vote.value for vote in scored]
    masses = [vote.captured_mass for vote in scored if vote.captured_mass is not None]
    return count.side[0].model_copy(
        update={
            **common,
            "value": min(max(fmean(vote.value for vote in count.side), 0.0), 1.0),
            "label": _label(count, labels),
            "distribution": _mean([vote.distribution for vote in count.side]),
            "captured_mass": fmean(masses) if masses else None,
            "evidence": tuple(quote for vote in scored for quote in vote.evidence),
            "spread": stdev(values) if len(values) > 1 else None,
            "interval": None,  # a calibrator's residual is that of one value, not of a mean over a side
            "n": count.cast,
        }
    )


def settled(votes: Sequence[Verdict], remaining: int, labels: LabelSet) -> bool:
    """Whether the label is known before ``remaining`` more readings; any of them may not vote."""
    count = _counted(votes)
    telling = len(count.complies) + len(count.violated)
    if len(count.unsure) >= telling + remaining:
        return count.cast > 0
    lead = abs(len(count.complies) - len(count.violated))
    if len(count.unsure) + remaining >= telling or lead <= remaining:
        return False
    sums = sorted(_named(count, labels).values(), reverse=True)
    return len(sums) < 2 or sums[0] - sums[1] > remaining + _SLACK


def _counted(votes: Sequence[Verdict]) -> _Count:
    scored = [vote for vote in votes if isinstance(vote, Scored)]
    return _Count(
        [vote for vote in votes if isinstance(vote, CannotAssess)],
        [vote for vote in scored if vote.value >= HALF],
        [vote for vote in scored if vote.value < HALF],
    )


def _label(count: _Count, labels: LabelSet) -> str:
    """The likeliest label that says what the side says; of foreign votes, the most frequent one."""
    named = _named(count, labels)
    if any(named.values()):
        return max(named, key=lambda name: named[name])
    return Counter(vote.label for vote in count.side).most_common(1)[0][0]


def _named(count: _Count, labels: LabelSet) -> dict[str, float]:
    """Summed probability of each label on the side of the majority."""
    complies = count.side is count.complies
    return {
        labels.names[token]: math.fsum(vote.distribution.get(labels.names[token], 0.0) for vote in count.side)
        for token, value in labels.values.items()
        if (value >= HALF) == complies
    }


def _mean(distributions: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fmean(d.get(name, 0.0) for d in distributions) for name in distributions[0]}


def _reason(unsure: Sequence[CannotAssess]) -> str:
    return "\n\n".join(dict.fromkeys(vote.reason for vote in unsure if vote.reason))


def _flags(votes: Sequence[Verdict]) -> tuple[str, ...]:
    flags = {flag for vote in votes if not isinstance(vote, Failed) for flag in vote.flags}
    kinds = {vote.kind for vote in votes if isinstance(vote, Failed)}
    flags |= {"low_mass_readings"} if "low_mass" in kinds else set()
    flags |= {"failed_readings"} if kinds - {"low_mass"} else set()
    return tuple(sorted(flags))
