"""Several samples a question, drawn in rounds, so that one can stop when the rest cannot matter.

Round 0 draws the smallest number of samples that can decide anything (more than half of k), each later round
half of what is left. A round has its own seed, hashed from the run's seed and the round, and what is drawn
does not depend on the stopping rule: stopping early leaves samples out and changes none.

``decided``: whatever the remaining samples say, the label stays. Each of m remaining samples adds at most 1
to the sum of one label and 0 to another's, so a lead of more than m in the summed shares cannot be caught up;
X likewise against its threshold. ``precise``: also when the 90 % half-width of the value is small (t
quantiles). Stopping early leaves the label as it is, but the value is then the mean over fewer samples.
Questions whose readings vote bring their own rule, see :mod:`axiomrm.rm.voting`.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from axiomrm.data.verdict import Failed
from axiomrm.rm.labels import NOT_ASSESSABLE, LabelSet
from axiomrm.rm.readout import Reading, Rule, Share, assessed, counting

Stop = Literal["never", "decided", "precise"]
Readings = list[Reading | Failed]
Settled = Callable[[Readings, int], bool]
"""Whether the label is known from the readings so far, before so many more."""
HALF_WIDTH = 0.05
"""``precise`` stops below this 90 % half-width of the value; our own starting value."""
PRECISE_FROM = 3
"""Samples before ``precise`` may stop."""
_T95 = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833)
"""95 % quantiles of Student's t for 1, 2 … degrees of freedom; the last one is used beyond."""
_SLACK = 1e-9


def rounds(k: int) -> list[int]:
    """Samples in each round; they sum to ``k``.

    >>> rounds(1), rounds(4), rounds(8)
    ([1], [3, 1], [5, 2, 1])
    """
    sizes = [k // 2 + 1] if k > 1 else [k]
    while sum(sizes) < k:
        sizes.append((k - sum(sizes) + 1) // 2)
    return sizes


def round_seed(seed: int, number: int) -> int:
    """Seed of a round; round 0 has the run's own."""
    if number == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}\0{number}".encode()).digest()[:6], "big")


def decided(shares: Sequence[Share], remaining: int, labels: LabelSet, rule: Rule) -> bool:
    """Whether the label of all samples is known before ``remaining`` more are drawn.

    Args:
        shares: of the readings so far that count.
        remaining: samples not drawn yet; any of them may turn out not to count.
        labels: the legal labels.
        rule: with the threshold of X.
    """
    n = len(shares)
    if not n:
        return False
    p_na = math.fsum(share.q[NOT_ASSESSABLE] for share in shares)
    threshold = min(rule.x_threshold, 1.0)
    if p_na / (n + remaining) >= threshold:
        return True
    if (p_na + remaining) / (n + remaining) >= threshold - _SLACK:
        return False
    r = [x for share in shares if (x := assessed(share.q, labels)) is not None]
    sums = sorted((math.fsum(x[token] for x in r) for token in labels.values), reverse=True)
    return len(sums) == 1 or sums[0] - sums[1] > remaining + _SLACK


def precise(shares: Sequence[Share], labels: LabelSet) -> bool:
    """Whether the 90 % half-width of the mean value is below ``HALF_WIDTH``."""
    r = [x for share in shares if (x := assessed(share.q, labels)) is not None]
    n = len(r)
    if n < PRECISE_FROM:
        return False
    v = [math.fsum(x[token] * value for token, value in labels.values.items()) for x in r]
    mean = math.fsum(v) / n
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in v) / (n - 1))
    return _T95[min(n - 2, len(_T95) - 1)] * sd / math.sqrt(n) < HALF_WIDTH


def sample(
    draw: Callable[[dict[int, int], int], dict[int, Readings]],
    wanted: Sequence[int],
    labels: Sequence[LabelSet],
    rule: Rule,
    *,
    stop: Stop = "never",
    voting: Mapping[int, Settled] | None = None,
) -> list[Readings]:
    """The readings of each question.

    Args:
        draw: ``(question to number of samples, number of the round)`` to question to new readings; it may
            answer more questions than it was asked.
        wanted: samples of each question, at least 1.
        labels: its legal labels.
        rule: how readings become a verdict.
        stop: when a question needs no more samples.
        voting: questions whose readings vote, with what ``decided`` means for them.
    """
    voting = voting or {}
    sizes = [rounds(k) for k in wanted]
    found: list[Readings] = [[] for _ in wanted]
    open_ = set(range(len(wanted)))
    for number in range(max(map(len, sizes), default=0)):
        if not open_:
            break
        drawn = draw({i: sizes[i][number] for i in sorted(open_)}, number)
        for i in open_:
            found[i] += drawn[i]
        left = {i: sum(sizes[i][number + 1 :]) for i in open_}
        open_ = {
            i
            for i in open_
            if left[i] and not _enough(found[i], left[i], labels[i], rule, stop, voting.get(i))
        }
    return found


def _enough(
    readings: Readings, left: int, labels: LabelSet, rule: Rule, stop: Stop, by_vote: Settled | None
) -> bool:
    if stop == "never":
        return False
    if by_vote is not None:  # how exactly the mean is known says nothing about the count
        return by_vote(readings, left)
    shares = counting([r for r in readings if isinstance(r, Reading)], labels, rule)
    return decided(shares, left, labels, rule) or (stop == "precise" and precise(shares, labels))
