"""What a caller in Python hands to the judge, checked before it is asked anything."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from axiomrm.data.jsonl import found_instead
from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError
from axiomrm.rubrics import ActiveRubric, Rubric


def check_rubric(rubric: Any, place: str) -> None:
    """Whether it is a rubric.

    Raises:
        ConfigError: it is not; names ``place``, what was found and how to get a rubric.
    """
    if not isinstance(rubric, Rubric):
        name = repr(rubric) if isinstance(rubric, str) else "name or file"
        raise _wrong(f"{place}: rubric", rubric, f"a Rubric; Rubric.load({name}) loads one")


def check_trajectory(trajectory: Any, place: str) -> None:
    """Whether it is a trajectory.

    Raises:
        ConfigError: it is not; names ``place``, what was found and how to get a trajectory.
    """
    if not isinstance(trajectory, Trajectory):
        raise _wrong(
            place,
            trajectory,
            "a Trajectory; axiomrm.data.openai_chat.to_trajectory({'messages': [...]}) makes one of a chat",
        )


def check_trajectories(trajectories: Any, place: str) -> None:
    """Whether it is something that gives trajectories one by one; of a list, each is looked at.

    Raises:
        ConfigError: it is not.
    """
    if isinstance(trajectories, Trajectory | str | Mapping) or not isinstance(trajectories, Iterable):
        raise _wrong(place, trajectories, "several Trajectory, in a list or as they are read")
    if isinstance(trajectories, Sequence):
        for index, trajectory in enumerate(trajectories):
            check_trajectory(trajectory, f"{place}[{index}]")


def check_pair(pair: Any, place: str) -> None:
    """Whether it is a trajectory with a rubric that is bound to its task.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise _wrong(place, pair, "a pair of Trajectory and ActiveRubric")
    check_trajectory(pair[0], f"{place}[0]")
    if not isinstance(pair[1], ActiveRubric):
        raise _wrong(
            f"{place}[1]", pair[1], "an ActiveRubric; rubric.bind(trajectory.task.features) gives one"
        )


def asks_a_model(rubric: Rubric) -> list[str]:
    """Criteria and axioms that need a judge model, by id."""
    asked = [t.id for t in rubric.theorems if t.judge.kind == "llm"]
    return asked + [a.id for a in rubric.axioms if a.type != "premise" and a.detector.kind == "llm"]


def _wrong(place: str, found: object, expected: str) -> ConfigError:
    return ConfigError(f"{place}: {found_instead(found, expected)}")
