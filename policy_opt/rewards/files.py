"""The files that rewards are made of, by the key that names them in a configuration."""

from collections.abc import Iterator
from pathlib import Path

from axiomrm.errors import DataError
from axiomrm.policy_opt.rewards.config import (
    TRAINED,
    CompositeReward,
    PersonalRewardConfig,
    ProgrammaticReward,
    RewardConfig,
    RubricJudgeReward,
)
from axiomrm.rubrics import Rubric
from axiomrm.rubrics.imports import LIBRARY


def reward_files(config: RewardConfig | None, key: str) -> dict[str, Path]:
    """Rubrics with what they import, judge folders and profiles that lie on this disk.

    Shipped rubrics are code, a judge from a hub is known by its name. Labels are not among them: people go on
    labelling between two starts of one run.

    Args:
        config: of a reward.
        key: where it stands.
    """
    match config:
        case CompositeReward(parts=parts):
            found = [reward_files(part, f"{key}.parts.{name}") for name, part in parts.items()]
            return {at: path for files in found for at, path in files.items()}
        case RubricJudgeReward(rubric=rubric, judge=judge):
            return {**_rubric(rubric, key), **_judge(judge, key)}
        case ProgrammaticReward(rubric=rubric):
            return _rubric(rubric, key)
        case PersonalRewardConfig(rubric=rubric, judge=judge):
            return {**_rubric(rubric, key), **_judge(judge, key), **profile_files(config, key)}
    return {}


def profile_files(config: RewardConfig | None, key: str) -> dict[str, Path]:
    """Those of them that hold profiles, a line a user, from which a user may be taken out at any time."""
    match config:
        case CompositeReward(parts=parts):
            found = [profile_files(part, f"{key}.parts.{name}") for name, part in parts.items()]
            return {at: path for files in found for at, path in files.items()}
        case PersonalRewardConfig(profiles=profiles) if Path(profiles).is_file():
            return {f"{key}.profiles": Path(profiles)}
    return {}


def _judge(name: str, key: str) -> dict[str, Path]:
    return {f"{key}.judge": Path(name)} if name != TRAINED and Path(name).exists() else {}


def _rubric(name: str, key: str) -> dict[str, Path]:
    try:
        rubric = Rubric.load(name)
    except DataError:  # whoever needs it will say so
        return {f"{key}.rubric": Path(name)} if Path(name).is_file() else {}
    files = {f"{key}.rubric": Path(rubric.where)}
    files |= {f"{key}.rubric.imports.{part.id}": Path(part.where) for part in _imported(rubric)}
    return {at: path for at, path in files.items() if path.parent.resolve() != LIBRARY}


def _imported(rubric: Rubric) -> Iterator[Rubric]:
    for part in rubric.imported:
        yield part
        yield from _imported(part)
