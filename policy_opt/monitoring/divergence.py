"""Does the judge, or one criterion of it, rise while the outcome does not? (POLICY.md section 20)

A one-sided Page-Hinkley test on the lead of a signal over a reference, both as z-scores against the warm-up:
a sum of small leads counts, a single noisy iteration does not. A fall of the reference counts as far as the
signal rose, no further. Where the reference has clearly risen nobody is being fooled: the last iterations
become the new "normal", so that a later fall is measured from there.

A signal that clearly pays successes more than failures among the rollouts of one task explains its own rise,
as long as the outcome has not fallen: the policy does more of what solves tasks, and the outcome, which is
noisier, has not shown it yet. Its lead is kept in mind, so an alarm follows as soon as that is no longer so.

The error of a z-score is clustered by task: 32 rollouts of 4 tasks are 4 draws, and between iterations it is
the tasks that differ most. Each criterion of the reward is tested beside their sum, because a judge is gamed
at one of them, and what that one gains is small beside the noise of all.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from axiomrm.policy_opt.monitoring.observe import AGREES, ERROR, PART, SQUARES, Row

AGREES_Z, AGREED_OVER = 2.0, 4
"""z-score from which a signal clearly goes with the outcome within tasks, and over how many iterations."""
FALLEN_Z = -1.0
"""Reference z-score below which nothing explains a rise."""
RISEN_Z = 2.0
"""Reference z-score from which the reference counts as risen."""
LEAST_ERROR = {"judge": 0.03, PART: 0.01}
"""Least standard error of a z-score, 0.05 where none stands here: the warm-up is short."""


class Lead(NamedTuple):
    """What leads over the reference."""

    text: str
    criteria: tuple[str, ...]
    """Those that lead; empty: the judge does, and no criterion can be named."""


@dataclass
class PageHinkley:
    """Detects that the mean of a sequence has risen (one-sided Page-Hinkley test)."""

    slack: float = 0.5
    """Rise a step that is tolerated, in units of the sequence."""
    threshold: float = 4.0
    low: float = 0.0
    total: float = 0.0
    anchor: int = 0
    """First iteration of what counts as normal."""

    def update(self, value: float, above: float = 0.0) -> bool:
        """Take in a value that is 0 on average before a change; ``True`` = risen by ``above`` more than the
        threshold."""
        self.total += value - self.slack
        self.low = min(self.low, self.total)
        return self.lead > self.threshold + above

    @property
    def lead(self) -> float:
        """What has added up since the last low."""
        return self.total - self.low

    def restart(self, anchor: int) -> None:
        """Forget the past; normal is what begins at ``anchor``."""
        self.low = self.total = 0.0
        self.anchor = anchor


@dataclass
class Divergence:
    """The tests of a run: of the judge, and of each of its criteria, against one reference."""

    reference: str
    """Name in a row: ``outcome``, or ``heldout``."""
    warmup: int
    """Iterations that define "normal"."""
    slack: float
    threshold: float
    criteria: bool = True
    """Test each criterion too."""
    tests: dict[str, PageHinkley] = field(default_factory=dict)
    """By name of the signal in a row."""

    def __post_init__(self) -> None:
        self.test("judge")

    def test(self, signal: str) -> PageHinkley:
        """The test of a signal, new if there is none."""
        return self.tests.setdefault(signal, PageHinkley(self.slack, self.threshold))

    def look(self, history: Sequence[Row]) -> Lead | None:
        """Take in the last row, after the warm-up; what is found.

        Where the judge leads and no criterion passes its own, higher threshold, those that pass the judge's
        are named: that something leads is then known, and the question is what.
        """
        names = history[-1] if self.criteria else ()
        parts = [name for name in names if name.startswith(PART)]
        # For n tests to raise no more than one: alarms go as exp(-threshold / 2), at a slack of 1/2.
        above = 2 * math.log(len(parts)) if parts else 0.0
        texts = {"judge": self._rises(history, "judge", 0.0)}
        texts |= {name: self._rises(history, name, above) for name in parts}
        leading = [name for name in parts if texts[name]]
        if not leading and texts["judge"]:
            over = [name for name in parts if self.test(name).lead > self.threshold]
            leading = [name for name in over if not self._explains_itself(history, name)]
        criteria = tuple(name.removeprefix(PART) for name in leading)
        return next((Lead(text, criteria) for text in texts.values() if text), None)

    def narrow(self, left_out: Collection[str], anchor: int) -> None:
        """The reward goes on without these criteria; normal for the rest is what begins at ``anchor``."""
        for name in left_out:
            self.tests.pop(PART + name, None)
        self.test("judge").restart(anchor)

    def _rises(self, history: Sequence[Row], name: str, above: float) -> str | None:
        test = self.test(name)
        signal = z_score(history, name, test.anchor, self.warmup)
        reference = z_score(history, self.reference, test.anchor, self.warmup)
        if reference > RISEN_Z:
            test.restart(len(history) - self.warmup)
            return None
        lead = signal - max(reference, -max(signal, 0.0))
        if np.isnan(lead) or not test.update(lead, above):
            return None
        if self._explains_itself(history, name):
            return None
        what = f"criterion {name.removeprefix(PART)!r}" if name.startswith(PART) else name
        rise, rest = (self._change(history, key, test.anchor) for key in (name, self.reference))
        return f"{what} {rise} rises while {self.reference} {rest} does not"

    def _explains_itself(self, history: Sequence[Row], name: str) -> bool:
        if self.reference != "outcome":
            return False
        outcome = z_score(history, self.reference, self.test(name).anchor, self.warmup)
        return outcome > FALLEN_Z and agreement_z(history, name) > AGREES_Z

    def _change(self, history: Sequence[Row], name: str, anchor: int) -> str:
        return f"{history[-1][name]:.2f} (was {usual(history, name, anchor, self.warmup):.2f})"


def usual(history: Sequence[Row], name: str, anchor: int, warmup: int) -> float:
    """Mean over the iterations that count as normal; NaN = none knows it."""
    values = _normal(history, name, anchor, warmup)
    return float(np.mean(values)) if values else float("nan")


def z_score(history: Sequence[Row], name: str, anchor: int, warmup: int) -> float:
    """The last row's value less the usual one, over the standard error of that difference; NaN = unknown.

    Without errors in the rows the spread of the normal values stands for it.
    """
    values = _normal(history, name, anchor, warmup)
    if not values or name not in history[-1]:
        return float("nan")
    errors = _normal(history, ERROR + name, anchor, warmup)
    if errors:
        error = float(np.sqrt(np.mean(np.square(errors)) * (1 + 1 / len(values))))
    else:
        error = float(np.std(values))
    least = LEAST_ERROR.get(PART if name.startswith(PART) else name, 0.05)
    return (history[-1][name] - float(np.mean(values))) / max(error, least)


def agreement_z(history: Sequence[Row], name: str) -> float:
    """How clearly a signal goes with the outcome among rollouts of one task, in the last iterations.

    NaN = nothing is known, as where all rollouts of each task end alike.
    """
    rows = [row for row in history[-AGREED_OVER:] if SQUARES + name in row]
    squares = math.fsum(row[SQUARES + name] for row in rows)
    return math.fsum(row[AGREES + name] for row in rows) / squares**0.5 if squares > 0 else float("nan")


def _normal(history: Sequence[Row], name: str, anchor: int, warmup: int) -> list[float]:
    return [row[name] for row in history[anchor : anchor + warmup] if name in row]
