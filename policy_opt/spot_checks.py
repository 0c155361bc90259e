"""Which rollouts a person should read: the extremes of reward, of disagreement, of advantage."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from axiomrm.data.trajectory import Trajectory, finite_json
from axiomrm.data.writing import atomic_file, json_line, to_record
from axiomrm.policy_opt.association import known_mean
from axiomrm.policy_opt.behaviour import SOLVED
from axiomrm.policy_opt.reward import Episode, rewarded_trajectory

KEPT = 3
"""Rollouts kept at each end."""
KEPT_METADATA = ("turn_missing", "turn_parts", "ending", "policy_version")


class SpotCheck(NamedTuple):
    """One rollout to read, and why."""

    trajectory: Trajectory
    """With ``turn_rewards`` (NaN = missing)."""
    why: str
    value: float


def pick(trajectories: Sequence[Trajectory], *, kept: int = KEPT) -> list[SpotCheck]:
    """The ``kept`` best and worst rewarded, rewarded failures and unrewarded successes.

    A rollout stands once, under the first reason that names it; those without a reward are left out.

    Args:
        trajectories: with ``turn_rewards``; an outcome is needed for disagreement.
        kept: rollouts a reason.
    """
    scored = [(t, mean) for t in trajectories if not math.isnan(mean := mean_reward(t))]
    ranked = sorted(scored, key=lambda x: -x[1])
    failed = [x for x in ranked if outcome_of(x[0]) < SOLVED]
    solved = [x for x in reversed(ranked) if outcome_of(x[0]) >= SOLVED]
    lists = {
        "failed, but rewarded most": failed,
        "solved, but rewarded least": solved,
        "highest turn rewards": ranked,
        "lowest turn rewards": list(reversed(ranked)),
    }
    taken: dict[str, SpotCheck] = {}
    for why, rows in lists.items():
        for trajectory, mean in rows[:kept]:
            taken.setdefault(trajectory.id, SpotCheck(trajectory, why, mean))
    return list(taken.values())


def mean_reward(trajectory: Trajectory) -> float:
    """Mean of the known turn rewards; NaN without any."""
    return known_mean(list(trajectory.turn_rewards or ()))


def outcome_of(trajectory: Trajectory) -> float:
    """The verifier's score; NaN without one."""
    score = trajectory.outcome.score if trajectory.outcome else None
    return math.nan if score is None else score


def write_spot_checks(
    path: Path,
    iteration: int,
    episodes: Sequence[Episode],
    advantage: Callable[[Episode], float] | None = None,
) -> None:
    """Add an iteration's spot checks to a JSONL file; what stood there for it or a later one is replaced.

    Args:
        path: the file.
        iteration: theirs.
        episodes: its rollouts.
        advantage: greatest absolute advantage of an episode's steps; the ``KEPT`` greatest are added.
    """
    checks = pick([rewarded_trajectory(episode) for episode in episodes])
    if advantage is not None:
        sized = [(e, value) for e in episodes if not math.isnan(value := advantage(e))]
        names = {check.trajectory.id for check in checks}
        for episode, value in sorted(sized, key=lambda x: -x[1])[:KEPT]:
            if episode.trajectory.id not in names:
                checks.append(SpotCheck(rewarded_trajectory(episode), "largest advantage", value))
    rows = [row for row in read_spot_checks(path) if row["iteration"] < iteration]
    rows += [
        {
            "iteration": iteration,
            "why": c.why,
            "value": c.value,
            "trajectory": to_record(_short(c.trajectory)),
        }
        for c in checks
    ]
    with atomic_file(path) as handle:
        handle.writelines(json_line(finite_json(row), str(path)) for row in rows)


def _short(trajectory: Trajectory) -> Trajectory:
    """Without tool specifications and what only the environment reads."""
    infos = trajectory.metadata.get("turns", ())
    kept = {key: trajectory.metadata[key] for key in KEPT_METADATA if key in trajectory.metadata}
    told = {"oracle": [info.get("oracle_turn") for info in infos]}
    return trajectory.model_copy(update={"tools": (), "metadata": kept | told})


def read_spot_checks(path: Path) -> list[dict[str, Any]]:
    """The rows of such a file; none if it is not there."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
