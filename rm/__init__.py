"""The judge: prompts, engines, read-out and the reward model. Importing this loads no torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axiomrm.rm.asking import VerdictRequest
    from axiomrm.rm.calibration import Calibration, read_calibration, write_calibration
    from axiomrm.rm.calibration_fit import Labelled, fit_calibration
    from axiomrm.rm.card import JudgeCard, read_judge_card, write_judge_card
    from axiomrm.rm.criteria import criterion_of
    from axiomrm.rm.judgement import (
        Judgement,
        PairJudgement,
        PairVerdict,
        Ranked,
        TournamentPlace,
        TurnJudgement,
    )
    from axiomrm.rm.labels import LabelSet, binary_labels, level_labels
    from axiomrm.rm.prompt import Criterion, JudgePrompter
    from axiomrm.rm.reward_model import RewardModel

__all__ = [
    "Calibration",
    "Criterion",
    "JudgeCard",
    "JudgePrompter",
    "Judgement",
    "LabelSet",
    "Labelled",
    "PairJudgement",
    "PairVerdict",
    "Ranked",
    "RewardModel",
    "TournamentPlace",
    "TurnJudgement",
    "VerdictRequest",
    "binary_labels",
    "criterion_of",
    "fit_calibration",
    "level_labels",
    "read_calibration",
    "read_judge_card",
    "write_calibration",
    "write_judge_card",
]
_HOMES = {
    "Calibration": "calibration",
    "read_calibration": "calibration",
    "write_calibration": "calibration",
    "Labelled": "calibration_fit",
    "fit_calibration": "calibration_fit",
    "PairVerdict": "judgement",
    "TournamentPlace": "judgement",
    "JudgeCard": "card",
    "Judgement": "judgement",
    "PairJudgement": "judgement",
    "Ranked": "judgement",
    "TurnJudgement": "judgement",
    "criterion_of": "criteria",
    "read_judge_card": "card",
    "write_judge_card": "card",
    "Criterion": "prompt",
    "JudgePrompter": "prompt",
    "LabelSet": "labels",
    "RewardModel": "reward_model",
    "VerdictRequest": "asking",
    "binary_labels": "labels",
    "level_labels": "labels",
}


def __getattr__(name: str) -> Any:
    """Public names, imported when first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
