"""Fitting calibrators on labelled verdicts; see ``calibration`` for what they are and how they are used."""

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axiomrm.data.splits import split_by_group
from axiomrm.data.trajectory import canonical_json
from axiomrm.data.verdict import Scored
from axiomrm.errors import DataError
from axiomrm.rm.calibration import (
    CALIBRATED,
    Calibration,
    Entry,
    Knots,
    calibrated,
    scale_of,
    tempered,
)
from axiomrm.rm.labels import LabelSet

MIN_LABELS = 200
"""Fewer labels give no calibrator."""
FIT_SHARE = 0.7
"""Of the groups; the rest gives the conformal residuals."""
COLDEST, HOTTEST = 0.05, 20.0
_FLOOR = 1e-12
FOLDS = 5
Method = Literal["auto", "isotonic", "temperature"]
Array = NDArray[np.float64]


class Labelled(NamedTuple):
    """A verdict beside what a person said."""

    verdict: Scored
    labels: LabelSet
    gold: str
    """A label token with a value; leave items out that a person could not assess."""
    judge_revision: str
    group: str = ""
    """What items share (a prompt, a dialogue); empty: nothing."""


def fit_calibration(
    rows: Sequence[Labelled],
    *,
    method: Method = "auto",
    level: float = 0.9,
    seed: int = 0,
    source: str = "",
    min_labels: int = MIN_LABELS,
) -> Calibration:
    """A calibrator for each (scale, mode, read-out) among the rows.

    Args:
        rows: outside every evaluation split; uncalibrated.
        method: for binary scales under ``expected``, ``isotonic`` adds isotonic regression after the
            temperature, ``auto`` only where that lowers the NLL in cross-validation over groups: on a few
            hundred labels its steps can fit noise.
        level: of the conformal intervals.
        seed: of the split between fit and residuals.
        source: where the labels are from, in words.
        min_labels: entries with fewer stay uncalibrated and say so.

    Raises:
        DataError: no rows, an unknown gold label, a calibrated verdict, or two judges in one entry.
    """
    if not rows:
        raise DataError("no labelled verdicts to calibrate on")
    kinds: dict[tuple[str, str, str], list[Labelled]] = {}
    for i, row in enumerate(rows, 1):
        _check(row, f"labelled verdict {i}")
        key = (scale_of(row.labels), row.verdict.mode, row.verdict.readout)
        kinds.setdefault(key, []).append(row)
    entries = [_entry(kind, method, level, seed, min_labels) for kind in kinds.values()]
    return Calibration(entries=tuple(entries), data_hash=data_hash(rows), level=level, source=source)


