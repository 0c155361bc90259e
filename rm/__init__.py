"""The judge: prompts, engines, read-out and the reward model. Importing this loads no torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axiomrm.rm.asking import VerdictRequest
    from axiomrm.rm.labels import LabelSet, binary_labels, level_labels
    from axiomrm.rm.prompt import Criterion, JudgePrompter
    from axiomrm.rm.reward_model import RewardModel

__all__ = [
    "Criterion",
    "JudgePrompter",
    "LabelSet",
    "RewardModel",
    "VerdictRequest",
    "binary_labels",
    "level_labels",
]
_HOMES = {
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
