"""The margin gate: answer directly, and write critiques only where the direct answer is unsure.

Confidence is ``(K p_max - 1) / (K - 1)`` over the labels without X, after calibration; below the gate the
critique decides. A gate of 0 is direct mode, one above 1 is critique mode. The gate is picked offline from
direct and critique verdicts on the same labelled items (CAMEL, arXiv:2602.20670).

Deviation: that paper trains the critique to revise the direct answer; here the critique's verdict stands
alone, so that gated verdicts are exactly those of one of the two modes.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from axiomrm.data.verdict import CannotAssess, Scored, Verdict
from axiomrm.errors import DataError
from axiomrm.rm.asking import VerdictRequest
from axiomrm.rm.readout import confidence

MAX_LOSS = 0.005
"""Agreement that a gate may lose against critiques everywhere."""
ALWAYS = 2.0
"""A gate above every confidence."""
Answer = Callable[[Sequence[VerdictRequest]], list[Verdict]]


def verdict_confidence(verdict: Verdict) -> float:
    """0 to 1: how far the direct answer is from a coin's; 0 for a failure.

    A cannot-assess answer is X against the rest: ``2 p_na - 1``.
    """
    if isinstance(verdict, Scored):
        return confidence(verdict.distribution) if verdict.distribution else 1.0
    if isinstance(verdict, CannotAssess) and verdict.p_na is not None:
        return max(0.0, 2 * verdict.p_na - 1)
    return 0.0


def gated(requests: Sequence[VerdictRequest], direct: Answer, critique: Answer, gate: float) -> list[Verdict]:
    """Direct verdicts, with the critique's in place of those whose confidence is below ``gate``."""
    verdicts = direct(requests) if gate <= 1 else [None] * len(requests)
    unsure = [i for i, v in enumerate(verdicts) if v is None or verdict_confidence(v) < gate]
    second = iter(critique([requests[i] for i in unsure]) if unsure else [])
    chosen = dict.fromkeys(unsure)
    return [next(second) if v is None or i in chosen else v for i, v in enumerate(verdicts)]


class GatePair(NamedTuple):
    """One labelled item, answered in both modes."""

    direct: Verdict
    critique: Verdict
    gold: str
    """The label of the human, as a verdict shows it."""


class GatePoint(NamedTuple):
    """What one gate does."""

    gate: float
    """The shortest decimal that parts the items so; as it is printed, so it may be typed."""
    critiques: float
    """Share of the items that get a critique: the cost."""
    agreement: float
    """Share of the items with the human's label; a missing verdict does not agree."""


class GateChoice(NamedTuple):
    """The picked gate and all that it was picked from."""

    chosen: GatePoint
    always: GatePoint
    """Critiques everywhere."""
    points: tuple[GatePoint, ...]
    """From no critiques to all."""
    n: int


def choose_gate(pairs: Sequence[GatePair], *, max_loss: float = MAX_LOSS) -> GateChoice:
    """The cheapest gate that agrees with people almost as often as critiques everywhere.

    Args:
        pairs: labelled items outside every evaluation split.
        max_loss: agreement that may be lost, as a share (0.005 = half a point).

    Raises:
        DataError: no items.
    """
    if not pairs:
        raise DataError("a gate cannot be chosen: no labelled items with a direct and a critique verdict")
    n = len(pairs)
    rows = sorted(
        (verdict_confidence(p.direct), _agrees(p.direct, p.gold), _agrees(p.critique, p.gold)) for p in pairs
    )
    right = sum(direct for _, direct, _ in rows)
    points = [GatePoint(0.0, 0.0, right / n)]
    for i, (_, direct, critique) in enumerate(rows, 1):
        right += critique - direct
        if i == n or rows[i][0] > rows[i - 1][0]:
            gate = between(rows[i - 1][0], rows[i][0]) if i < n else ALWAYS
            points.append(GatePoint(gate, i / n, right / n))
    always = points[-1]
    chosen = next(p for p in points if p.agreement >= always.agreement - max_loss - 1e-12)
    return GateChoice(chosen, always, tuple(points), n)


def between(below: float, above: float) -> float:
    """The shortest decimal in ``(below, above]``, near the middle of the two.

    >>> between(0.2, 0.39), between(0.98, 0.9886)
    (0.3, 0.984)
    """
    middle = (below + above) / 2
    decimals = (round(middle, digits) for digits in range(1, 18))
    return next((found for found in decimals if below < found <= above), above)


def _agrees(verdict: Verdict, gold: str) -> int:
    return int(isinstance(verdict, Scored) and verdict.label == gold)
