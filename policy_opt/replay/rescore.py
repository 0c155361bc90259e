"""A changed judge is asked again about stored turns, newest first and within a budget."""

import math
from collections.abc import Sequence

from axiomrm.data.trajectory import Trajectory
from axiomrm.policy_opt.records import NAN, StepReturns, TrajectoryRecord
from axiomrm.policy_opt.returns import LocalReturn
from axiomrm.policy_opt.rewards.answers import asked_about
from axiomrm.policy_opt.rewards.base import Episode, TurnJudge, apply_scores
from axiomrm.policy_opt.running import RunningStatistics
from axiomrm.policy_opt.step_returns import attach_returns


def within_budget(records: Sequence[TrajectoryRecord], judge_key: str, turns: int) -> list[TrajectoryRecord]:
    """Outdated records that have a transcript, newest first, until ``turns`` turns are reached."""
    chosen, left = [], turns
    for record in reversed(records):
        outdated = any(s.judge_key != judge_key and s.judge_revision for s in record.steps)
        if outdated and record.transcript and len(record.steps) <= left:
            chosen.append(record)
            left -= len(record.steps)
    return chosen


def rescore(records: Sequence[TrajectoryRecord], judge: TurnJudge) -> int:
    """Ask ``judge`` about each record's transcript and overwrite what another version said.

    A number that the environment gave stays. Where the new judge has none, the turn is missing, with its
    reason.

    Returns:
        Turns asked.
    """
    if not records:
        return 0
    episodes = [Episode(r, Trajectory.model_validate_json(r.transcript)) for r in records]
    answers = asked_about(judge, episodes)
    for record in records:
        for step in record.steps:
            if step.judge_revision:
                step.r_local, step.missing = NAN, None
                step.judge_revision = step.rubric_hash = ""
    apply_scores(episodes, answers)
    return sum(len(record.steps) for record in records)


def reattach(
    records: Sequence[TrajectoryRecord],
    statistics: RunningStatistics,
    *,
    kind: LocalReturn,
    gamma: float,
    anchors: bool,
) -> None:
    """New local returns and baselines among ``records``; a verifier's outcome keeps its own group's."""
    before = {id(step): step.returns for record in records for step in record.steps}
    attach_returns(records, statistics, kind=kind, gamma=gamma, anchors=anchors)
    for record in records:
        for step in record.steps:
            old = before[id(step)]
            verified = not record.mixed and not math.isnan(record.outcome)
            if old is not None and step.returns is not None and verified:
                step.returns = StepReturns(step.returns.local, old.outcome, old.zero_variance)
