"""Reading chat logs: `read_trajectories` for a file at once, `stream_trajectories` for one of any size.

What a record may look like: `axiomrm.data.openai_chat`; what a file: `axiomrm.data.jsonl`.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from axiomrm.data.jsonl import ReadResult, Record, Rejected, read_records
from axiomrm.data.openai_chat import to_trajectory
from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import DataError

T = TypeVar("T")


def stream_trajectories(
    path: str | Path,
    rejected: list[Rejected],
    load: Callable[[Mapping[str, Any]], Trajectory] = to_trajectory,
) -> Iterator[Trajectory]:
    """The trajectories of a file, one at a time; what cannot be loaded is appended to ``rejected``.

    A record without an ``id`` is named ``<file name>:<line>``.

    Raises:
        DataError: there is no such file.
    """
    name = Path(path).name
    for line, trajectory in stream_records(path, load, rejected):
        yield trajectory if trajectory.id else trajectory.model_copy(update={"id": f"{name}:{line}"})


def read_trajectories(path: str | Path) -> ReadResult[Trajectory]:
    """All of `stream_trajectories`."""
    result: ReadResult[Trajectory] = ReadResult()
    result.records.extend(stream_trajectories(path, result.rejected))
    return result


def stream_records(
    path: str | Path, load: Callable[[Mapping[str, Any]], T], rejected: list[Rejected]
) -> Iterator[tuple[int, T]]:
    """``(line, load(record))`` for each record; one for which ``load`` raises ``DataError`` is rejected."""
    for item in read_records(path):
        if isinstance(item, Rejected):
            rejected.append(item)
            continue
        try:
            loaded = load(item.value)
        except DataError as error:
            rejected.append(Rejected(str(path), item.line, str(error)))
            continue
        yield item.line, loaded


__all__ = ["ReadResult", "Record", "Rejected", "read_trajectories", "stream_records", "stream_trajectories"]
