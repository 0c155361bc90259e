"""What a batch of trajectories teaches the running statistics, and what can be told of its advantages."""

from collections.abc import Callable, Sequence

import numpy as np

from axiomrm.policy_opt.advantages import CLIP, group_discrimination, per_owner_std, zero_share
from axiomrm.policy_opt.association import known_mean
from axiomrm.policy_opt.records import NAN, StepRecord, TrajectoryRecord
from axiomrm.policy_opt.running import RunningStatistics
from axiomrm.policy_opt.step_returns import OUTCOME, local_target

NORMAL_95 = 1.96
RawAdvantage = Callable[[TrajectoryRecord, StepRecord, RunningStatistics], tuple[float, float]]


def take_in(
    stats: RunningStatistics,
    before: RunningStatistics,
    records: Sequence[TrajectoryRecord],
    *,
    raw: RawAdvantage,
    score: Callable[[TrajectoryRecord], float],
) -> None:
    """Update baselines, scales, cost of a turn, tokens a trajectory and discrimination.

    Args:
        stats: updated in place.
        before: the statistics that this batch's baselines come from; gets this batch's scale where it has
            none.
        records: trajectories with their returns attached.
        raw: unscaled global and local advantage of a step; NaN = missing.
        score: what the turn rewards say of a trajectory, whose outcome they should predict; NaN = nothing.
    """
    pairs = [(record, step) for record in records for step in record.steps]
    advantages = [raw(record, step, before) for record, step in pairs]
    owners = [record.traj_id for record, _ in pairs]
    for target in sorted({local_target(step) for _, step in pairs}):
        mine = [i for i, (_, step) in enumerate(pairs) if local_target(step) == target]
        rows = [(owners[i], pairs[i][0].task_type, pairs[i][1].turn, _local(pairs[i][1])) for i in mine]
        stats.update_baselines(target, rows)
        spread = per_owner_std([advantages[i][1] for i in mine], [owners[i] for i in mine])
        _update_sigma(stats, before, target, spread)
        cost = [pairs[i][1].r_local for i in mine if not np.isnan(pairs[i][1].r_local)]
        stats.update_scalar(f"cost:{target.removeprefix('local:')}", float(np.mean(cost)) if cost else NAN)
    stats.update_baselines(OUTCOME, [(r.traj_id, r.task_type, None, r.r_global) for r in records])
    _update_sigma(stats, before, OUTCOME, per_owner_std([a for a, _ in advantages], owners))
    if records:
        stats.update_scalar("action_tokens", float(np.mean([r.n_action_tokens for r in records])))
    for group in sorted({record.group_id for record in records}):
        members = [record for record in records if record.group_id == group]
        stats.add_discrimination(
            group_discrimination([score(r) for r in members], [r.outcome for r in members])
        )


def scale_metrics(stats: RunningStatistics, steps: Sequence[StepRecord]) -> dict[str, float]:
    """The local term's scale (mean over the steps that have one) and the 95 % interval of discrimination.

    The interval is that of a mean of independent groups. What is not known is absent: no scale before the
    first batch, no interval while the prior stands for the discrimination.
    """
    sigmas = [stats.sigma(local_target(step)) for step in steps if not np.isnan(_local(step))]
    sigma, disc = known_mean(sigmas), stats.discrimination(NAN)
    out = {} if np.isnan(sigma) else {"advantage/sigma_local": sigma}
    if not np.isnan(disc):
        values = stats.discriminations
        reach = NORMAL_95 * float(np.std(values, ddof=1)) / len(values) ** 0.5
        out |= {"advantage/disc_low": max(disc - reach, -1.0), "advantage/disc_high": min(disc + reach, 1.0)}
    return out


def _local(step: StepRecord) -> float:
    return NAN if step.returns is None else step.returns.local.value


def _update_sigma(stats: RunningStatistics, before: RunningStatistics, target: str, value: float) -> None:
    stats.update_sigma(target, value)
    if np.isnan(before.sigma(target)):
        # No running scale yet: the first batch is scaled by its own.
        before.update_sigma(target, value)


def advantage_shares(terms: Sequence[tuple[float, float]], mixed: Sequence[float]) -> dict[str, float]:
    """Shares of steps whose mixed advantage is 0, is clipped, or whose two terms pull apart.

    Args:
        terms: scaled global and local advantage of each step; NaN = missing.
        mixed: the advantage that is trained on; NaN = not drawn.
    """
    values = np.array([value for value in mixed if not np.isnan(value)])
    both = np.array([a * b for a, b in terms if not (np.isnan(a) or np.isnan(b))])
    return {
        "advantage/zero_share": zero_share(mixed),
        "advantage/clipped_share": float((np.abs(values) >= CLIP).mean()) if values.size else NAN,
        "advantage/sign_conflict_share": float((both < 0).mean()) if both.size else NAN,
    }
