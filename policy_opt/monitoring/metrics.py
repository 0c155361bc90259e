"""Metrics of one iteration, named ``group/what_unit``; means over rollouts, missing values counted."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch

from axiomrm.policy_opt.admission import mismatch
from axiomrm.policy_opt.drawn import entropy_by_turn
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.update import UpdateStats

NAN = float("nan")
OPTIONAL = ("policy/lr", "policy/update_norm")
"""Absent, not NaN, where nothing was updated."""


def success_rate(outcomes: Sequence[float], threshold: float = 1.0 - 1e-9) -> tuple[float, int, int]:
    """``(rate, known, missing)``: a missing outcome is not a failure; the rate is NaN if none is known."""
    known = [o for o in outcomes if not np.isnan(o)]
    rate = sum(o >= threshold for o in known) / len(known) if known else NAN
    return rate, len(known), len(outcomes) - len(known)


def rollout_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Rewards, endings and lengths of the fresh rollouts."""
    records = [episode.record for episode in episodes]
    rate, known, missing = success_rate([record.outcome for record in records])
    local = [_mean([s.r_local for s in record.steps]) for record in records]
    turns = [s.r_local for record in records for s in record.steps]
    out = {
        "rollout/episodes": float(len(records)),
        "rollout/turns": _mean([float(len(record.steps)) for record in records]),
        "rollout/action_tokens": _mean([float(record.n_action_tokens) for record in records]),
        "rollout/forks": float(sum(max(len(record.segments) - 1, 0) for record in records)),
        "reward/success": rate,
        "reward/outcome_mean": _mean([record.outcome for record in records]),
        "reward/outcome_known": float(known),
        "reward/outcome_missing": float(missing),
        "reward/local_mean": _mean(local),
        "reward/local_missing_share": float(np.isnan(turns).mean()) if turns else NAN,
    }
    endings = Counter(record.ending for record in records)
    out |= {f"rollout/ending_{name}": float(n) for name, n in sorted(endings.items())}
    return out | _group_variance([(record.group_id, record.r_global) for record in records])


def _group_variance(pairs: Sequence[tuple[str, float]]) -> dict[str, float]:
    groups: dict[str, list[float]] = {}
    for name, value in pairs:
        if not np.isnan(value):
            groups.setdefault(name, []).append(value)
    full = [values for values in groups.values() if len(values) > 1]
    if not full:
        return {}
    solved = sum(min(values) >= 1 - 1e-9 for values in full)
    failed = sum(max(values) <= 1e-9 for values in full)
    return {
        "reward/groups_solved_share": solved / len(full),
        "reward/groups_failed_share": failed / len(full),
    }


def update_metrics(fresh: Sequence[UpdateStats], reused: Sequence[UpdateStats]) -> dict[str, float]:
    """Losses, gradient norms and off-policy diagnostics of an iteration's optimizer steps."""
    if not fresh:
        return {"policy/updates": 0.0}
    every = [*fresh, *reused]
    entropy = torch.cat([t for stats in fresh for t in stats.entropy])
    out = {
        "policy/updates": float(len(every)),
        "policy/loss_fresh": _mean([stats.loss for stats in fresh]),
        "policy/grad_norm": _mean([stats.grad_norm for stats in every]),
        "policy/lr": every[-1].learning_rate,
        "policy/update_norm": _mean([stats.update_norm for stats in every]),
        "policy/entropy_nats": float(entropy.mean()),
        "policy/tokens": float(sum(stats.tokens for stats in every)),
        "kl/k3_fresh_nats_per_token": _mean([stats.fresh_kl for stats in fresh]),
        "offpolicy/masked_share": 1.0 - _mean([float(k) for stats in every for k in stats.keep]),
        "offpolicy/ess_frac": min(stats.ess_frac for stats in every),
        "offpolicy/rho_max": max(r for stats in every for r in stats.rho),
        "offpolicy/m2": _mean([m for stats in every for m in stats.m2]),
    }
    out = {name: value for name, value in out.items() if not (name in OPTIONAL and np.isnan(value))}
    out |= entropy_by_turn([step for stats in fresh for step in stats.drawn])
    # Before the first optimizer step: later ones compare moved weights.
    seen = mismatch(*(values.numpy() for values in fresh[0].fresh_logps()))
    return out | {"offpolicy/admission_max": seen["mismatch/max_abs_nats"], **seen}


def _mean(values: Sequence[float]) -> float:
    array = np.asarray(values, dtype=np.float64)
    known = array[~np.isnan(array)]
    return float(known.mean()) if known.size else NAN
