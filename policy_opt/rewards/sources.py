"""Reward sources that combine: each is a function from trajectories to `TurnScores`, and so is a mix of them.

A mix is a weighted sum. A part that does not reward turns at all (a verifier) is left out of the sum a turn;
a part that should have said something and did not makes the sum missing: the rest would be another reward.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

from axiomrm.data.jsonl import found_instead
from axiomrm.data.trajectory import Trajectory, canonical_json
from axiomrm.errors import ConfigError, DataError
from axiomrm.policy_opt.arguments import check_source
from axiomrm.policy_opt.rewards.answers import ask
from axiomrm.policy_opt.rewards.base import ForgetfulJudge, StatefulJudge, TurnJudge, TurnScores

NOT_ASKED = "not_asked:"


def verifier_reward(trajectories: Sequence[Trajectory]) -> list[TurnScores]:
    """The environment's own outcome as the reward of the trajectory; no turn rewards."""
    return [
        TurnScores(
            turns=[math.nan] * len(t.turns),
            reasons=[f"{NOT_ASKED}verifier"] * len(t.turns),
            judge_revision="verifier",
            rubric_hash="",
            trajectory=math.nan if t.outcome is None or t.outcome.score is None else t.outcome.score,
            mixed=True,
            level="trajectory",
        )
        for t in trajectories
    ]


class Composite:
    """A weighted sum of reward sources."""

    def __init__(self, parts: Mapping[str, TurnJudge], weights: Mapping[str, float]) -> None:
        """Put it together.

        Args:
            parts: name → source.
            weights: one for each, in reward units; negative for a penalty.

        Raises:
            ConfigError: parts and weights do not name the same things, a part cannot be a reward source, or a
                weight is no finite number.
        """
        for name, value in (("parts", parts), ("weights", weights)):
            if not isinstance(value, Mapping):
                raise ConfigError(f"composite reward: {name}: {found_instead(value, 'a dict by name')}")
        if not parts or set(parts) != set(weights):
            raise ConfigError(
                f"composite reward: parts {sorted(parts)!r} and weights {sorted(weights)!r} must name the "
                "same things"
            )
        for name, source in parts.items():
            check_source(source, f"composite reward: parts[{name!r}]")
        bad = {n: w for n, w in weights.items() if not isinstance(w, Real) or not math.isfinite(w)}
        if bad:
            raise ConfigError(f"composite reward: weights {bad!r} must be finite numbers")
        # Python's own numbers, which JSON takes; a whole one as it is, because versions are hashed with it.
        plain = {name: w if isinstance(w, int) else float(w) for name, w in weights.items()}
        self.parts, self.weights = dict(parts), plain

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[TurnScores]:
        """Ask every part about all trajectories."""
        answers = {
            n: ask(source, trajectories, source=f"reward part {n!r}") for n, source in self.parts.items()
        }
        return [self._mix({n: rows[i] for n, rows in answers.items()}) for i in range(len(trajectories))]

    def _mix(self, row: Mapping[str, TurnScores]) -> TurnScores:
        here = {name: s for name, s in row.items() if s.level != "trajectory"}
        whole = {name: s for name, s in row.items() if s.level != "turn"}
        lengths = {name: len(s.turns) for name, s in row.items()}
        n = next(iter(lengths.values()))
        if set(lengths.values()) != {n}:
            raise DataError(f"composite reward: parts answer for different numbers of turns: {lengths!r}")
        versions = {k: [s.judge_revision, s.rubric_hash, self.weights[k]] for k, s in sorted(row.items())}
        return TurnScores(
            turns=[self._sum({k: s.turns[t] for k, s in here.items()}) for t in range(n)],
            reasons=[_reason(here, t) for t in range(n)],
            judge_revision=hashlib.sha256(canonical_json(versions).encode()).hexdigest(),
            rubric_hash="+".join(s.rubric_hash[:12] for _, s in sorted(row.items()) if s.rubric_hash),
            trajectory=self._sum({k: s.trajectory for k, s in whole.items()}),
            coverage=[_least([s.coverage[t] for s in here.values() if s.coverage]) for t in range(n)],
            parts=[{k: self.weights[k] * s.turns[t] for k, s in here.items()} for t in range(n)],
            mixed=any(s.mixed for s in row.values()),
            level=("turn" if not whole else "trajectory" if not here else "both"),
            critiques=_critiques(here, n),
        )

    def _sum(self, values: Mapping[str, float]) -> float:
        return sum(self.weights[name] * value for name, value in values.items()) if values else math.nan

    def state_dict(self) -> dict[str, Any]:
        """Memories of the parts that have one."""
        return {name: part.state_dict() for name, part in self._stateful().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])

    def forget(self, subject: str) -> None:
        """Consent withdrawn: every part that keeps something of the user drops it."""
        parts: list[object] = [*self.parts.values()]
        for part in parts:
            if isinstance(part, ForgetfulJudge):
                part.forget(subject)

    def _stateful(self) -> dict[str, StatefulJudge]:
        parts: dict[str, object] = {**self.parts}
        return {name: part for name, part in parts.items() if isinstance(part, StatefulJudge)}


def _reason(row: Mapping[str, TurnScores], turn: int) -> str | None:
    missing = {name: s.reasons[turn] for name, s in row.items() if math.isnan(s.turns[turn])}
    if not row:
        return f"{NOT_ASKED}composite"
    kinds = [reason or "cannot_assess:" for reason in missing.values()]
    # A failure outranks an abstention: failures are counted and stop a run.
    return next((k for k in kinds if k.startswith("failed")), kinds[0] if kinds else None)


def _critiques(row: Mapping[str, TurnScores], turns: int) -> list[dict[str, str]]:
    """Each part's, named ``part/criterion``."""
    told = {name: scores.critiques for name, scores in row.items() if scores.critiques}
    return [
        {f"{part}/{name}": text for part, rows in told.items() for name, text in rows[turn].items()}
        for turn in range(turns if told else 0)
    ]


def _least(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return min(known, default=math.nan)
