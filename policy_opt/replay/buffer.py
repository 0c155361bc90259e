"""Replay buffer: admission, eviction counted by reason, age-decayed priority, draws of whole trajectories.

Priorities with age decay after FreshPER (arXiv:2604.16918), weights as in prioritised replay
(arXiv:1511.05952).

Deviations, numbered: (1) a draw takes a trajectory with all its usable steps (priority = mean of the
steps'), because one forward serves them all; drawing single steps would run most rows for a fraction of
their tokens; (2) the weight's exponent stays as given, it does not rise to 1 over the run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from axiomrm.errors import DataError
from axiomrm.policy_opt.behaviour import SOLVED
from axiomrm.policy_opt.drawn import evenness
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord, check_tokens, from_json, to_json

Advantage = Callable[[TrajectoryRecord, StepRecord], float]
MIN_ESS = 0.3


def ess_of(weights: Sequence[float]) -> float:
    """Effective share of a weighted sample, ``(sum w)^2 / (N * sum w^2)``."""
    w = np.asarray(weights, dtype=np.float64)
    return float(w.sum() ** 2 / (len(w) * max(float((w**2).sum()), 1e-12)))


def is_of(record: TrajectoryRecord, subject: str) -> bool:
    """Whether the trajectory is the subject's; older checkpoints may hold a token as the number it was."""
    return record.subject is not None and str(record.subject) == subject


