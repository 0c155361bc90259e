"""Which rollouts a person should read: the extremes of reward, of disagreement, of advantage."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from axiomrm.data.trajectory import Trajectory, finite_json
from axiomrm.data.writing import atomic_file, json_line, to_record
from axiomrm.policy_opt.association import known_mean
from axiomrm.policy_opt.behaviour import SOLVED
from axiomrm.policy_opt.rewards.base import Episode, rewarded_trajectory

KEPT = 3
"""Rollouts kept at each end."""
LONGEST = 600
"""Characters of a critique that are kept."""
KEPT_METADATA = ("turn_missing", "turn_parts", "ending", "policy_version")
Advantages = Mapping[str, Sequence[float]]
"""By the trajectory's id, one a turn; NaN = none."""


class SpotCheck(NamedTuple):
    """One rollout to read, and why."""

    trajectory: Trajectory
    """With ``turn_rewards`` (NaN = missing)."""
    why: str
    """The first reason that names it."""
    value: float
    """What that reason ranks by: mean turn reward, or a step's advantage."""
    places: Mapping[str, int]
    """Place under each reason that names it; 1 = the extreme."""


def pick(
    trajectories: Sequence[Trajectory], *, kept: int = KEPT, advantages: Advantages | None = None
) -> list[SpotCheck]:
    """The ``kept`` rollouts at each end of reward, of disagreement with the outcome, and of advantage.

    A rollout stands once, under the first reason that names it; ``places`` has the others.

    Args:
        trajectories: with ``turn_rewards``; an outcome is needed for disagreement.
        kept: rollouts a reason.
        advantages: of each rollout's steps; a rollout counts by its highest one above 0 and its lowest one
            below. ``None``: not known.
    """
    taken: dict[str, SpotCheck] = {}
    for why, rows in (_by_reward(trajectories, kept) | _by_advantage(trajectories, advantages or {})).items():
        for place, (trajectory, value) in enumerate(rows[:kept], 1):
            check = taken.get(trajectory.id, SpotCheck(trajectory, why, value, {}))
            taken[trajectory.id] = check._replace(places={**check.places, why: place})
    return list(taken.values())


Ranked = list[tuple[Trajectory, float]]


def _by_reward(trajectories: Sequence[Trajectory], kept: int) -> dict[str, Ranked]:
    """Those without a reward are left out; none stands at both ends."""
    scored = [(t, mean) for t in trajectories if not math.isnan(mean := mean_reward(t))]
    ranked = sorted(scored, key=lambda x: -x[1])
    return {
        "failed, but rewarded most": [x for x in ranked if outcome_of(x[0]) < SOLVED],
        "solved, but rewarded least": [x for x in reversed(ranked) if outcome_of(x[0]) >= SOLVED],
        "highest turn rewards": ranked[:kept],
        "lowest turn rewards": ranked[kept:][::-1],
    }


def _by_advantage(trajectories: Sequence[Trajectory], advantages: Advantages) -> dict[str, Ranked]:
    told = [(t, [a for a in advantages.get(t.id, ()) if not math.isnan(a)]) for t in trajectories]
    up = [(t, max(values)) for t, values in told if values and max(values) > 0]
    down = [(t, min(values)) for t, values in told if values and min(values) < 0]
    return {
        "highest advantage": sorted(up, key=lambda x: -x[1]),
        "lowest advantage": sorted(down, key=lambda x: x[1]),
    }


def mean_reward(trajectory: Trajectory) -> float:
    """Mean of the known turn rewards; NaN without any."""
    return known_mean(list(trajectory.turn_rewards or ()))


def outcome_of(trajectory: Trajectory) -> float:
    """The verifier's score; NaN without one."""
    score = trajectory.outcome.score if trajectory.outcome else None
    return math.nan if score is None else score


def write_spot_checks(
    path: Path, iteration: int, episodes: Sequence[Episode], advantages: Advantages | None = None
) -> None:
    """Add an iteration's spot checks to a JSONL file; what stood there for it or a later one is replaced.

    Args:
        path: the file.
        iteration: theirs.
        episodes: its rollouts.
        advantages: of their steps; ``None``: not known.
    """
    advantages = advantages or {}
    checks = pick([rewarded_trajectory(episode) for episode in episodes], advantages=advantages)
    rows = [row for row in read_spot_checks(path) if row["iteration"] < iteration]
    rows += [
        {
            "iteration": iteration,
            "why": c.why,
            "value": c.value,
            "places": dict(c.places),
            "trajectory": to_record(_short(c.trajectory, advantages)),
        }
        for c in checks
    ]
    with atomic_file(path) as handle:
        handle.writelines(json_line(finite_json(row), str(path)) for row in rows)


def _short(trajectory: Trajectory, advantages: Advantages) -> Trajectory:
    """Without tool specifications and what only the environment reads."""
    metadata = trajectory.metadata
    kept = {key: metadata[key] for key in KEPT_METADATA if key in metadata}
    kept["oracle"] = [info.get("oracle_turn") for info in metadata.get("turns", ())]
    if "turn_critiques" in metadata:
        kept["turn_critiques"] = [
            {name: shortened(text) for name, text in texts.items()} for texts in metadata["turn_critiques"]
        ]
    if trajectory.id in advantages:
        kept["turn_advantages"] = list(advantages[trajectory.id])
    return trajectory.model_copy(update={"tools": (), "metadata": kept})


def shortened(text: str) -> str:
    """At most ``LONGEST`` characters, the last an ellipsis where something is missing; what UTF-8 cannot hold
    is a question mark."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def read_spot_checks(path: Path) -> list[dict[str, Any]]:
    """The rows of such a file; none if it is not there."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as handle:  # str.splitlines would cut texts at U+2028 and U+0085
        return [json.loads(line) for line in handle]
