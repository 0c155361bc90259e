"""Writing JSONL: a file appears whole or not at all; every line is strict JSON (NaN, infinity: ``null``)."""

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from axiomrm.data.jsonl import Rejected
from axiomrm.data.trajectory import Message, ToolCall, Trajectory, finite_json
from axiomrm.errors import ConfigError, DataError


@contextmanager
def atomic_file(path: str | Path) -> Iterator[IO[str]]:
    """A UTF-8 text file that takes the place of ``path`` when the block ends without an error.

    The temporary file lies in the same folder, because a rename across file systems is not atomic.

    Raises:
        OSError: it cannot be written there; names ``path``.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error  # not the temporary file
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        os.chmod(name, 0o666 & ~_umask())  # mkstemp's 0600 would hide the file from others
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_jsonl(path: str | Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write one record a line, atomically; returns how many.

    Raises:
        DataError: a record holds something that JSON or UTF-8 cannot; ``path`` is then untouched.
    """
    count = 0
    with atomic_file(path) as handle:
        for record in records:
            handle.write(json_line(record, f"{path}: record {count + 1}"))
            count += 1
    return count


def json_line(record: Mapping[str, Any], place: str = "record") -> str:
    """One record as strict JSON in the given key order, with its line end.

    Raises:
        DataError: it holds something that JSON or UTF-8 cannot.
    """
    try:
        line = json.dumps(finite_json(record), ensure_ascii=False, allow_nan=False) + "\n"
        line.encode()
    except (TypeError, UnicodeEncodeError) as error:
        raise DataError(f"{place}: cannot be written as JSON in UTF-8: {error}") from error
    return line


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> int:
    """Write trajectories in OpenAI's chat format, atomically; `Trajectory.read` gives them back."""
    return write_jsonl(path, map(to_record, trajectories))


def write_rejected(path: str | Path, rejected: Iterable[Rejected]) -> int:
    """Write what was rejected: one object with ``file``, ``line`` (1-based) and ``reason`` a line."""
    return write_jsonl(path, (item._asdict() for item in rejected))


def check_output(out: Path, read: Iterable[Path], beside: Iterable[Path], option: str = "--out ") -> None:
    """Nothing that is read may be written over, and the output must be a file in a folder that exists.

    Args:
        out: what a user named.
        read: the inputs.
        beside: further files that will be written.
        option: with which ``out`` was named, and a space; empty: with none.

    Raises:
        ConfigError: one of these does not hold.
    """
    check_target(out, read, option)
    if not out.parent.is_dir():
        raise ConfigError(f"{option}{out}: there is no folder {out.parent}; make it first")
    further = {path.resolve() for path in beside}
    for path in read:
        if path.resolve() in further:
            raise ConfigError(f"{option}{out}: would overwrite the input {path}; name another file")
    if out.resolve() in further:
        raise ConfigError(f"{option}{out}: another file of this command will stand there; name another")


def check_target(out: Path, read: Iterable[Path], option: str = "") -> None:
    """As ``check_output``, of an output whose folder is made where there is none.

    Raises:
        ConfigError: a folder, a pipe or a device, what is read, or in a folder that is a file.
    """
    if out.is_dir():
        raise ConfigError(f"{option}{out}: a folder; name a file in it")
    if out.exists() and not out.is_file():
        raise ConfigError(f"{option}{out}: no ordinary file (a pipe or a device); name a file")
    above = next((path for path in out.parents if path.exists()), Path())
    if not above.is_dir():
        raise ConfigError(f"{option}{out}: {above} is a file, not a folder")
    for path in read:
        if path.resolve() == out.resolve():
            raise ConfigError(f"{option}{out}: would overwrite the input {path}; name another file")


def check_free(out: Path, replace: bool, option: str = "") -> None:
    """A file that a user did not offer stays.

    Raises:
        ConfigError: there is one, and not ``replace``.
    """
    if not replace and out.is_file():
        raise ConfigError(f"{option}{out}: is already there; name another file, or --replace it")


def check_rejected(path: Path, wanted_by: str) -> None:
    """A list of rejected records may only take the place of another such list.

    Raises:
        ConfigError: ``path`` holds something else.
    """
    if not path.is_file() or not path.stat().st_size:
        return
    with path.open("rb") as handle:
        line = handle.readline()
    try:
        ours = {"file", "line", "reason"} <= set(json.loads(line))
    except (ValueError, TypeError):
        ours = False
    if not ours:
        raise ConfigError(
            f"{wanted_by}: rejected records would overwrite {path}, which is no list of them; "
            "move it, or name another output"
        )


def to_record(trajectory: Trajectory) -> dict[str, Any]:
    """The log record of a trajectory; fields at their defaults are left out."""
    record: dict[str, Any] = {"messages": [message_record(m) for m in trajectory.messages]}
    rest = trajectory.model_dump(exclude={"messages"}, exclude_defaults=True)
    return {**record, **rest}


def message_record(message: Message) -> dict[str, Any]:
    """One message in OpenAI's chat format, with its ``extra`` keys where they were."""
    record: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        record["content"] = message.content or None  # OpenAI's form of "no text"
        record["tool_calls"] = [_call_record(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        record["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        record["name"] = message.name
    return {**message.extra, **record}


def _call_record(call: ToolCall) -> dict[str, Any]:
    arguments = call.raw_arguments
    if arguments is None:
        arguments = json_line(call.arguments, f"arguments of {call.name!r}").rstrip("\n")
    function = {"name": call.name, "arguments": arguments}
    return {**({} if call.id is None else {"id": call.id}), "type": "function", "function": function}


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
