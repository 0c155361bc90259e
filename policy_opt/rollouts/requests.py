"""What rollouts are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

from axiomrm.data.trajectory import Task
from axiomrm.policy_opt.arguments import check_tasks


@dataclass(frozen=True)
class RolloutRequest:
    """One episode to run."""

    task: Task
    group_id: str
    rollout: int
    """Index in its group."""


def group_requests(tasks: Sequence[Task], group_size: int, prefix: str) -> list[RolloutRequest]:
    """``group_size`` rollouts of each task instance; the same task drawn twice makes two groups.

    Raises:
        ConfigError: something else than a task is among them.
    """
    check_tasks(tasks)
    return [
        RolloutRequest(task, f"{prefix}/{index}/{task.id}", rollout)
        for index, task in enumerate(tasks)
        for rollout in range(group_size)
    ]
