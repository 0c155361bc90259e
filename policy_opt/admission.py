"""Admission test: do trainer and sampler agree on fresh tokens before any update? (POLICY.md section 12)"""

import numpy as np
from numpy.typing import NDArray

from axiomrm.errors import DataError
from axiomrm.policy_opt.engines.config import MismatchLimits

CAUSES = (
    "likely causes: another temperature or top-p, ids decoded and encoded again, dropout on, adapter off, "
    "weights not published to the sampler, mixed precision in the trainer"
)
FloatArray = NDArray[np.float32]


def admission_check(
    logp: FloatArray,
    behaviour: FloatArray,
    *,
    max_gap: float = 1e-3,
    same_engine: bool = True,
    limits: MismatchLimits | None = None,
) -> dict[str, float]:
    """Compare log-probs of the same sampled tokens.

    Args:
        logp: the trainer's, before any update.
        behaviour: the sampler's, at generation time.
        max_gap: greatest absolute difference in nats for one engine in fp32.
        same_engine: ``False`` = another engine or bf16, where ``limits`` hold instead.
        limits: default: those of ``MismatchLimits``.

    Returns:
        Measured differences, as ``mismatch`` gives them.

    Raises:
        DataError: outside the limits, naming the likely causes.
    """
    seen = mismatch(logp, behaviour)
    if not len(logp):
        return seen
    if same_engine:
        accepted = [("max_abs", seen["mismatch/max_abs_nats"], max_gap)]
    else:
        accepted = _of_two_engines(seen, limits or MismatchLimits())
    if all(value < limit for _, value, limit in accepted):
        return seen
    raise DataError(
        f"admission: trainer and sampler log-probs differ on {len(logp)} fresh tokens "
        f"(max abs {seen['mismatch/max_abs_nats']:.4g}, mean abs {seen['mismatch/mean_abs_nats']:.4g}, "
        f"mean {seen['mismatch/mean_nats']:.4g}, k3 {seen['mismatch/k3_nats_per_token']:.4g}; accepted: "
        + ", ".join(f"{name} < {limit:g}" for name, _, limit in accepted)
        + f"); {CAUSES}{'' if same_engine else _LESS_PRECISE}"
    )


def _of_two_engines(seen: dict[str, float], limits: MismatchLimits) -> list[tuple[str, float, float]]:
    """Name, measured difference and limit."""
    return [
        ("mean_abs", seen["mismatch/mean_abs_nats"], limits.mean_abs),
        ("abs(mean)", abs(seen["mismatch/mean_nats"]), limits.mean),
        ("p999_abs", seen["mismatch/p999_abs_nats"], limits.p999_abs),
    ]


_LESS_PRECISE = ", an engine less precise than the trainer (rollout.engine.dtype)"


def mismatch(logp: FloatArray, behaviour: FloatArray) -> dict[str, float]:
    """How far the sampler lies from the trainer on tokens that the sampler drew.

    Args:
        logp: the trainer's log-probs of them, before any update.
        behaviour: the sampler's.

    Returns:
        ``mismatch/…`` in nats: largest, mean and 99.9th percentile absolute difference, mean difference
        (trainer minus sampler), and KL(sampler, trainer) a token as ``pi/mu - 1 - log(pi/mu)`` (k3). NaN
        without tokens.

    Raises:
        DataError: the lengths differ, or a behaviour log-prob is not finite.
    """
    if len(logp) != len(behaviour):
        raise DataError(f"admission: {len(logp)} trainer log-probs for {len(behaviour)} sampled ids")
    if not np.isfinite(behaviour).all():
        raise DataError("admission: behaviour log-prob not finite")
    gap = np.asarray(logp, dtype=np.float64) - np.asarray(behaviour, dtype=np.float64)
    size = np.abs(gap)
    known = bool(gap.size)
    return {
        "mismatch/max_abs_nats": float(size.max()) if known else np.nan,
        "mismatch/mean_abs_nats": float(size.mean()) if known else np.nan,
        "mismatch/p999_abs_nats": float(np.quantile(size, 0.999)) if known else np.nan,
        "mismatch/mean_nats": float(gap.mean()) if known else np.nan,
        "mismatch/k3_nats_per_token": float((np.expm1(gap) - gap).mean()) if known else np.nan,
    }
