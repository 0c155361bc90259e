"""What an environment told must fit into files, else it would end the run when a file is written.

Each piece of an episode is looked at alone when the episode is closed: as strict JSON in UTF-8, and whether
it reads back. One that does not is replaced, so that the episode, now failed, can be kept and reported.
"""

from typing import Any, NamedTuple

from pydantic import BaseModel, TypeAdapter

from axiomrm.data.trajectory import Message, Task
from axiomrm.data.writing import json_line
from axiomrm.policy_opt.rollouts.env_calls import BROKEN, said

JSON: TypeAdapter[Any] = TypeAdapter(Any)
REPLACED = "(cannot be written as JSON)"


def fault(value: Any) -> str | None:
    """Why files cannot hold ``value``; ``None``: they can."""
    try:
        if isinstance(value, BaseModel):
            type(value).model_validate_json(value.model_dump_json(warnings=False))
            value = value.model_dump(warnings=False)
        else:
            JSON.dump_json(value, warnings=False)
        _text_keys(value)
        json_line({"value": value}, "it")
    except BROKEN as error:
        return said(error)
    return None


def _text_keys(value: Any) -> None:
    """``1`` and ``"1"`` would be one key in a file."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is no text")
            _text_keys(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _text_keys(item)


def _replaced(message: Message) -> Message:
    found = Message(role=message.role, content=REPLACED)
    return found if message.is_action else found.from_environment()


class Pieces(NamedTuple):
    """What of an episode comes from outside."""

    messages: list[Message]
    tools: tuple[dict[str, Any], ...]
    reset: dict[str, Any]
    infos: list[dict[str, Any]]
    """One a turn."""
    task: Task


def mended(pieces: Pieces) -> tuple[Pieces, str | None]:
    """The pieces without what cannot be written, and the first that could not, with its place.

    As many messages and infos as before; of a task that cannot be written its id and type stay.
    """
    wrong: list[str] = []

    def writable(value: Any, place: str) -> bool:
        why = fault(value)
        wrong.extend([] if why is None else [f"{place}: {why}"])
        return why is None

    def info(told: dict[str, Any], place: str) -> dict[str, Any]:
        return {key: value for key, value in told.items() if writable(value, f"{place}: info[{key!r}]")}

    task = pieces.task
    kept = Pieces(
        [
            m if writable(m, f"message {i} ({m.role})") else _replaced(m)
            for i, m in enumerate(pieces.messages)
        ],
        tuple(tool for i, tool in enumerate(pieces.tools) if writable(tool, f"tools[{i}]")),
        info(pieces.reset, "reset"),
        [info(told, f"turn {turn}") for turn, told in enumerate(pieces.infos)],
        task if writable(task, "the task") else Task(id=task.id, type=task.type),
    )
    return kept, next(iter(wrong), None)
