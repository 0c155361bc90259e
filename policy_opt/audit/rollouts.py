"""Does a process reward deserve a place in training? Asked of recorded rollouts, before any training.

``disc`` is the mean over groups of the Spearman correlation, within a group of rollouts of one task, between
the mean turn reward and the outcome; its interval draws groups. Only groups whose outcome varies inform it.
What becomes of the facts stands in `verdict`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from axiomrm.data.trajectory import Outcome, Trajectory
from axiomrm.errors import DataError
from axiomrm.policy_opt.association import correlation, known_mean, partial_correlation
from axiomrm.policy_opt.audit.discrimination import discrimination
from axiomrm.policy_opt.audit.metadata import recorded
from axiomrm.policy_opt.audit.tools import lying_tools
from axiomrm.policy_opt.audit.verdict import Audit, Interval, ItemAudit, Look, graded
from axiomrm.policy_opt.behaviour import SLACK
from axiomrm.policy_opt.criterion_shares import criterion_shares
from axiomrm.policy_opt.monitoring.spot_checks import mean_reward, outcome_of, pick
from axiomrm.policy_opt.monitoring.text_habits import (
    calls_without_effect,
    canned_share,
    duplicate_turns,
    repeated_grams,
)
from axiomrm.policy_opt.rewards.base import TurnScores


@dataclass(frozen=True)
class Scored:
    """A rollout as the audit sees it."""

    trajectory: Trajectory
    """With ``turn_rewards``."""
    group: str
    score: float
    """Mean turn reward, or the trajectory's where turns have none; NaN = missing."""
    outcome: float
    reasons: tuple[str | None, ...]
    parts: tuple[dict[str, float], ...]


def audit(
    trajectories: Sequence[Trajectory],
    answers: Sequence[TurnScores] | None = None,
    *,
    spot_checks: int = 3,
    seed: int = 0,
    solved: float = 1.0,
) -> Audit:
    """Audit the reward of recorded rollouts.

    Args:
        trajectories: with outcomes; best several of one task (``Trajectory.group``).
        answers: a source's rewards; ``None``: those in ``turn_rewards``, with reasons and parts from the
            metadata ``turn_missing`` and ``turn_parts`` where a training run wrote them.
        spot_checks: rollouts to read for each reason.
        seed: of the bootstrap.
        solved: least outcome of a success, for what is counted; ``disc`` ranks outcomes as they are.

    Raises:
        DataError: there is no rollout, none has a reward, or ``recorded`` refuses the metadata of one.
    """
    rows = [_scored(t, None if answers is None else answers[i]) for i, t in enumerate(trajectories)]
    if all(math.isnan(row.score) for row in rows):
        raise DataError(f"none of {len(rows)} rollouts has a reward: {_why_none(rows, answers is None)}")
    return graded(_facts(rows, spot_checks, seed, solved))


def _facts(rows: Sequence[Scored], spot_checks: int, seed: int, solved: float) -> Audit:
    """All that is measured, not graded yet."""
    pooled = max(Counter(row.group for row in rows).values()) < 2
    return Audit(
        verdict="ok",
        reasons=(),
        suggested_beta=0.0,
        rollouts=len(rows),
        turns=sum(len(row.reasons) for row in rows),
        groups=len({row.group for row in rows}),
        pooled=pooled,
        success=_success(rows, solved),
        solved_at=solved,
        notes=tuple(_notes([row.outcome for row in rows if not math.isnan(row.outcome)], solved)),
        disc=_disc(rows, [row.score for row in rows], pooled, seed),
        items=_items(rows, pooled, seed),
        correlations=_correlations(rows),
        **_missing(rows),
        habits=_habits([row.trajectory for row in rows]),
        failures_among_best=_failures_among_best(rows, solved),
        lying_tools=tuple(lying_tools([row.trajectory for row in rows])),
        spot_checks=_looks(rows, spot_checks, solved),
    )


def _why_none(rows: Sequence[Scored], from_file: bool) -> str:
    if from_file:
        return "expected 'turn_rewards' in the file, or a rubric"
    told = Counter(reason for row in rows for reason in row.reasons if reason is not None)
    return "the rubric gave none: " + "; ".join(f"{reason} ({n} turns)" for reason, n in told.most_common(3))


def _is_solved(outcome: float, solved: float) -> bool:
    return outcome >= solved - SLACK


def _success(rows: Sequence[Scored], solved: float) -> float | None:
    known = [row.outcome for row in rows if not math.isnan(row.outcome)]
    return _none(known_mean([float(_is_solved(outcome, solved)) for outcome in known]))


def _notes(outcomes: Sequence[float], solved: float) -> Iterator[str]:
    """What about the outcomes does not go with the threshold."""
    if not outcomes:
        return
    low, high = min(outcomes), max(outcomes)
    if not _is_solved(high, solved):
        yield f"no outcome reaches {solved:g} (the highest is {high:g}), so none counts as solved: --solved"
    elif solved <= 1 < high - SLACK:
        yield (
            f"outcomes lie between {low:g} and {high:g}, and one of {solved:g} or more counts as solved; "
            "on another scale than 0 to 1 say with --solved where success begins"
        )


