"""When too much broke to train on the rest (POLICY.md section 13).

Deviations, numbered: (1) an iteration with more than 200 verdicts is looked at as a whole, because its last
200 can be a few long episodes; fewer than 40 verdicts since the run began say nothing; (2) no checkpoint is
written at the stop, because the judge's memory has taken the rollouts in by then: the last one stands, and
the run started again repeats the iteration; (3) a verifier that raises ends its episode as ``env_error`` and
is not asked again, its state may have changed; (4) failed verdicts are not queued: an engine itself repeats
what may succeed later, and what still fails stays missing (another version of the judge is asked again about
stored turns, see ``rescore.py``).
"""

from collections import Counter
from collections.abc import Sequence

from axiomrm.errors import JudgeError
from axiomrm.policy_opt.records import StepRecord
from axiomrm.policy_opt.rewards.base import Episode

WINDOW = 200
"""Last verdicts that the share of failures is of."""
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


def asked_steps(steps: Sequence[StepRecord]) -> list[StepRecord]:
    """Those that a judge was asked about, not the ones that the environment rewarded."""
    asked = [step for step in steps if not (step.missing or "").startswith("not_asked")]
    return [step for step in asked if step.judge_revision or step.missing]


class VerdictWindow:
    """Which of the last judgements failed, across iterations: small ones cannot hide a broken judge."""

    def __init__(self) -> None:
        self.reasons: list[str | None] = []
        """At most `WINDOW`, the newest last; ``None`` = an answer, an abstention too. For the checkpoint."""

    def check(self, asked: Sequence[Episode], iteration: int, accepted: float) -> None:
        """Take in an iteration's judgements; an abstention did not fail.

        Args:
            asked: episodes with the judge's answers.
            iteration: theirs.
            accepted: greatest share of failures.

        Raises:
            JudgeError: more than that among the last `WINDOW`, or in a larger iteration; with a breakdown.
        """
        steps = [step for episode in asked for step in episode.record.steps]
        if any(step.judge_revision for step in steps):  # a judge without a name cannot be told from the world
            steps = asked_steps(steps)
        new = [step.missing if (step.missing or "").startswith("failed") else None for step in steps]
        last = [*self.reasons, *new][-max(WINDOW, len(new)) :]
        self.reasons = last[-WINDOW:]
        failed = [reason for reason in last if reason is not None]
        if len(last) >= MIN_VERDICTS and len(failed) > accepted * len(last):
            raise JudgeError(
                f"iteration {iteration}: {len(failed)} of the last {len(last)} turn judgements failed: "
                f"{dict(Counter(failed))!r}; accepted: {accepted:.0%}"
            )