class ReplayBuffer:
    """Trajectories in the order they came."""

    def __init__(self, *, window: int = 4, max_reuse: int = 3, capacity: int = 2048) -> None:
        self.window = window
        self.max_reuse = max_reuse
        """A step is drawn at most ``1 + max_reuse`` times, the fresh pass included."""
        self.capacity = capacity
        self.records: list[TrajectoryRecord] = []
        self.evicted: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.success: dict[str, float] = {}
        """Running success rate a task, in [0, 1] whatever the scale of outcomes."""
        self.judge_key: str | None = None
        self.evenness: list[float] = []
        """Of this iteration's draws; whoever logs them empties it."""

    def add(self, record: TrajectoryRecord, advantage: Advantage) -> bool:
        """Admit a scored trajectory; ``False`` = refused, counted in ``rejected``.

        Raises:
            DataError: ids and log-probs do not belong together (a bug, not a bad rollout).
        """
        if not np.isnan(record.outcome):
            solved = float(record.outcome >= SOLVED)
            old = self.success.get(record.task_id, solved)
            self.success[record.task_id] = 0.8 * old + 0.2 * solved
        reason = self._refusal(record, advantage)
        if reason is not None:
            self.rejected[reason] += 1
            return False
        check_tokens(record)
        self.records.append(record)
        return True

    def _refusal(self, record: TrajectoryRecord, advantage: Advantage) -> str | None:
        if record.ending in ("env_error", "cancelled"):
            return record.ending
        values = np.array([advantage(record, step) for step in record.steps])
        if values.size == 0 or np.isnan(values).all():
            return "no_reward"
        flat = any(step.returns is not None and step.returns.zero_variance for step in record.steps)
        if flat and not np.nan_to_num(values).any():
            return "zero_variance"
        return None

    def usable(self, record: TrajectoryRecord) -> list[StepRecord]:
        """Steps that may still be drawn."""
        return [step for step in record.steps if step.uses <= self.max_reuse]

    def of_version(self, version: int) -> list[TrajectoryRecord]:
        """What was admitted from one policy version."""
        return [record for record in self.records if record.policy_version == version]

    def evict(self, version: int) -> dict[str, str]:
        """Drop what ``version`` must not draw any more; returns trajectory to reason."""
        reasons = {r.traj_id: reason for r in self.records if (reason := self._verdict(r, version))}
        kept = [record for record in self.records if record.traj_id not in reasons]
        for record in kept[: max(0, len(kept) - self.capacity)]:
            reasons[record.traj_id] = "capacity"
        self._drop(reasons)
        return reasons

    def _verdict(self, record: TrajectoryRecord, version: int) -> str | None:
        if version - record.policy_version > self.window:
            return "lag"
        if not self.usable(record):
            return "uses"
        weights = [step.last_w for step in record.steps if not np.isnan(step.last_w)]
        if len(weights) > 1 and ess_of(weights) < MIN_ESS:
            return "ess"
        return None

    def _drop(self, reasons: dict[str, str]) -> None:
        self.records = [record for record in self.records if record.traj_id not in reasons]
        self.evicted.update(reasons.values())

    def judge_changed(self, judge_key: str) -> dict[str, str]:
        """Another judge or rubric now: records with the old one's rewards leave, the others stay."""
        reasons = {
            record.traj_id: "judge"
            for record in self.records
            if any(step.judged and step.judge_key != judge_key for step in record.steps)
        }
        self.judge_key = judge_key
        self._drop(reasons)
        return reasons

    def forget(self, subject: str) -> int:
        """Consent withdrawn: the subject's records and their tasks' success rates go; returns how many."""
        gone = {r.traj_id: "forgotten" for r in self.records if is_of(r, subject)}
        for record in self.records:
            if record.traj_id in gone:
                self.success.pop(record.task_id, None)
        self._drop(gone)
        return len(gone)

    def priority(self, record: TrajectoryRecord, advantage: Advantage, version: int) -> float:
        """``(|A| + 0.01)^0.6 * exp(-lag/2) * (4q(1-q) + 0.1)``, mean over the usable steps."""
        values = [abs(a) for step in self.usable(record) if not np.isnan(a := advantage(record, step))]
        if not values:
            return 0.0
        q = self.success.get(record.task_id, 0.5)
        lag = version - record.policy_version
        size = float(np.mean([(value + 0.01) ** 0.6 for value in values]))
        return size * float(np.exp(-lag / 2)) * (4 * q * (1 - q) + 0.1)

    def draw(
        self,
        candidates: Sequence[TrajectoryRecord],
        n: int,
        *,
        advantage: Advantage,
        version: int,
        exponent: float,
        rng: np.random.Generator,
    ) -> list[tuple[TrajectoryRecord, float]]:
        """``n`` trajectories by priority without replacement, one of each stratum first where available.

        Returns:
            Trajectory and importance weight ``(1/(N p))^exponent`` divided by the greatest.
        """
        p = np.array([self.priority(r, advantage, version) for r in candidates], dtype=np.float64)
        if n <= 0 or p.sum() <= 0:
            return []
        p = p / p.sum()
        self.evenness.append(evenness(p))
        # Gumbel keys: the largest n are a draw without replacement in proportion to p.
        keys = np.where(p > 0, np.log(np.maximum(p, 1e-300)) + rng.gumbel(size=len(p)), -np.inf)
        ranked = [int(i) for i in np.argsort(-keys) if p[i] > 0]
        chosen = _stratified(ranked, [_stratum(r, advantage) for r in candidates], n)
        weights = (1.0 / (len(p) * p[chosen])) ** exponent
        weights = weights / weights.max()
        return [(candidates[i], float(w)) for i, w in zip(chosen, weights, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Plain values for the checkpoint."""
        return {
            "records": [to_json(record) for record in self.records],
            "evicted": dict(self.evicted),
            "rejected": dict(self.rejected),
            "success": dict(self.success),
            "judge_key": self.judge_key,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``.

        Raises:
            DataError: two records with one id.
        """
        self.records = [from_json(row) for row in state["records"]]
        repeated = [name for name, n in Counter(r.traj_id for r in self.records).items() if n > 1]
        if repeated:
            raise DataError(f"replay buffer: trajectory {repeated[0]!r} is stored twice")
        self.evicted, self.rejected = Counter(state["evicted"]), Counter(state["rejected"])
        # Older checkpoints hold running means of the outcome, which may lie outside.
        self.success = {task: min(max(q, 0.0), 1.0) for task, q in state["success"].items()}
        self.judge_key = state["judge_key"]


def _stratum(record: TrajectoryRecord, advantage: Advantage) -> tuple[str, bool]:
    values = [a for step in record.steps if not np.isnan(a := advantage(record, step))]
    return record.task_type, bool(values) and float(np.sum(values)) > 0


def _stratified(ranked: Sequence[int], strata: Sequence[tuple[str, bool]], n: int) -> list[int]:
    first: dict[tuple[str, bool], int] = {}
    for i in ranked:
        first.setdefault(strata[i], i)
    chosen = list(first.values())[:n]
    chosen += [i for i in ranked if i not in set(chosen)][: n - len(chosen)]
    return chosen
