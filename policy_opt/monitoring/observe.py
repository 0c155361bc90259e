"""What the alarms look at in the rollouts of one iteration: a row of numbers, NaN where nothing is known."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from axiomrm.policy_opt.association import correlation, known_mean, partial_correlation
from axiomrm.policy_opt.criterion_shares import criterion_shares
from axiomrm.policy_opt.monitoring.text_habits import (
    calls_without_effect,
    canned_share,
    duplicate_turns,
    refuses,
    repeated_grams,
)
from axiomrm.policy_opt.records import StepRecord
from axiomrm.policy_opt.rewards.base import Episode

NAN = float("nan")
Row = dict[str, float]
PART = "part:"
"""Before the name of a criterion of the reward."""
ERROR = "error:"
"""Before the name whose standard error it is."""
AGREES, SQUARES = "agrees:", "agrees²:"
"""Before the name of what is compared with the outcome within tasks: sum over tasks, and sum of squares."""
FROM_METRICS = {
    "entropy": "policy/entropy_nats",
    "grad_norm": "policy/grad_norm",
    "ess_frac": "offpolicy/ess_frac",
    "disc": "advantage/disc",
    "disc_groups": "advantage/disc_groups",
    "beta_eff": "advantage/beta_eff",
    "kl_beta": "kl/beta",
    "kl_at_clamp": "kl/at_clamp",
}
"""Names in a row to those in ``metrics.jsonl``."""


def observe_update(metrics: Mapping[str, float]) -> Row:
    """What of the metrics of an update is looked at."""
    return {name: metrics.get(key, NAN) for name, key in FROM_METRICS.items()}


def observe(episodes: Sequence[Episode]) -> Row:
    """The fresh rollouts of an iteration."""
    steps = [step for episode in episodes for step in episode.record.steps]
    trajectories = [episode.trajectory for episode in episodes]
    judge = [known_mean([s.r_local for s in e.record.steps]) for e in episodes]
    outcome = [e.record.outcome for e in episodes]
    groups = [episode.record.group_id for episode in episodes]
    turns = [float(len(e.record.steps)) for e in episodes]
    asked = [reason for step in steps if not (reason := step.missing or "").startswith("not_asked")]
    return {
        "outcome": known_mean(outcome),
        ERROR + "outcome": clustered_error(outcome, groups),
        **_signal("judge", judge, outcome, groups),
        "canned": canned_share(trajectories),
        "length_correlation": correlation([s.r_local for s in steps], [float(s.n_tokens) for s in steps]),
        "turns_correlation": partial_correlation(judge, turns, outcome),
        "abstained": _share([r.startswith("cannot_assess") for r in asked]),
        "failed": _share([r.startswith("failed") for r in asked]),
        "coverage": known_mean([s.coverage for s in steps]),
        "group_std": group_spread(episodes),
        "repetition": known_mean([repeated_grams(t) for t in trajectories]),
        "duplicates": known_mean([duplicate_turns(t) for t in trajectories]),
        "no_effect": known_mean([calls_without_effect(t) for t in trajectories]),
        "refusals": _share([refuses(turn) for t in trajectories for turn in t.turns]),
        "dominant": max(_shares(steps).values(), default=NAN),
        **_criteria(episodes, outcome, groups),
    }


def _criteria(episodes: Sequence[Episode], outcome: Sequence[float], groups: Sequence[str]) -> Row:
    """What each criterion gave, as ``part:NAME``; nothing for fewer than two criteria."""
    names = sorted({name for e in episodes for step in e.record.steps for name in step.r_parts})
    row: Row = {}
    for name in names if len(names) > 1 else []:
        given = [known_mean([step.r_parts.get(name, NAN) for step in e.record.steps]) for e in episodes]
        row |= _signal(PART + name, given, outcome, groups)
    return row


def _signal(name: str, values: Sequence[float], outcome: Sequence[float], groups: Sequence[str]) -> Row:
    """Mean of one number an episode, its error, and how it goes with the outcome."""
    agreement = agreements(values, outcome, groups)
    return {
        name: known_mean(values),
        ERROR + name: clustered_error(values, groups),
        AGREES + name: math.fsum(agreement),
        SQUARES + name: math.fsum(a * a for a in agreement),
    }


def agreements(values: Sequence[float], outcome: Sequence[float], groups: Sequence[str]) -> list[float]:
    """Of each task the sum of products of both numbers, less their means over its episodes that have both.

    Above 0: of two rollouts of one task the better paid one tends to succeed.
    """
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for value, score, group in zip(values, outcome, groups, strict=True):
        if not math.isnan(value + score):
            pairs[group].append((value, score))
    table = [np.array(own) for own in pairs.values()]
    return [float(np.prod(own - own.mean(axis=0), axis=1).sum()) for own in table]


def _shares(steps: Sequence[StepRecord]) -> dict[str, float]:
    return criterion_shares([s.r_local for s in steps], [s.r_parts for s in steps])


def group_spread(episodes: Sequence[Episode]) -> float:
    """Mean standard deviation of the outcomes within groups of two or more."""
    groups: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        if not np.isnan(episode.record.outcome):
            groups[episode.record.group_id].append(episode.record.outcome)
    return known_mean([float(np.std(values)) for values in groups.values() if len(values) > 1])


def clustered_error(values: Sequence[float], groups: Sequence[str]) -> float:
    """Standard error of the mean of values that are alike within a group; NaN below two groups."""
    members: dict[str, list[float]] = defaultdict(list)
    for value, group in zip(values, groups, strict=True):
        members[group].append(value)
    means = [mean for own in members.values() if not np.isnan(mean := known_mean(own))]
    return float(np.std(means, ddof=1)) / len(means) ** 0.5 if len(means) > 1 else NAN


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else NAN
