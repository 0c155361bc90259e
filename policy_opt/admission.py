"""Admission test: do trainer and sampler agree on fresh tokens before any update? (POLICY.md section 12)"""

import numpy as np
from numpy.typing import NDArray

from axiomrm.errors import DataError

CAUSES = (
    "likely causes: another temperature or top-p, ids decoded and encoded again, dropout on, adapter off, "
    "weights not published to the sampler"
)


def admission_check(
    logp: NDArray[np.float32],
    behaviour: NDArray[np.float32],
    *,
    max_gap: float = 1e-3,
    same_engine: bool = True,
) -> dict[str, float]:
    """Compare log-probs of the same sampled tokens.

    Args:
        logp: the trainer's, before any update.
        behaviour: the sampler's, at generation time.
        max_gap: greatest absolute difference in nats for one engine in fp32.
        same_engine: ``False`` = another engine or bf16: mean abs < 0.02, abs(mean) < 0.005, 99.9th
            percentile < 0.5 (starting values; write down what your engine shows).

    Returns:
        Measured differences.

    Raises:
        DataError: outside the limits, naming the likely causes.
    """
    seen = _differences(logp, behaviour)
    if same_engine:
        bad = not seen["admission/max_abs"] < max_gap
        limit = f"max abs < {max_gap}"
    else:
        bad = not (
            seen["admission/mean_abs"] < 0.02
            and abs(seen["admission/mean"]) < 0.005
            and seen["admission/p999_abs"] < 0.5
        )
        limit = "mean abs < 0.02, abs(mean) < 0.005, 99.9th percentile < 0.5"
    if bad:
        raise DataError(
            f"admission: trainer and sampler log-probs differ (max abs {seen['admission/max_abs']:.4g}, "
            f"mean abs {seen['admission/mean_abs']:.4g}, mean {seen['admission/mean']:.4g}; "
            f"accepted: {limit}); {CAUSES}"
        )
    return seen


def _differences(logp: NDArray[np.float32], behaviour: NDArray[np.float32]) -> dict[str, float]:
    if len(logp) != len(behaviour):
        raise DataError(f"admission: {len(logp)} trainer log-probs for {len(behaviour)} sampled ids")
    if not np.isfinite(behaviour).all():
        raise DataError("admission: behaviour log-prob not finite")
    gap = np.asarray(logp, dtype=np.float64) - np.asarray(behaviour, dtype=np.float64)
    size = np.abs(gap)
    return {
        "admission/max_abs": float(size.max(initial=0.0)),
        "admission/mean_abs": float(size.mean()) if gap.size else 0.0,
        "admission/mean": float(gap.mean()) if gap.size else 0.0,
        "admission/p999_abs": float(np.quantile(size, 0.999)) if gap.size else 0.0,
    }
