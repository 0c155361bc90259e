"""Diagnostics of an iteration beside its metrics: parts of the reward, kinds of tasks, errors, baselines.

Means are over rollouts, so that a long, usually failing rollout does not count more than a short one.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch

from axiomrm.data.verdict import FailureKind
from axiomrm.policy_opt.association import known_mean
from axiomrm.policy_opt.behaviour import SOLVED, behaviour, behaviour_means
from axiomrm.policy_opt.drawn import TURNS, class_of, mask_metrics, replay_metrics
from axiomrm.policy_opt.kl import k3
from axiomrm.policy_opt.monitoring.failures import asked_steps
from axiomrm.policy_opt.records import StepRecord
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.update import UpdateStats

NAN = float("nan")
FAILURE_KINDS = get_args(FailureKind)
BEHAVIOUR = ("redundant_step_rate", "wrong_tool_rate", "argument_error_rate", "recovery_rate")
LENGTHS = ((4, "to4"), (8, "5to8"), (10**9, "9up"))
"""Upper ends of the classes of lengths, in turns."""


def episode_diagnostics(episodes: Sequence[Episode]) -> dict[str, float]:
    """What the fresh rollouts were made of."""
    steps = [step for e in episodes for step in e.record.steps]
    infos = [info for e in episodes for info in e.trajectory.metadata.get("turns", ())]
    errors = Counter(str(info["error_kind"]) for info in infos if info.get("error_kind"))
    means = behaviour_means([behaviour(e.trajectory) for e in episodes])
    out = {
        "reward/outcome_std": _std([e.record.outcome for e in episodes]),
        "reward/local_std": _std([known_mean([s.r_local for s in e.record.steps]) for e in episodes]),
        "rollout/turns_solved": _or_nan(means.get("turns_if_solved")),
        "env/tool_calls": float(sum(len(t.action.tool_calls) for e in episodes for t in e.trajectory.turns)),
    }
    out |= {f"env/error_{kind}": float(count) for kind, count in sorted(errors.items())}
    out |= _judge(steps)
    out |= {f"behaviour/{name}": _or_nan(means.get(name)) for name in BEHAVIOUR}
    return out | _by_class(episodes) | _parts(episodes) | _baselines(episodes)


def update_diagnostics(fresh: Sequence[UpdateStats], reused: Sequence[UpdateStats]) -> dict[str, float]:
    """How far the optimizer steps were from the policy that sampled."""
    every = [*fresh, *reused]
    if not every:
        return {}
    rho = np.array([r for stats in every for r in stats.rho], dtype=np.float64)
    gaps = torch.cat(
        [k3(torch.cat(s.logps), torch.cat(s.behaviour)) for s in every if s.logps] or [torch.empty(0)]
    )
    first, again = ([step for s in stats for step in s.drawn] for stats in (fresh, reused))
    return {
        "offpolicy/rho_mean": float(rho.mean()) if rho.size else NAN,
        "offpolicy/chi2": float((rho**2).mean() - 1.0) if rho.size else NAN,
        "offpolicy/k3_behaviour_nats_per_token": float(gaps.mean()) if gaps.numel() else NAN,
        "replay/reused_updates_share": len(reused) / len(every),
        **mask_metrics([*first, *again]),
        **replay_metrics(first, again),
    }


def _judge(steps: Sequence[StepRecord]) -> dict[str, float]:
    """Turns that a judge was asked about, missing rewards by reason, failures by kind; no key for none."""
    reasons = Counter((s.missing or "").split(":")[0] for s in steps if s.missing)
    told = [(s.missing or "").split(":")[1:2] for s in steps if (s.missing or "").startswith("failed")]
    failures = Counter(kind[0] if kind and kind[0] in FAILURE_KINDS else "other" for kind in told)
    out = {f"judge/missing_{kind}": float(count) for kind, count in sorted(reasons.items())}
    out |= {f"judge/failed_{kind}": float(count) for kind, count in sorted(failures.items())}
    asked = len(asked_steps(steps))
    return out | ({"judge/asked_turns": float(asked)} if asked else {})


def _by_class(episodes: Sequence[Episode]) -> dict[str, float]:
    classes: dict[str, list[float]] = defaultdict(list)
    for episode in episodes:
        record = episode.record
        if not np.isnan(record.outcome):
            solved = float(record.outcome >= SOLVED)
            length = next(name for limit, name in LENGTHS if len(record.steps) <= limit)
            classes[f"reward/success_turns_{length}"].append(solved)
            if record.task_type:
                classes[f"reward/success_type_{record.task_type}"].append(solved)
    return {name: float(np.mean(values)) for name, values in sorted(classes.items())}


def _parts(episodes: Sequence[Episode]) -> dict[str, float]:
    names = sorted({name for e in episodes for step in e.record.steps for name in step.r_parts})
    out: dict[str, float] = {}
    for name in names:
        values = [step.r_parts.get(name, NAN) for e in episodes for step in e.record.steps]
        each = [known_mean([s.r_parts.get(name, NAN) for s in e.record.steps]) for e in episodes]
        out |= {
            f"part/{name}_mean": known_mean(each),
            f"part/{name}_std": _std(each),
            f"part/{name}_missing_share": float(np.isnan(values).mean()),
        }
    return out


def _baselines(episodes: Sequence[Episode]) -> dict[str, float]:
    """Which rung of the ladder served the turn baselines, and how large its groups were."""
    targets = [s.returns.local for e in episodes for s in e.record.steps if s.returns is not None]
    known = [target for target in targets if not np.isnan(target.value)]
    if not known:
        return {}
    levels = Counter(target.level for target in known)
    names = {-1: "running", 0: "first", 1: "second"}
    out = {f"advantage/baseline_{names[k]}_share": levels[k] / len(known) for k in sorted(levels)}
    classes = Counter(class_of(target.m, TURNS) for target in known if target.m > 1)
    out |= {f"advantage/group_size_{name}_share": classes[name] / len(known) for _, name in TURNS[1:]}
    return out | {
        "advantage/group_size_mean": float(np.mean([target.m for target in known])),
        "advantage/alone_share": float(np.mean([target.m < 2 for target in known])),
    }


def _std(values: Sequence[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.std(known)) if len(known) > 1 else NAN


def _or_nan(value: float | None) -> float:
    return NAN if value is None else value
