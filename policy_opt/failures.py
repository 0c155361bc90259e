"""When too much of an iteration broke to train on the rest (POLICY.md section 13)."""

import logging
import math
from collections import Counter
from collections.abc import Sequence

from axiomrm.errors import JudgeError
from axiomrm.policy_opt.reward import Episode

log = logging.getLogger(__name__)
MIN_VERDICTS = 40
"""Turns asked about, below which a share of failures says nothing."""
SHOWN = 5
"""Different faults in a message."""


def check_rollouts(episodes: Sequence[Episode], iteration: int, accepted: float) -> None:
    """Environments that raised or answered wrongly.

    Raises:
        JudgeError: more than the share ``accepted``, or all of them; with a breakdown and the first task of
            each fault.
    """
    broken = [e for e in episodes if e.record.ending == "env_error"]
    if not broken or len(broken) <= min(accepted * len(episodes), len(episodes) - 1):
        return
    tasks: dict[str, list[str]] = {}
    for episode in broken:
        told = str(episode.trajectory.metadata["turns"][-1].get("detail"))
        tasks.setdefault(told, []).append(episode.record.task_id)
    most = sorted(tasks.items(), key=lambda item: -len(item[1]))
    shown = "; ".join(f"{told} ({len(on)} times, first on task {on[0]!r})" for told, on in most[:SHOWN])
    more = f"; and {len(most) - SHOWN} other faults" if len(most) > SHOWN else ""
    raise JudgeError(
        f"iteration {iteration}: {len(broken)} of {len(episodes)} rollouts failed: {shown}{more}; accepted: "
        f"{accepted:.0%}, and never all of them"
    )


def warn_of_nothing(episodes: Sequence[Episode], iteration: int) -> None:
    """One line in the log if no episode has an outcome, a judge's reward or a turn reward."""
    records = [episode.record for episode in episodes]
    known = [
        math.isfinite(x) for r in records for x in (r.outcome, r.r_global, *(s.r_local for s in r.steps))
    ]
    if records and not any(known):
        log.warning(
            "iteration %d: none of %d episodes has an outcome or a turn reward, so nothing can be learnt; "
            "tell info['outcome'] at the end, give the environment outcome(), return rewards, or set a judge",
            iteration,
            len(records),
        )


def check_verdicts(asked: Sequence[Episode], iteration: int, accepted: float) -> None:
    """Judgements that failed; an abstention did not.

    Raises:
        JudgeError: more than the share ``accepted``, with a breakdown.
    """
    reasons = [s.missing for e in asked for s in e.record.steps]
    failed = [r for r in reasons if r is not None and r.startswith("failed")]
    if len(reasons) >= MIN_VERDICTS and len(failed) > accepted * len(reasons):
        raise JudgeError(
            f"iteration {iteration}: {len(failed)} of {len(reasons)} turn judgements failed: "
            f"{dict(Counter(failed))!r}; accepted: {accepted:.0%}"
        )
