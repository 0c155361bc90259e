"""Whose task it is, where an environment draws tasks without a user: each gets a token of the profiles."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from axiomrm.data.trajectory import Task


def for_users(tasks: Sequence[Task], tokens: Collection[str]) -> list[Task]:
    """The tasks, each with a user in its feature ``subject``; one that names a user keeps it.

    A task goes to the token that has the greatest hash with its id (rendezvous hashing): users get about
    equal shares, and one who leaves hands on their tasks alone, whatever the order and number of tokens.

    Args:
        tasks: in any number.
        tokens: opaque ones; none leave the tasks as they are.
    """
    return [_given(task, tokens) if tokens and "subject" not in task.features else task for task in tasks]


def named_subject(features: Mapping[str, Any]) -> str | None:
    """The token in a task's features, as text also where it is a number there; ``None``: nobody is named."""
    token = features.get("subject")
    return None if token is None else str(token)


def _given(task: Task, tokens: Collection[str]) -> Task:
    chosen = max(tokens, key=lambda token: hashlib.sha256(f"{token}\0{task.id}".encode()).digest())
    return task.model_copy(update={"features": {**task.features, "subject": chosen}})
