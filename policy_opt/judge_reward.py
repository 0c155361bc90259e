"""The reward model as a turn judge: a rubric's turn rewards, missing ones as NaN with their reason."""

import math
from collections.abc import Sequence

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.policy_opt.reward import TurnJudge, TurnScores
from axiomrm.rm.judgement import Judgement, TurnJudgement
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric


def rubric_judge(reward_model: RewardModel, rubric: Rubric) -> TurnJudge:
    """Asks ``reward_model`` for ``rubric`` on every turn, all trajectories in one call."""

    def judge(trajectories: Sequence[Trajectory]) -> list[TurnScores]:
        pairs = [(t, rubric.bind(t.task.features, task=t.task_id or t.id)) for t in trajectories]
        return [_scores(j) for j in reward_model.judge(pairs)]

    return judge


def _scores(judgement: Judgement) -> TurnScores:
    turns = judgement.turns
    return TurnScores(
        turns=[math.nan if t.reward is None else t.reward for t in turns],
        reasons=[_reason(t) if t.reward is None else None for t in turns],
        judge_revision=judgement.judge_revision,
        rubric_hash=judgement.rubric_hash,
        trajectory=math.nan if judgement.reward is None else judgement.reward,
        coverage=[t.coverage for t in turns],
    )


def _reason(turn: TurnJudgement) -> str:
    failed = next((v for v in turn.verdicts.values() if isinstance(v, Failed)), None)
    return f"failed:{failed.kind}" if failed else f"cannot_assess:{turn.reason}"
