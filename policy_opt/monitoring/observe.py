"""What the alarms look at in the rollouts of one iteration: a row of numbers, NaN where nothing is known."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from axiomrm.policy_opt.association import correlation, known_mean, partial_correlation
from axiomrm.policy_opt.monitoring.text_habits import (
    calls_without_effect,
    canned_share,
    duplicate_turns,
    refuses,
    repeated_grams,
)
from axiomrm.policy_opt.rewards.base import Episode

NAN = float("nan")
Row = dict[str, float]
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
    turns = [float(len(e.record.steps)) for e in episodes]
    asked = [reason for step in steps if not (reason := step.missing or "").startswith("not_asked")]
    return {
        "judge": known_mean(judge),
        "judge_error": _error(judge),
        "outcome": known_mean(outcome),
        "outcome_error": _error(outcome),
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
        "dominant": max(variance_shares([s.r_parts for s in steps]).values(), default=NAN),
    }


def group_spread(episodes: Sequence[Episode]) -> float:
    """Mean standard deviation of the outcomes within groups of two or more."""
    groups: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        if not np.isnan(episode.record.outcome):
            groups[episode.record.group_id].append(episode.record.outcome)
    return known_mean([float(np.std(values)) for values in groups.values() if len(values) > 1])


def variance_shares(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Share of the reward's variance that each of several parts supplies; empty for fewer than two parts.

    ``cov(part, sum) / var(sum)`` over the turns on which every part is known, so that shares sum to 1.
    """
    names = sorted({name for row in parts for name in row})
    if len(names) < 2:
        return {}
    table = np.array([[row.get(name, NAN) for name in names] for row in parts], dtype=np.float64)
    table = table[~np.isnan(table).any(axis=1)]
    total = table.sum(axis=1)
    if len(table) < 3 or np.ptp(total) < 1e-12:
        return {}
    centred = total - total.mean()
    shares = (table - table.mean(axis=0)).T @ centred / float(centred @ centred)
    return dict(zip(names, shares.tolist(), strict=True))


def _error(values: Sequence[float]) -> float:
    """Standard error of the mean."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.std(known)) / len(known) ** 0.5 if known else NAN


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else NAN
