"""Running statistics of the rewards: baselines, scales, discrimination, cost of a turn, tokens a trajectory.

Updated *after* a batch's baselines were computed, one vote a trajectory, never a step. Local statistics are
keyed by the judge's version, so that two revisions never meet in one baseline.
"""

import copy
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Key = tuple[str, ...]


@dataclass
class RunningStatistics:
    """Exponential means (``decay`` an update) and the last discriminations."""

    decay: float = 0.95
    turn_cap: int = 8
    """Turns from here on share one statistic."""
    means: dict[Key, float] = field(default_factory=dict)
    sigmas: dict[str, float] = field(default_factory=dict)
    discriminations: list[float] = field(default_factory=list)
    """Within-group Spearman of the last informative groups, newest last."""
    window: int = 64

    def baseline(self, target: str, task_type: str, turn: int | None = None) -> float:
        """``b_ema[task_type, turn]``, backing off to the task type, then to all; NaN if nothing is known."""
        for key in self._keys(target, task_type, turn):
            if key in self.means:
                return self.means[key]
        return float("nan")

    def _keys(self, target: str, task_type: str, turn: int | None) -> list[Key]:
        keys: list[Key] = [(target, task_type), (target,)]
        if turn is not None:
            keys.insert(0, (target, task_type, str(min(turn, self.turn_cap))))
        return keys

    def update_baselines(self, target: str, rows: Iterable[tuple[str, str, int | None, float]]) -> None:
        """Take in one batch of ``(trajectory, task_type, turn, return)``; NaN returns are skipped."""
        by_key: dict[Key, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for owner, task_type, turn, value in rows:
            if not np.isnan(value):
                for key in self._keys(target, task_type, turn):
                    by_key[key][owner].append(value)
        for key, owners in by_key.items():
            self._blend(key, float(np.mean([np.mean(values) for values in owners.values()])))

    def _blend(self, key: Key, value: float) -> None:
        old = self.means.get(key)
        self.means[key] = value if old is None else self.decay * old + (1 - self.decay) * value

    def update_scalar(self, name: str, value: float) -> None:
        """Blend a named number (cost of a turn, tokens a trajectory) in; NaN is skipped."""
        if not np.isnan(value):
            self._blend(("scalar", name), value)

    def scalar(self, name: str) -> float:
        """A named running number; NaN before the first."""
        return self.means.get(("scalar", name), float("nan"))

    def update_sigma(self, target: str, value: float) -> None:
        """Blend a batch standard deviation in; NaN is skipped."""
        if not np.isnan(value):
            old = self.sigmas.get(target)
            self.sigmas[target] = value if old is None else self.decay * old + (1 - self.decay) * value

    def sigma(self, target: str) -> float:
        """Running standard deviation; NaN before the first batch."""
        return self.sigmas.get(target, float("nan"))

    def add_discrimination(self, value: float) -> None:
        """Take in one group; NaN (outcome did not vary) is not informative."""
        if not np.isnan(value):
            self.discriminations = [*self.discriminations, value][-self.window :]

    def discrimination(self, prior: float, min_groups: int = 20) -> float:
        """Mean over the last informative groups; the declared ``prior`` before ``min_groups`` of them."""
        if len(self.discriminations) < min_groups:
            return prior
        return float(np.mean(self.discriminations))

    def snapshot(self) -> "RunningStatistics":
        """A copy that later updates do not touch."""
        return copy.deepcopy(self)

    def forget_judge(self, judge_key: str) -> None:
        """Drop what an outdated judge version taught."""
        target = f"local:{judge_key}"
        self.means = {key: value for key, value in self.means.items() if key[0] != target}
        self.sigmas.pop(target, None)
        self.discriminations = []

    def state_dict(self) -> dict[str, Any]:
        """Plain values for the checkpoint."""
        return {
            "means": [[list(key), value] for key, value in self.means.items()],
            "sigmas": dict(self.sigmas),
            "discriminations": list(self.discriminations),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.means = {tuple(key): value for key, value in state["means"]}
        self.sigmas = dict(state["sigmas"])
        self.discriminations = list(state["discriminations"])
