"""The reward model as a reward source: a rubric's turn rewards, missing ones as NaN with their reason."""

import math
from collections.abc import Callable, Sequence
from typing import get_args

from axiomrm.data.jsonl import found_instead
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.rewards.base import Level, TurnJudge, TurnScores
from axiomrm.rm.judgement import Judgement, TurnJudgement
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import ActiveRubric, Rubric
from axiomrm.rubrics.added import added

Bind = Callable[[Trajectory], ActiveRubric]


def rubric_judge(reward_model: RewardModel, rubric: Rubric, level: Level = "both") -> TurnJudge:
    """Asks ``reward_model`` for ``rubric`` on every turn, all trajectories in one call.

    Args:
        reward_model: the judge.
        rubric: its criteria.
        level: ``turn`` or ``trajectory`` leaves the other reward missing, as not asked.

    Raises:
        ConfigError: another level.
    """
    if level not in get_args(Level):
        known = ", ".join(get_args(Level))
        raise ConfigError(f"rubric reward: level: {found_instead(level, f'one of {known}')}")

    def judge(trajectories: Sequence[Trajectory]) -> list[TurnScores]:
        return judged(
            reward_model,
            trajectories,
            lambda t: rubric.bind(t.task.features, task=t.task_id or t.id),
            level,
        )

    return judge


def programmatic_reward(rubric: Rubric, level: Level = "both") -> TurnJudge:
    """A rubric's programmatic and constraint items, without any model.

    The library's agent presets (``code_agent``, ``rag_agent``, ``data_agent``, ``process_shaping``) are such
    rubrics, each a composite with its own weights.

    Raises:
        ConfigError: the rubric has items or axioms that need a judge model.
    """
    asked = [t.id for t in rubric.theorems if t.judge.kind == "llm"]
    asked += [a.id for a in rubric.axioms if a.type != "premise" and a.detector.kind == "llm"]
    if asked:
        raise ConfigError(
            f"programmatic reward: {rubric.id!r} has items that need a judge model: {', '.join(asked)}; use "
            "kind rubric_judge, or a rubric such as code_agent, rag_agent, data_agent, process_shaping"
        )
    return rubric_judge(RewardModel.programmatic(), rubric, level)


def judged(
    reward_model: RewardModel, trajectories: Sequence[Trajectory], bind: Bind, level: Level
) -> list[TurnScores]:
    """One answer a trajectory with the rubric that ``bind`` gives it."""
    pairs = [(t, bind(t)) for t in trajectories]
    judgements = reward_model.judge(pairs)
    return [scores(j, t, active, level) for j, (t, active) in zip(judgements, pairs, strict=True)]


def scores(
    judgement: Judgement, trajectory: Trajectory, active: ActiveRubric, level: Level = "both"
) -> TurnScores:
    """A judgement of the trajectory by the rubric, in numbers."""
    turns, wanted = judgement.turns, level != "trajectory"
    return TurnScores(
        turns=[math.nan if t.reward is None or not wanted else t.reward for t in turns],
        reasons=[_reason(t) if t.reward is None else None for t in turns]
        if wanted
        else ["not_asked:rubric"] * len(turns),
        judge_revision=judgement.judge_revision,
        rubric_hash=judgement.rubric_hash,
        trajectory=math.nan if judgement.reward is None or level == "turn" else judgement.reward,
        coverage=[t.coverage for t in turns],
        parts=_parts(judgement, trajectory, active) if wanted else [],
        level=level,
        critiques=_critiques(judgement, active) if wanted else [],
    )


def _critiques(judgement: Judgement, active: ActiveRubric) -> list[dict[str, str]]:
    """What was written about each turn; nothing of a personal rubric, whose criteria a critique may quote."""
    if active.personal is not None:
        return []
    rows = [
        {name: v.critique for name, v in turn.verdicts.items() if not isinstance(v, Failed) and v.critique}
        for turn in judgement.turns
    ]
    return rows if any(rows) else []


def _parts(judgement: Judgement, trajectory: Trajectory, active: ActiveRubric) -> list[dict[str, float]]:
    """What each item adds, a turn; nothing of a personal rubric, whose criteria tell of the user."""
    if active.personal is not None:
        return []
    return [added(active.at_turn(trajectory.before(turn.index)), turn.verdicts) for turn in judgement.turns]


def _reason(turn: TurnJudgement) -> str:
    failed = next((v for v in turn.verdicts.values() if isinstance(v, Failed)), None)
    return f"failed:{failed.kind}" if failed else f"cannot_assess:{turn.reason}"
