"""From raw rewards of a batch of trajectories to both returns and their baselines' ingredients."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

from axiomrm.policy_opt.advantages import check_rewards, leave_one_out
from axiomrm.policy_opt.records import NAN, StepRecord, StepReturns, Target, TrajectoryRecord, check_tokens
from axiomrm.policy_opt.returns import LocalReturn, local_returns
from axiomrm.policy_opt.running import RunningStatistics

OUTCOME = "outcome"
EpisodeReward = Literal["outcome", "summed"]


def local_target(step: StepRecord) -> str:
    """Name of the local statistics of this step's judge version."""
    return f"local:{step.judge_key}"


def scorable(record: TrajectoryRecord) -> bool:
    """Whether the episode ran: one that an error or a cancellation ended is in nobody's baseline."""
    return record.ending not in ("env_error", "cancelled") and bool(record.steps)


def trainable(fresh: Sequence[TrajectoryRecord]) -> list[TrajectoryRecord]:
    """Those of an iteration's rollouts that are scorable.

    Raises:
        DataError: tokens of one of them do not fit its steps.
    """
    records = [record for record in fresh if scorable(record)]
    for record in records:
        check_tokens(record)
    return records


def attach_returns(
    records: Sequence[TrajectoryRecord],
    statistics: RunningStatistics,
    *,
    kind: LocalReturn,
    gamma: float,
    anchors: bool = False,
) -> None:
    """Fill ``step.returns`` of every step; statistics are only read.

    Raises:
        DataError: a reward is infinite.
    """
    records = [record for record in records if scorable(record)]
    steps = [(record, step) for record in records for step in record.steps]
    check_rewards([step.r_local for _, step in steps], "turn reward")
    check_rewards([record.r_global for record in records], "trajectory reward")
    values = [v for record in records for v in _returns_of(record, statistics, kind, gamma)]
    owners = [record.traj_id for record, _ in steps]
    own = _targets(values, owners, _levels(steps, anchors))
    names = [record.traj_id for record in records]
    outcomes = [record.r_global for record in records]
    whole = dict(zip(names, _targets(outcomes, names, [[r.group_id for r in records]]), strict=True))
    flat = flat_groups(records)
    for (record, step), local in zip(steps, own, strict=True):
        step.returns = StepReturns(local, whole[record.traj_id], record.group_id in flat)


def _levels(
    steps: Sequence[tuple[TrajectoryRecord, StepRecord]], anchors: bool
) -> list[list[tuple[str, str, int] | None]]:
    """Groups that a step is compared in, the closest first: equal states if wanted, then equal turns."""
    turns: list[tuple[str, str, int] | None] = [
        (record.group_id, step.judge_key, step.turn) for record, step in steps
    ]
    if not anchors:
        return [turns]
    states = [
        None if step.anchor is None else (record.group_id, step.judge_key, step.anchor)
        for record, step in steps
    ]
    return [states, turns]


def _targets(
    values: Sequence[float], owners: Sequence[str], levels: Sequence[Sequence[Hashable | None]]
) -> list[Target]:
    found = leave_one_out(values, owners, levels)
    return [
        Target(float(value), float(mean), int(m), int(level))
        for value, mean, m, level in zip(values, found.mean, found.m, found.level, strict=True)
    ]


def _returns_of(
    record: TrajectoryRecord, statistics: RunningStatistics, kind: LocalReturn, gamma: float
) -> list[float]:
    costs = [statistics.scalar(f"cost:{step.judge_key}") for step in record.steps]
    values = local_returns(
        kind,
        [step.r_local for step in record.steps],
        [step.progress for step in record.steps],
        gamma=gamma,
        cost=[0.0 if np.isnan(cost) else cost for cost in costs],
        tail=_tail(record, statistics),
        terminal=record.final_progress if np.isnan(record.r_global) else record.r_global,
    )
    return [float(value) for value in values]


def _tail(record: TrajectoryRecord, statistics: RunningStatistics) -> float:
    """Value of the state at the cut, by the source that rewarded most of the turns: it would most likely have
    rewarded the next one, too."""
    if not record.truncated or record.ending == "turn_limit":
        return 0.0
    ((target, _),) = Counter(local_target(step) for step in record.steps).most_common(1)
    return statistics.baseline(target, record.task_type, record.steps[-1].turn + 1)


def flat_groups(records: Sequence[TrajectoryRecord]) -> set[str]:
    """Groups of two or more known global returns that are all the same."""
    groups: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if not np.isnan(record.r_global):
            groups[record.group_id].append(record.r_global)
    return {name for name, values in groups.items() if len(values) > 1 and np.ptp(values) < 1e-9}


def judge_score(record: TrajectoryRecord, kind: LocalReturn = "immediate") -> float:
    """What the turn rewards say of the trajectory, NaN if nothing: their mean, of ``delta`` the last score of
    a state."""
    if kind == "delta":
        scores = [*(step.progress for step in record.steps), record.final_progress]
        return next((score for score in reversed(scores) if not np.isnan(score)), NAN)
    values = [step.r_local for step in record.steps if not np.isnan(step.r_local)]
    return float(np.mean(values)) if values else NAN


def episode_return(record: TrajectoryRecord, reward: EpisodeReward) -> float:
    """The outcome, or with ``summed`` the outcome plus every turn reward; NaN if a part is missing."""
    if reward == "outcome":
        return record.r_global
    return record.r_global + sum(step.r_local for step in record.steps)


def mean_action_tokens(records: Sequence[TrajectoryRecord]) -> float:
    """Sampled tokens a trajectory; 1 without any trajectory."""
    return float(np.mean([record.n_action_tokens for record in records])) if records else 1.0
