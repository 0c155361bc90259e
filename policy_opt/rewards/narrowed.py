"""A reward without what some of its criteria add: what a guard leaves of a judge that is gamed at them.

A turn's reward becomes the reward less the parts of these criteria. A missing reward stays missing: what the
others said of the turn is not known from it. Another reward is another judge, so the revision says what was
left out, and statistics and stored steps of the whole one are not mixed with it.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from axiomrm.data.trajectory import Trajectory
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.rewards.answers import ask
from axiomrm.policy_opt.rewards.base import TurnJudge, TurnScores

WITHOUT = " without "
"""Between a judge's revision and the criteria that were left out."""


class Narrowed:
    """A reward source, without criteria that may become more while it is used."""

    def __init__(self, source: TurnJudge, left_out: Collection[str]) -> None:
        """``left_out`` is read at each call; empty: the source as it is."""
        self.source, self.left_out = source, left_out

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[TurnScores]:
        """The source's answers, narrowed."""
        if not self.left_out:
            return self.source(trajectories)
        return [narrowed(answer, self.left_out) for answer in ask(self.source, trajectories)]


def narrowed(answer: TurnScores, left_out: Collection[str]) -> TurnScores:
    """An answer without what these criteria gave."""
    parts = answer.parts or [{} for _ in answer.turns]
    return replace(
        answer,
        turns=[_rest(reward, told, left_out) for reward, told in zip(answer.turns, parts, strict=True)],
        parts=[_kept(told, left_out) for told in answer.parts],
        judge_revision=_revision(answer.judge_revision, left_out),
    )


def narrow(record: TrajectoryRecord, left_out: Collection[str]) -> None:
    """The same for a record whose rewards stand in it already; what the environment gave stays."""
    for step in (step for step in record.steps if step.judge_revision):
        step.r_local = _rest(step.r_local, step.r_parts, left_out)
        step.r_parts = _kept(step.r_parts, left_out)
        step.judge_revision = _revision(step.judge_revision, left_out)


def _rest(reward: float, parts: Mapping[str, float], left_out: Collection[str]) -> float:
    gone = [value for name, value in parts.items() if name in left_out and not math.isnan(value)]
    return reward - math.fsum(gone)


def _kept(parts: Mapping[str, float], left_out: Collection[str]) -> dict[str, float]:
    return {name: value for name, value in parts.items() if name not in left_out}


def _revision(revision: str, left_out: Collection[str]) -> str:
    return revision.split(WITHOUT)[0] + WITHOUT + ", ".join(sorted(left_out))