def _looks(rows: Sequence[Scored], kept: int, solved: float) -> tuple[Look, ...]:
    marked = [_as_success(row, solved) for row in rows]
    outcomes = {id(trajectory): row.outcome for trajectory, row in zip(marked, rows, strict=True)}
    return tuple(
        Look(id=c.trajectory.id, why=c.why, reward=c.value, outcome=_none(outcomes[id(c.trajectory)]))
        for c in pick(marked, kept=kept)
    )


def _as_success(row: Scored, solved: float) -> Trajectory:
    """With outcome 1 or 0, as ``pick`` tells success from failure."""
    score = None if math.isnan(row.outcome) else float(_is_solved(row.outcome, solved))
    return row.trajectory.model_copy(update={"outcome": Outcome(score=score)})


# --- facts --------------------------------------------------------------------------------------------------


def _scored(trajectory: Trajectory, answer: TurnScores | None) -> Scored:
    try:
        trajectory = recorded(trajectory)
    except DataError as error:
        raise DataError(f"rollout {trajectory.id!r}: {error}") from error
    n, metadata = len(trajectory.turns), trajectory.metadata
    if answer is not None:
        trajectory = trajectory.model_copy(update={"turn_rewards": tuple(answer.turns)})
        reasons, parts, whole = answer.reasons, answer.parts, answer.trajectory
    else:
        reasons, parts, whole = metadata.get("turn_missing", []), metadata.get("turn_parts", []), math.nan
    mean = mean_reward(trajectory)
    return Scored(
        trajectory,
        trajectory.group,
        whole if math.isnan(mean) else mean,
        outcome_of(trajectory),
        tuple(reasons) if len(reasons) == n else (None,) * n,
        tuple({k: math.nan if v is None else v for k, v in row.items()} for row in parts),
    )


def _items(rows: Sequence[Scored], pooled: bool, seed: int) -> dict[str, ItemAudit]:
    names = sorted({name for row in rows for part in row.parts for name in part})
    turns = [turn for row in rows if row.parts for turn in zip(_rewards(row), row.parts, strict=True)]
    shares = criterion_shares([reward for reward, _ in turns], [parts for _, parts in turns])
    means = {
        name: [known_mean([part.get(name, math.nan) for part in row.parts]) for row in rows] for name in names
    }
    return {
        name: ItemAudit(disc=_disc(rows, means[name], pooled, seed), variance_share=shares.get(name))
        for name in names
    }


def _disc(rows: Sequence[Scored], scores: Sequence[float], pooled: bool, seed: int) -> Interval:
    groups, outcomes = [row.group for row in rows], [row.outcome for row in rows]
    return discrimination(groups, scores, outcomes, pooled=pooled, seed=seed)


def _correlations(rows: Sequence[Scored]) -> dict[str, float | None]:
    score, outcome = [row.score for row in rows], [row.outcome for row in rows]
    turns = [float(len(row.reasons)) for row in rows]
    words = [
        [
            float(len(turn.action.content.split()) + 3 * len(turn.action.tool_calls))
            for turn in row.trajectory.turns
        ]
        for row in rows
    ]
    rewards = [_rewards(row) for row in rows]
    flat = [
        (r, w, o)
        for rs, ws, o in zip(rewards, words, outcome, strict=True)
        for r, w in zip(rs, ws, strict=True)
    ]
    step, length, result = ([x[i] for x in flat] for i in range(3))
    found = {
        "turn_length": correlation(step, length),
        "turn_length_given_outcome": partial_correlation(step, length, result),
        "turns": correlation(score, turns),
        "turns_given_outcome": partial_correlation(score, turns, outcome),
    }
    return {name: _none(value) for name, value in found.items()}


def _rewards(row: Scored) -> tuple[float, ...]:
    return tuple(row.trajectory.turn_rewards or (math.nan,) * len(row.trajectory.turns))


def _missing(rows: Sequence[Scored]) -> dict[str, object]:
    asked = [
        (reward, reason or "not told")
        for row in rows
        for reward, reason in zip(_rewards(row), row.reasons, strict=True)
        if not (reason or "").startswith("not_asked")
    ]
    missing = Counter(reason for reward, reason in asked if math.isnan(reward))
    failed = sum(count for reason, count in missing.items() if reason.startswith("failed"))
    n = len(asked)
    return {
        "verdicts": n,
        "missing": dict(missing),
        "missing_share": sum(missing.values()) / n if n else None,
        "failed_share": failed / n if n else None,
    }


def _habits(trajectories: Sequence[Trajectory]) -> dict[str, float | None]:
    each: dict[str, Callable[[Trajectory], float]] = {
        "repetition": repeated_grams,
        "duplicates": duplicate_turns,
        "no_effect": calls_without_effect,
    }
    means = {name: _none(known_mean([measure(t) for t in trajectories])) for name, measure in each.items()}
    return {"canned": canned_share(trajectories)} | means


def _failures_among_best(rows: Sequence[Scored], solved: float) -> float | None:
    known = sorted((r for r in rows if not math.isnan(r.score + r.outcome)), key=lambda r: -r.score)
    best = known[: max(1, len(known) // 10)]
    return sum(not _is_solved(r.outcome, solved) for r in best) / len(best) if best else None


def _none(value: float) -> float | None:
    return None if math.isnan(value) else value
