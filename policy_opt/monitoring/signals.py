"""One line in the log where a signal is missing or not used, so that a run which learns nothing says so."""

import logging
import math
from collections.abc import Mapping, Sequence

from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode, TurnScores

log = logging.getLogger(__name__)
TELL = "tell info['outcome'] at the end, or give the environment outcome()"


def warn_of_nothing(episodes: Sequence[Episode], iteration: int) -> None:
    """If no episode has an outcome, a judge's reward, a turn reward or progress; or verified ones have no
    reward."""
    records = [episode.record for episode in episodes]
    if records and not any(map(_knows_something, records)):
        log.warning(
            "iteration %d: none of %d episodes has an outcome, a turn reward or progress, so nothing can be "
            "learnt; %s, return rewards, or set a judge",
            iteration, len(records), TELL,
        )  # fmt: skip
    unrewarded = sum(not math.isnan(r.outcome) and math.isnan(r.r_global) for r in records)
    if unrewarded:
        log.warning(
            "iteration %d: of %d episodes with an outcome %d get no reward of the whole from the reward "
            "source, which stands for both; they teach nothing (labels of whole dialogues: label them all)",
            iteration, sum(not math.isnan(r.outcome) for r in records), unrewarded,
        )  # fmt: skip


def _knows_something(record: TrajectoryRecord) -> bool:
    turns = [value for step in record.steps for value in (step.r_local, step.progress)]
    return any(map(math.isfinite, (record.outcome, record.r_global, record.final_progress, *turns)))


def warn_of_unused(episodes: Sequence[Episode], answers: Sequence[TurnScores], iteration: int) -> None:
    """If the environment rewarded turns that a judge was asked about as well; in the first iteration, before
    the answers are written into the records."""
    if iteration:
        return
    steps = [step for episode in episodes for step in episode.record.steps]
    told = [reward for answer in answers for reward in answer.turns]
    unused = sum(
        not math.isnan(reward) and not math.isnan(step.r_local)
        for step, reward in zip(steps, told, strict=True)
    )
    if unused:
        log.warning(
            "iteration %d: the environment rewarded %d of %d turns itself, so what the judge says of them is "
            "not used; an environment that leaves a turn to the judge returns None, not 0",
            iteration, unused, len(steps),
        )  # fmt: skip


def warn_of_idleness(metrics: Mapping[str, float], algorithm: str, iteration: int) -> None:
    """If an update made no step though something was known of the rollouts."""
    outcomes = metrics.get("reward/outcome_known", math.nan)
    if metrics.get("policy/updates") != 0 or math.isnan(outcomes):
        return
    why = (
        "every group's returns are equal, or no rollout is good enough to be kept"
        if outcomes
        else f"no episode has an outcome; {TELL}, or take an algorithm that learns from turn rewards alone"
    )
    log.warning("iteration %d: %s made no step: %s", iteration, algorithm, why)
