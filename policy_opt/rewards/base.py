"""Where rewards come from: the judge is passed in; a failed judgement is NaN with its reason."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal, Protocol, runtime_checkable

from axiomrm.data.trajectory import Trajectory
from axiomrm.policy_opt.records import NAN, TrajectoryRecord

Level = Literal["turn", "trajectory", "both"]


@dataclass(frozen=True)
class TurnScores:
    """What the turn judge says about one trajectory."""

    turns: list[float]
    """One reward a turn; NaN = missing."""
    reasons: list[str | None]
    """Why a turn is missing: ``"cannot_assess:…"``, ``"failed:…"``, or ``"not_asked:…"`` where the source
    gives no turn rewards; ``None`` where it is scored."""
    judge_revision: str
    rubric_hash: str
    trajectory: float = NAN
    """The judge's reward of the whole trajectory; used only where there is no verifier outcome."""
    coverage: list[float] = field(default_factory=list)
    parts: list[dict[str, float]] = field(default_factory=list)
    """What each criterion or source gave to the reward of each turn; empty: not told."""
    mixed: bool = False
    """``trajectory`` already holds the verifier's outcome in a configured mix, and stands for both."""
    level: Level = "both"
    """What the source rewards; a mix leaves it out of the other sum."""
    critiques: list[dict[str, str]] = field(default_factory=list)
    """What the judge wrote about each turn, by criterion, for people to read; a criterion without a text is
    left out, and empty means that none was written."""


TurnJudge = Callable[[Sequence[Trajectory]], list[TurnScores]]


@runtime_checkable
class StatefulJudge(Protocol):
    """A reward source with a memory (running scales) that belongs into the checkpoint."""

    def state_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        ...


@runtime_checkable
class ForgetfulJudge(Protocol):
    """A reward source that keeps something of each user."""

    def forget(self, subject: str) -> None:
        """Consent withdrawn: drop it."""
        ...


@dataclass
class Episode:
    """One rollout: what is trained on and what people and judges read."""

    record: TrajectoryRecord
    trajectory: Trajectory
    critiques: list[dict[str, str]] = field(default_factory=list)
    """What the judge wrote about each turn, by criterion; empty: nothing. Kept for spot checks, never stored
    with the record."""


def apply_scores(episodes: Sequence[Episode], scores: Sequence[TurnScores]) -> None:
    """Write a judge's answers, as ``answers.asked_about`` returns them, into the records; a number that the
    environment already gave stays."""
    for episode, answer in zip(episodes, scores, strict=True):
        record = episode.record
        record.judge_reward, record.mixed = answer.trajectory, answer.mixed
        details = zip_longest(answer.coverage, answer.parts, answer.critiques)
        written: list[dict[str, str]] = []
        for step, reward, reason in zip(record.steps, answer.turns, answer.reasons, strict=True):
            coverage, parts, critiques = next(details, (None, None, None))
            if not math.isnan(step.r_local):
                written.append({})
                continue
            written.append({name: text for name, text in (critiques or {}).items() if text})
            step.r_local, step.missing = reward, reason if math.isnan(reward) else None
            step.judge_revision, step.rubric_hash = answer.judge_revision, answer.rubric_hash
            step.coverage = step.coverage if coverage is None else coverage
            step.r_parts = step.r_parts if parts is None else parts
        episode.critiques = written if any(written) else []


def rewarded_trajectory(episode: Episode) -> Trajectory:
    """The trajectory with its per-turn rewards (NaN = missing); in its metadata reasons, parts and, where the
    judge wrote any, critiques. A sampled turn that could not be read is in the record alone."""
    steps = episode.record.steps[: len(episode.trajectory.turns)]
    told: dict[str, Any] = {
        "turn_missing": [s.missing for s in steps],
        "turn_parts": [dict(s.r_parts) for s in steps],
    }
    if episode.critiques:
        told["turn_critiques"] = [dict(texts) for texts in episode.critiques]
    return episode.trajectory.model_copy(
        update={
            "turn_rewards": tuple(step.r_local for step in steps),
            "metadata": episode.trajectory.metadata | told,
        }
    )
