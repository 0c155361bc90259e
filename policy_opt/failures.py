"""When too much of an iteration broke to train on the rest (POLICY.md section 13)."""

from collections import Counter
from collections.abc import Sequence

from axiomrm.errors import JudgeError
from axiomrm.policy_opt.reward import Episode

MIN_VERDICTS = 40
"""Turns asked about, below which a share of failures says nothing."""


def check_rollouts(episodes: Sequence[Episode], iteration: int, accepted: float) -> None:
    """Environments that raised.

    Raises:
        JudgeError: more than the share ``accepted``, with a breakdown.
    """
    broken = [e for e in episodes if e.record.ending == "env_error"]
    if len(broken) > accepted * len(episodes):
        details = Counter(str(e.trajectory.metadata["turns"][-1].get("detail")) for e in broken)
        raise JudgeError(
            f"iteration {iteration}: {len(broken)} of {len(episodes)} rollouts failed: "
            f"{dict(details)!r}; accepted: {accepted:.0%}"
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
