"""Alarms over a run: is the judge being gamed, is the policy collapsing? (POLICY.md section 20)

Fed once an iteration; pure apart from their own memory. They warn; what to do is the caller's choice.
Thresholds are starting values, not facts.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from axiomrm.policy_opt.reward import Episode

RISEN_Z = 2.0
"""Outcome z-score from which the outcome counts as risen."""


class Alarm(NamedTuple):
    """One finding of one iteration."""

    name: str
    message: str


@dataclass
class PageHinkley:
    """Detects that the mean of a sequence has risen (one-sided Page-Hinkley test)."""

    slack: float = 1.0
    """Rise a step that is tolerated, in units of the sequence."""
    threshold: float = 6.0
    low: float = 0.0
    total: float = 0.0

    def update(self, value: float) -> bool:
        """Take in a value that is 0 on average before a change; ``True`` = risen."""
        self.total += value - self.slack
        self.low = min(self.low, self.total)
        return self.total - self.low > self.threshold


@dataclass
class Monitors:
    """Watches judge against outcome, canned text, length, missing verdicts and the spread within groups."""

    warmup: int = 5
    """Iterations that define "normal"."""
    canned_share: float = 0.5
    """Share of the most frequent action text that counts as canned, where it also doubled since warm-up."""
    abstention_rise: float = 0.2
    length_correlation: float = 0.8
    history: list[dict[str, float]] = field(default_factory=list)
    divergence: PageHinkley = field(default_factory=PageHinkley)

    def update(self, episodes: Sequence[Episode]) -> list[Alarm]:
        """Take in the fresh rollouts of one iteration."""
        row = observe(episodes)
        self.history.append(row)
        if len(self.history) <= self.warmup:
            return []
        found = [
            self._divergence(row),
            self._canned(row),
            self._length(row),
            self._abstention(row),
            self._collapse(row),
        ]
        return [alarm for alarm in found if alarm is not None]

    def _normal(self, name: str) -> tuple[float, float]:
        values = [row[name] for row in self.history[: self.warmup] if not np.isnan(row[name])]
        if not values:
            return float("nan"), float("nan")
        return float(np.mean(values)), max(float(np.std(values)), 0.05)

    def _z(self, name: str, row: dict[str, float]) -> float:
        mean, std = self._normal(name)
        return (row[name] - mean) / std

    def _divergence(self, row: dict[str, float]) -> Alarm | None:
        judge, outcome = self._z("judge", row), self._z("outcome", row)
        # Once outcomes clearly rise as well the two scales are not comparable, and nobody is being fooled.
        gap = 0.0 if outcome > RISEN_Z else judge - max(outcome, 0.0)
        if np.isnan(gap) or not self.divergence.update(gap):
            return None
        return Alarm(
            "divergence",
            f"judge {row['judge']:.2f} (start {self._normal('judge')[0]:.2f}) rises while outcome "
            f"{row['outcome']:.2f} (start {self._normal('outcome')[0]:.2f}) does not",
        )

    def _canned(self, row: dict[str, float]) -> Alarm | None:
        usual = self._normal("canned")[0]
        if not row["canned"] > max(self.canned_share, 2 * usual):
            return None
        return Alarm("canned_text", f"{row['canned']:.0%} of turns say the same (start {usual:.0%})")

    def _length(self, row: dict[str, float]) -> Alarm | None:
        value, usual = row["length_correlation"], self._normal("length_correlation")[0]
        if np.isnan(value) or not (value > self.length_correlation and not value < usual + 0.3):
            return None
        return Alarm("length", f"turn reward and action length correlate {value:.2f} (start {usual:.2f})")

    def _abstention(self, row: dict[str, float]) -> Alarm | None:
        usual = self._normal("abstained")[0]
        if not row["abstained"] > usual + self.abstention_rise:
            return None
        return Alarm("abstention", f"{row['abstained']:.0%} of turns cannot be assessed (start {usual:.0%})")

    def _collapse(self, row: dict[str, float]) -> Alarm | None:
        past = [r["group_std"] for r in self.history[-21:-1] if not np.isnan(r["group_std"])]
        better = row["outcome"] > self._normal("outcome")[0] + 0.1
        if not past or better or not row["group_std"] < 0.5 * float(np.mean(past)):
            return None
        return Alarm("collapse", f"outcome spread within groups fell to {row['group_std']:.3f}")

    def state_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return {"history": self.history, "low": self.divergence.low, "total": self.divergence.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.history = list(state["history"])
        self.divergence.low, self.divergence.total = state["low"], state["total"]


def observe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What the alarms look at; NaN where nothing is known."""
    steps = [(s.r_local, float(s.n_tokens), s.missing or "") for e in episodes for s in e.record.steps]
    said = Counter(
        (turn.action.content, str(turn.action.tool_calls)) for e in episodes for turn in e.trajectory.turns
    )
    groups: dict[str, list[float]] = {}
    for episode in episodes:
        if not np.isnan(episode.record.outcome):
            groups.setdefault(episode.record.group_id, []).append(episode.record.outcome)
    turns = max(sum(said.values()), 1)
    return {
        "judge": _mean([_mean([s.r_local for s in e.record.steps]) for e in episodes]),
        "outcome": _mean([e.record.outcome for e in episodes]),
        "canned": max(said.values(), default=0) / turns,
        "length_correlation": _correlation([(r, n) for r, n, _ in steps]),
        "abstained": sum(m.startswith("cannot_assess") for _, _, m in steps) / max(len(steps), 1),
        "group_std": _mean([float(np.std(v)) for v in groups.values() if len(v) > 1]),
    }


def _mean(values: Sequence[float]) -> float:
    known = [v for v in values if not np.isnan(v)]
    return float(np.mean(known)) if known else float("nan")


def _correlation(pairs: Sequence[tuple[float, float]]) -> float:
    known = np.array([p for p in pairs if not np.isnan(p[0])])
    if len(known) < 3 or np.ptp(known[:, 0]) == 0 or np.ptp(known[:, 1]) == 0:
        return float("nan")
    return float(np.corrcoef(known[:, 0], known[:, 1])[0, 1])
