"""Generative reward models with axiom-theorem rubrics, and critic-free policy optimisation against them.

The names below are imported when they are first used, so ``import axiomrm`` stays quick and loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from axiomrm.data import CannotAssess as CannotAssess
    from axiomrm.data import Failed as Failed
    from axiomrm.data import Message as Message
    from axiomrm.data import Outcome as Outcome
    from axiomrm.data import PreferencePair as PreferencePair
    from axiomrm.data import Scored as Scored
    from axiomrm.data import Task as Task
    from axiomrm.data import ToolCall as ToolCall
    from axiomrm.data import Trajectory as Trajectory
    from axiomrm.rm import RewardModel as RewardModel
    from axiomrm.rubrics import Rubric as Rubric

__version__ = "0.1.0"

_HOMES = {
    "CannotAssess": "axiomrm.data",
    "Failed": "axiomrm.data",
    "Message": "axiomrm.data",
    "Outcome": "axiomrm.data",
    "PreferencePair": "axiomrm.data",
    "RewardModel": "axiomrm.rm",
    "Rubric": "axiomrm.rubrics",
    "Scored": "axiomrm.data",
    "Task": "axiomrm.data",
    "ToolCall": "axiomrm.data",
    "Trajectory": "axiomrm.data",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
