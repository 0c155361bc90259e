"""From the configuration of a reward to the function that gives it."""

import logging
from collections.abc import Callable

from axiomrm.errors import ConfigError
from axiomrm.policy_opt.envs.service_desk.judges import desk_oracle
from axiomrm.policy_opt.rewards.base import TurnJudge
from axiomrm.policy_opt.rewards.config import (
    TRAINED,
    CompositeReward,
    DeskOracleReward,
    LabelsReward,
    PersonalRewardConfig,
    ProgrammaticReward,
    RewardConfig,
    RubricJudgeReward,
    VerifierReward,
)
from axiomrm.policy_opt.rewards.judge import programmatic_reward, rubric_judge
from axiomrm.policy_opt.rewards.labels import LabelReward
from axiomrm.policy_opt.rewards.personal import PersonalReward, read_profiles
from axiomrm.policy_opt.rewards.sources import Composite, verifier_reward
from axiomrm.rm.judge_check import check_judge
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric

log = logging.getLogger(__name__)
JudgeFor = Callable[[str], RewardModel]


def build_reward(config: RewardConfig, judge_for: JudgeFor) -> TurnJudge:
    """The source that a configuration names.

    Args:
        config: one of the kinds.
        judge_for: ``trained``, or a folder or hub id, to the judge; called only for kinds that ask one.

    Raises:
        ConfigError: a rubric needs a judge model that its kind does not have, or a subject is not opaque.
        DataError: a file of labels or profiles is not there or holds nothing usable.
    """
    match config:
        case VerifierReward():
            return verifier_reward
        case RubricJudgeReward(rubric=rubric, judge=judge, level=level):
            return rubric_judge(judge_for(judge), Rubric.load(rubric), level)
        case ProgrammaticReward(rubric=rubric, level=level):
            return programmatic_reward(Rubric.load(rubric), level)
        case LabelsReward(path=path, source=source):
            return _labels(LabelReward.read(path, source), path)
        case PersonalRewardConfig():
            return _personal(config, judge_for)
        case DeskOracleReward(noise=noise, filler_pay=pay, seed=seed):
            return desk_oracle(noise=noise, filler_pay=pay, seed=seed)
        case CompositeReward(parts=parts, weights=weights):
            return Composite({name: build_reward(part, judge_for) for name, part in parts.items()}, weights)


def check_reward(config: RewardConfig) -> None:
    """Whether the files and judges that a source names can be used, before anything is trained for it.

    Raises:
        ConfigError: a rubric needs a judge model that its kind does not have, a subject is not opaque, or a
            judge is not there or not usable.
        DataError: a rubric, a file of labels or one of profiles cannot be used.
    """
    match config:
        case CompositeReward(parts=parts):
            for part in parts.values():
                check_reward(part)
        case RubricJudgeReward(rubric=rubric, judge=judge):
            Rubric.load(rubric)
            _check_judge(judge)
        case ProgrammaticReward(rubric=rubric, level=level):
            programmatic_reward(Rubric.load(rubric), level)
        case LabelsReward(path=path, source=source):
            LabelReward.read(path, source)
        case PersonalRewardConfig(profiles=profiles, rubric=rubric, judge=judge):
            Rubric.load(rubric)
            read_profiles(profiles)
            _check_judge(judge)
        case VerifierReward() | DeskOracleReward():
            pass


def _check_judge(name: str) -> None:
    try:
        if name != TRAINED:
            check_judge(name)
    except ConfigError as error:
        raise ConfigError(f"judge: {error}") from error


def _labels(labels: LabelReward, path: str) -> LabelReward:
    for item in labels.rejected:
        log.warning("label not used: %s", item)
    if labels.rejected:
        log.warning("%s: %d lines not used", path, len(labels.rejected))
    return labels


def _personal(config: PersonalRewardConfig, judge_for: JudgeFor) -> PersonalReward:
    profiles, rejected = read_profiles(config.profiles)
    for item in rejected:
        log.warning("profile not used: %s", item)
    return PersonalReward(judge_for(config.judge), Rubric.load(config.rubric), profiles)
