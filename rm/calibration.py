"""Calibration: what the judge's probabilities are worth, fitted on labels given by people.

For each (scale, mode, read-out): a temperature on the log-probabilities of the labels, fitted by NLL; for
binary scales, where it helps, isotonic regression on the expected value; and the level-quantile of
split-conformal residuals ``|value - gold|`` on groups that the fit never saw, which gives
``Scored.interval``. Below 200 labels: none.

It maps verdicts to verdicts, after cache and engine, so a changed calibrator costs no model call. Several
critiques are pooled first and calibrated then (as arXiv:2007.08792 finds best), which is why ``spread`` stays
that of the readings. X and its threshold are not touched.
"""

import hashlib
import math
from bisect import bisect_right
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from axiomrm.data.trajectory import canonical_json
from axiomrm.data.verdict import Scored, Verdict
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError
from axiomrm.rm.labels import LabelSet

CALIBRATION_FILE = "axiomrm_calibration.json"
CALIBRATED = "calibrated"
"""Flag of a verdict that went through a calibrator."""
Knots = tuple[tuple[float, float], ...]


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Entry(_Value):
    """The calibrator of one scale in one mode under one read-out, or the reason why there is none."""

    scale: str
    """Labels with their values, see ``scale_of``."""
    mode: Literal["direct", "critique"]
    readout: Literal["expected", "argmax", "sampled"]
    judge_revision: str
    labels: int
    """Labelled verdicts that it was made from."""
    temperature: float | None = Field(default=None, gt=0)
    """``None``: not calibrated, see ``note``."""
    isotonic: Knots = ()
    """Value before and after, rising; between two knots linear, outside as at the end."""
    residual: float | None = Field(default=None, ge=0, le=1)
    """Half-width of ``interval``; ``None``: too few labels left for one."""
    nll_before: float | None = None
    """Nats a label on the labels of the fit."""
    nll_after: float | None = None
    note: str = ""


class Calibration(_Value):
    """What lies beside a checkpoint."""

    schema_: Literal["axiomrm/calibration-1"] = Field(default="axiomrm/calibration-1", alias="schema")
    entries: tuple[Entry, ...]
    data_hash: str
    """SHA-256 of the labelled verdicts."""
    level: float = Field(default=0.9, gt=0, lt=1)
    """Of the conformal intervals."""
    source: str = ""
    """Where the labels are from, in words."""

    @property
    def hash(self) -> str:
        """SHA-256 of the whole calibrator; stands in judgements."""
        return hashlib.sha256(canonical_json(self.model_dump(mode="json")).encode()).hexdigest()

    def entry(self, scale: str, mode: str, readout: str) -> Entry | None:
        """The entry that fits, calibrating or not."""
        wanted = (scale, mode, readout)
        return next((e for e in self.entries if (e.scale, e.mode, e.readout) == wanted), None)

    def apply(self, verdict: Verdict, labels: LabelSet) -> Verdict:
        """The calibrated verdict; the same one where there is no calibrator for it.

        Args:
            verdict: as the read-out gave it.
            labels: the criterion's labels, with their values.

        Raises:
            ConfigError: the verdict was calibrated before.
        """
        if not isinstance(verdict, Scored):
            return verdict
        if CALIBRATED in verdict.flags:
            raise ConfigError("this verdict is calibrated already; calibrate what the read-out gave")
        entry = self.entry(scale_of(labels), verdict.mode, verdict.readout)
        if entry is None or entry.temperature is None or not any(verdict.distribution.values()):
            return verdict
        return calibrated(verdict, labels, entry)

    def check(self, revision_of: Callable[[Entry], str], place: str) -> None:
        """Raise unless every entry was fitted on this judge.

        Args:
            revision_of: the judge's revision in an entry's mode and read-out.
            place: for the message.

        Raises:
            ConfigError: the first entry that was fitted on another judge.
        """
        for e in self.entries:
            now = revision_of(e)
            if e.judge_revision != now:
                raise ConfigError(
                    f"{place}: the calibrator for {e.mode} mode, read-out {e.readout!r} was fitted on judge "
                    f"{e.judge_revision[:12]!r}, this one is {now[:12]!r} (weights, precision, template, "
                    "tokenizer or settings differ): fit it again, or load with calibration=None "
                    "(axiomrm score --calibration off)"
                )


def scale_of(labels: LabelSet) -> str:
    """Label tokens with their values: what a calibrator is bound to; wordings do not matter.

    >>> from axiomrm.rm.labels import BINARY
    >>> scale_of(BINARY)
    'Y=1 N=0'
    """
    return " ".join(f"{token}={value:g}" for token, value in labels.values.items())


def calibrated(verdict: Scored, labels: LabelSet, entry: Entry) -> Scored:
    """A verdict under one entry."""
    names = labels.names
    q = tempered({t: verdict.distribution.get(names[t], 0.0) for t in labels.values}, entry.temperature or 1)
    value = math.fsum(q[token] * v for token, v in labels.values.items())
    if entry.isotonic:
        high, low = sorted(labels.values, key=lambda token: labels.values[token], reverse=True)
        value = isotonic_value(entry.isotonic, value)
        q = {token: {high: value, low: 1 - value}[token] for token in labels.values}
    label = max(q, key=lambda token: q[token])
    if verdict.readout == "argmax":
        value = labels.values[label]
    value = min(max(value, 0.0), 1.0)
    r = entry.residual
    return verdict.model_copy(
        update={
            "value": value,
            "label": names[label],
            "distribution": {names[token]: p for token, p in q.items()},
            "interval": None if r is None else (max(0.0, value - r), min(1.0, value + r)),
            "flags": tuple(sorted({*verdict.flags, CALIBRATED})),
        }
    )


def tempered(q: Mapping[str, float], temperature: float) -> dict[str, float]:
    """``q ** (1 / T)``, renormalised; 0 stays 0, and the order of the labels stays."""
    top = max(q.values())
    powers = {label: (p / top) ** (1 / temperature) for label, p in q.items()}
    total = math.fsum(powers.values())
    return {label: p / total for label, p in powers.items()}


def isotonic_value(knots: Knots, value: float) -> float:
    """The fitted step-free curve at ``value``; constant outside its knots, so never undefined."""
    at = bisect_right(knots, value, key=lambda knot: knot[0])
    if at == 0:
        return knots[0][1]
    if at == len(knots):
        return knots[-1][1]
    (x0, y0), (x1, y1) = knots[at - 1], knots[at]
    return y0 + (y1 - y0) * ((value - x0) / (x1 - x0))


def write_calibration(folder: str | Path, calibration: Calibration) -> Path:
    """Store a calibrator beside its checkpoint, atomically."""
    path = Path(folder) / CALIBRATION_FILE
    with atomic_file(path) as handle:
        handle.write(calibration.model_dump_json(by_alias=True, indent=1) + "\n")
    return path


def read_calibration(path: str | Path) -> Calibration | None:
    """The calibrator in a checkpoint folder, or in a file; ``None``: there is none.

    Raises:
        ConfigError: there is a file that cannot be read.
    """
    path = Path(path)
    path = path / CALIBRATION_FILE if path.is_dir() or not path.suffix else path
    if not path.is_file():
        return None
    try:
        return Calibration.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a calibration file: {str(error).splitlines()[-1].strip()}") from error
