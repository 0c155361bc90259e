"""From label probabilities to a verdict: captured mass, X, expected value, spread.

For critique j, at the position right after the lead-in: ``p_j(l)`` is the full-vocabulary probability of
label l, ``mass_j = sum_l p_j(l)``, ``q_j = p_j / mass_j``. ``p_na = mean_j q_j(X)``; without X, renormalised,
``r_j``; ``v_j = sum_l r_j(l) value(l)`` and ``value = mean_j v_j``. The mean beats the mode in 92 of 120
settings, and critiques are averaged over because one narrows the distribution (arXiv:2503.03064).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from axiomrm.data.verdict import CannotAssess, Evidence, Failed, Scored, Verdict
from axiomrm.rm.labels import NOT_ASSESSABLE, LabelSet

Readout = Literal["expected", "argmax", "sampled"]
X_THRESHOLD = 0.5
"""From this probability of X on, the answer is cannot-assess."""
NEVER = math.inf
"""An X threshold that is never reached."""


@dataclass(frozen=True)
class Reading:
    """What one pass of the judge left: everything a verdict is computed from."""

    logprobs: Mapping[str, float] | None = None
    """Label to full-vocabulary log-probability (natural log); ``None``: the engine gave none."""
    bound: float | None = None
    """Upper bound on the probability of a label that is not in ``logprobs`` (top-k engines)."""
    label: str | None = None
    """The label the judge wrote, where it wrote one."""
    critique: str = ""
    evidence: tuple[Evidence, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """How readings become a verdict."""

    min_mass: float = 0.8
    """Smallest full-vocabulary probability of all labels together for a reading to count."""
    readout: Readout = "expected"
    mode: Literal["direct", "critique"] = "direct"
    x_threshold: float = X_THRESHOLD
    """From this probability of X on the verdict is cannot-assess; above 1: never (untrained judges, whose X
    is a habit of the tokens and no answer)."""


def read_out(readings: Sequence[Reading], labels: LabelSet, rule: Rule = Rule()) -> Verdict:
    """One verdict from the readings of one criterion on one unit.

    Args:
        readings: at least one; several critiques are averaged over.
        labels: the legal labels with their values.
        rule: read-out, mode and smallest captured mass.
    """
    if rule.readout != "sampled" and any(reading.logprobs is None for reading in readings):
        return without_logprobs(rule.readout)
    counted = counting(readings, labels, rule)
    flags = {flag for reading in readings for flag in reading.flags}
    if rule.readout == "sampled":
        if not counted:
            return Failed(kind="no_verdict", detail=f"none of {len(readings)} samples holds a legal label")
        return _verdict(counted, readings, labels, rule, tuple(sorted(flags)))
    if not counted:
        best = max(captured_mass(r.logprobs or {}) for r in readings)
        return Failed(kind="low_mass", detail=f"captured mass {best:.6g} is below {rule.min_mass:g}")
    flags |= {"mass_bound"} if any(_bounded(r, labels) for r in readings) else set()
    flags |= {"low_mass_readings"} if len(counted) < len(readings) else set()
    verdict = _verdict(counted, readings, labels, rule, tuple(sorted(flags)))
    mean_mass = min(math.fsum(share.mass for share in counted) / len(counted), 1.0)
    return verdict.model_copy(update={"captured_mass": mean_mass}) if isinstance(verdict, Scored) else verdict


def without_logprobs(readout: Readout) -> Failed:
    """Why there is no reading where the engine gave no log-probabilities."""
    detail = f"read-out {readout!r} needs label log-probabilities and the engine gave none"
    return Failed(kind="no_logprobs", detail=detail)


class Share(NamedTuple):
    """A reading that counts."""

    q: Mapping[str, float]
    """Label token to its share of the captured mass, X included."""
    mass: float


def counting(readings: Sequence[Reading], labels: LabelSet, rule: Rule) -> list[Share]:
    """The readings that count: with enough captured mass, or (``sampled``) with a legal label."""
    if rule.readout == "sampled":
        written = [reading.label for reading in readings if reading.label in labels.tokens]
        return [Share({token: float(token == label) for token in labels.tokens}, 1.0) for label in written]
    masses = [captured_mass(reading.logprobs or {}) for reading in readings]
    return [
        Share(_normalised(_probabilities(reading, labels)), mass)
        for reading, mass in zip(readings, masses, strict=True)
        if math.isfinite(mass) and mass > 0 and mass >= rule.min_mass
    ]


def assessed(q: Mapping[str, float], labels: LabelSet) -> dict[str, float] | None:
    """Without X, renormalised; ``None`` if all was X."""
    return _normalised({label: q[label] for label in labels.values}) if q[NOT_ASSESSABLE] < 1 else None


def captured_mass(logprobs: Mapping[str, float]) -> float:
    """Probability of all labels together."""
    return math.fsum(math.exp(x) for x in logprobs.values())


def confidence(distribution: Mapping[str, float]) -> float:
    """``(K p_max - 1) / (K - 1)``: 0 for uniform, 1 for certain; 1 for a single label."""
    k = len(distribution)
    return 1.0 if k == 1 else (k * max(distribution.values()) - 1) / (k - 1)


def _probabilities(reading: Reading, labels: LabelSet) -> dict[str, float]:
    """Label probabilities; an unseen label of a top-k engine gets the middle of its possible range."""
    known = {label: math.exp(x) for label, x in (reading.logprobs or {}).items()}
    guess = (reading.bound or 0.0) / 2
    return {token: known.get(token, guess) for token in labels.tokens}


def _bounded(reading: Reading, labels: LabelSet) -> bool:
    return bool(reading.bound) and any(token not in (reading.logprobs or {}) for token in labels.tokens)


def _normalised(p: Mapping[str, float]) -> dict[str, float]:
    total = math.fsum(p.values())
    return {label: x / total for label, x in p.items()}


def _verdict(
    shares: Sequence[Share],
    readings: Sequence[Reading],
    labels: LabelSet,
    rule: Rule,
    flags: tuple[str, ...],
) -> Scored | CannotAssess:
    n = len(shares)
    p_na = math.fsum(share.q[NOT_ASSESSABLE] for share in shares) / n
    critique = "\n\n".join(reading.critique for reading in readings if reading.critique)
    if p_na >= rule.x_threshold or p_na >= 1:
        reason = critique or f"the judge says that the recording does not tell (p = {p_na:.2f})"
        return CannotAssess(reason=reason, p_na=min(p_na, 1.0), critique=critique, flags=flags)
    r = [x for share in shares if (x := assessed(share.q, labels)) is not None]
    mean = _normalised({label: math.fsum(x[label] for x in r) for label in labels.values})
    label = max(mean, key=lambda token: mean[token])
    v = [math.fsum(x[token] * value for token, value in labels.values.items()) for x in r]
    value = labels.values[label] if rule.readout == "argmax" else math.fsum(v) / len(v)
    return Scored(
        value=min(max(value, 0.0), 1.0),
        label=labels.names[label],
        distribution={labels.names[token]: x for token, x in mean.items()},
        critique=critique,
        evidence=tuple(e for reading in readings for e in reading.evidence),
        p_na=p_na,
        spread=_deviation(v) if len(v) > 1 else None,
        mode=rule.mode,
        readout=rule.readout,
        n=n,
        flags=flags,
    )


def _deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((v - mean) ** 2 for v in values) / (len(values) - 1))