def data_hash(rows: Iterable[Labelled]) -> str:
    """SHA-256 of the labelled verdicts, whatever their order."""
    lines = sorted(
        canonical_json([scale_of(r.labels), r.gold, r.group, r.verdict.model_dump(mode="json")]) for r in rows
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def fit_temperature(probabilities: Array, gold: NDArray[np.int_]) -> float:
    """The temperature with the smallest NLL; 1 where none is better.

    The NLL is convex in 1/T, so a ternary search finds it.

    Args:
        probabilities: ``(n, K)``, rows summing to 1.
        gold: ``(n,)``, index of the human's label.
    """
    logs = np.log(np.maximum(probabilities, _FLOOR))

    def nll(beta: float) -> float:
        z = beta * logs
        top = z.max(axis=1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(z - top).sum(axis=1))
        return float((total - z[np.arange(len(gold)), gold]).mean())

    low, high = 1 / HOTTEST, 1 / COLDEST
    for _ in range(100):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if nll(left) <= nll(right) else (left, high)
    beta = (low + high) / 2
    return 1 / beta if nll(beta) < nll(1.0) else 1.0


def fit_isotonic(values: Sequence[float], gold: Sequence[float], *, edge: float = 0.0) -> Knots:
    """Rising curve of least squares through ``(value, gold)``, as knots.

    Args:
        values: judge's values in [0, 1].
        gold: 0 to 1.
        edge: fitted values are kept this far from 0 and 1, so that no finite sample claims certainty.

    Raises:
        ImportError: scikit-learn is missing.
    """
    try:
        from sklearn.isotonic import IsotonicRegression
    except ImportError as error:
        raise ImportError("isotonic calibration needs scikit-learn: pip install 'axiomrm[train]'") from error
    fit = IsotonicRegression(y_min=edge, y_max=1 - edge, out_of_bounds="clip").fit(list(values), list(gold))
    knots: list[tuple[float, float]] = []
    for x, y in zip(fit.X_thresholds_.tolist(), fit.y_thresholds_.tolist(), strict=True):
        if not knots or x > knots[-1][0]:
            knots.append((x, y))
    return tuple(knots)


def conformal_residual(residuals: Sequence[float], level: float) -> float | None:
    """The ``ceil((n + 1) level)``-th smallest residual; ``None`` if n is too small for the level."""
    rank = math.ceil((len(residuals) + 1) * level - 1e-9)
    return sorted(residuals)[rank - 1] if 1 <= rank <= len(residuals) else None


def gold_value(row: Labelled) -> float:
    """The value of the human's label."""
    return row.labels.values[row.gold]


def nll(verdict: Scored, labels: LabelSet, gold: str) -> float:
    """``-ln`` of the gold label's probability, in nats; the probability counts as at least 1e-12."""
    return -math.log(max(verdict.distribution.get(labels.names[gold], 0.0), _FLOOR))


def _check(row: Labelled, place: str) -> None:
    if row.gold not in row.labels.values:
        raise DataError(f"{place}: gold label {row.gold!r} is none of {list(row.labels.values)}")
    if CALIBRATED in row.verdict.flags:
        raise DataError(f"{place}: calibrated already; score again without a calibrator")
    if row.verdict.mode not in ("direct", "critique") or not any(row.verdict.distribution.values()):
        raise DataError(f"{place}: this {row.verdict.mode} verdict has no probabilities to calibrate")


def _entry(rows: Sequence[Labelled], method: Method, level: float, seed: int, min_labels: int) -> Entry:
    first = rows[0]
    revisions = {row.judge_revision for row in rows}
    if len(revisions) > 1:
        raise DataError(f"verdicts of {len(revisions)} judges in one calibrator: {sorted(revisions)[:3]}")
    blank = Entry(
        scale=scale_of(first.labels),
        mode="critique" if first.verdict.mode == "critique" else "direct",
        readout=first.verdict.readout if first.verdict.readout != "exact" else "expected",
        judge_revision=first.judge_revision,
        labels=len(rows),
    )
    if len(rows) < min_labels:
        return blank.model_copy(
            update={"note": f"not calibrated: {len(rows)} labels, at least {min_labels} are needed"}
        )
    # A prefix, or the split would repeat one that the caller made with the same seed.
    sides = split_by_group(
        list(enumerate(rows)), {"fit": FIT_SHARE, "residuals": 1 - FIT_SHARE}, seed, key=_named("residuals")
    )
    fit = [row for _, row in sides["fit"]] or list(rows)
    entry = _chosen(blank, fit, method, seed)
    held = [row for _, row in sides["residuals"]] if sides["fit"] else []
    residuals = [abs(calibrated(r.verdict, r.labels, entry).value - gold_value(r)) for r in held]
    return entry.model_copy(update={"residual": conformal_residual(residuals, level)})


def _named(purpose: str) -> Callable[[tuple[int, Labelled]], str]:
    return lambda pair: f"{purpose}\0{pair[1].group or f'#{pair[0]}'}"


def _chosen(blank: Entry, rows: Sequence[Labelled], method: Method, seed: int) -> Entry:
    """With isotonic regression where ``method`` says so or cross-validation does."""
    plain = _fitted(blank, rows, isotonic=False)
    if method == "temperature" or len(rows[0].labels.values) != 2 or blank.readout != "expected":
        return plain
    if method == "isotonic":
        return _fitted(blank, rows, isotonic=True)
    folds = split_by_group(
        list(enumerate(rows)), {str(k): 1 / FOLDS for k in range(FOLDS)}, seed, key=_named("folds")
    )
    loss = {False: 0.0, True: 0.0}
    for name, held in folds.items():
        rest = [row for other, part in folds.items() if other != name for _, row in part]
        for isotonic in loss if rest else ():
            entry = _fitted(blank, rest, isotonic=isotonic)
            loss[isotonic] += math.fsum(
                nll(calibrated(r.verdict, r.labels, entry), r.labels, r.gold) for _, r in held
            )
    if loss[True] < loss[False]:
        return _fitted(blank, rows, isotonic=True)
    left = f"{loss[True] / len(rows):.3f} against {loss[False] / len(rows):.3f}"
    return plain.model_copy(update={"note": f"isotonic left out: NLL in cross-validation {left}"})


def _fitted(blank: Entry, rows: Sequence[Labelled], *, isotonic: bool) -> Entry:
    tokens = list(rows[0].labels.values)
    p = np.array([[r.verdict.distribution.get(r.labels.names[t], 0.0) for t in tokens] for r in rows])
    gold = np.array([tokens.index(r.gold) for r in rows])
    t = fit_temperature(p, gold)
    entry = blank.model_copy(update={"temperature": t})
    if isotonic:
        values = [_tempered_value(row, t) for row in rows]
        knots = fit_isotonic(values, [gold_value(r) for r in rows], edge=1 / (len(rows) + 2))
        entry = entry.model_copy(update={"isotonic": knots})
    before = [nll(r.verdict, r.labels, r.gold) for r in rows]
    after = [nll(calibrated(r.verdict, r.labels, entry), r.labels, r.gold) for r in rows]
    return entry.model_copy(
        update={"nll_before": math.fsum(before) / len(rows), "nll_after": math.fsum(after) / len(rows)}
    )


def _tempered_value(row: Labelled, temperature: float) -> float:
    names = row.labels.names
    q = tempered({t: row.verdict.distribution.get(names[t], 0.0) for t in row.labels.values}, temperature)
    return math.fsum(q[token] * value for token, value in row.labels.values.items())
