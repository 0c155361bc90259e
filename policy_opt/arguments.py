"""What a caller in Python hands over, checked before anything is made of it."""

from collections.abc import Sequence
from typing import Any

from axiomrm.data.jsonl import found_instead
from axiomrm.data.trajectory import Task
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.writable import fault


def check_tasks(tasks: Sequence[Task], what: str = "rollouts") -> None:
    """Whether all of them are tasks.

    Raises:
        ConfigError: names the first that is not, or that files cannot hold.
    """
    for index, task in enumerate(tasks):
        place = f"{what}: tasks[{index}]"
        if not isinstance(task, Task):
            raise _wrong(place, task, "a Task")
        if (why := fault(task)) is not None:
            raise ConfigError(f"{place} ({task.id!r}): cannot be written as JSON: {why}")


def check_training(tasks: Any, config: Any, *, env_factory: Any, turn_judge: Any) -> list[Task]:
    """What a trainer is made of; the tasks as a list.

    Raises:
        ConfigError: no task, or something of another kind; names the argument, what was found and what was
            expected.
    """
    if not isinstance(config, PolicyConfig):
        raise _wrong("policy training: config", config, "a PolicyConfig")
    if not callable(env_factory):
        raise _wrong(
            "policy training: env_factory", env_factory, "a function or class that makes an environment"
        )
    if turn_judge is not None and not callable(turn_judge):
        raise _wrong(
            "policy training: turn_judge", turn_judge, "a function from trajectories to TurnScores, or None"
        )
    try:
        listed = list(tasks)
    except TypeError:
        raise _wrong("policy training: tasks", tasks, "a list of Task") from None
    if not listed:
        raise ConfigError("policy training: no tasks given; pass at least one")
    check_tasks(listed, "policy training")
    return listed


def _wrong(place: str, found: object, expected: str) -> ConfigError:
    return ConfigError(f"{place}: {found_instead(found, expected)}")
