"""The file that a scoring run grows, so that a killed run goes on where it was.

First a line with what the run is of, then one line a record. Records are judged in groups, and only whole
groups survive a kill: a resumed run then forms the same groups as an uninterrupted one, hence the same bytes.
A group with a record that is worth another try is judged again as a whole when the run goes on; its new
entries stand behind the others, and the last one of a record counts.
"""

import fcntl
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from axiomrm.errors import ConfigError

VERSION = "axiomrm/score-partial-1"


class Partial:
    """``OUT.partial``, owned by one process for the length of a ``with`` block."""

    def __init__(
        self,
        path: Path,
        identity: Mapping[str, Any],
        group: int,
        unfinished: Callable[[Mapping[str, Any]], bool] = lambda entry: False,
    ) -> None:
        """Nothing is opened yet.

        Args:
            path: the file.
            identity: what must be equal for a run to go on.
            group: records of a group.
            unfinished: whether an entry is worth another try.
        """
        self.path, self._identity, self._group = path, {"schema": VERSION, **identity}, group
        self._unfinished = unfinished
        self.records = 0
        """Different records that stand in the file."""
        self.last_line = 0
        """Line of the last one of them in the input; 0: there is none."""
        self.again: set[int] = set()
        """Lines of the groups to judge again."""
        self._newest: dict[int, int] = {}
        """Line of a record that was judged again to the place of its last entry."""
        self._handle: IO[bytes]
        self._grown = False

    def __enter__(self) -> "Partial":
        """Open, lock and read the file, and cut off what a kill left unfinished.

        Raises:
            ConfigError: it cannot be written, another process owns it, or it belongs to another run.
        """
        try:
            self._handle = self.path.open("a+b")
        except OSError as error:
            raise ConfigError(f"{self.path}: cannot be written: {error.strerror}") from error
        try:
            self._lock()
            self._keep_whole_groups()
        except BaseException:
            self._handle.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Give the file back; it stays for the next run unless it was removed or holds nothing."""
        self._handle.close()
        if not self._grown:
            self.path.unlink(missing_ok=True)

    def append(self, entries: Iterable[Mapping[str, Any]]) -> None:
        """Add the entries of one group and see them onto the disk."""
        group = list(entries)
        lines = [(json.dumps(dict(entry), ensure_ascii=False) + "\n").encode() for entry in group]
        end = self._handle.seek(0, os.SEEK_END)
        self._handle.write(b"".join(lines))
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._grown = True
        self._take(group, [end + sum(map(len, lines[:i])) for i in range(len(lines))])

    def entries(self) -> Iterator[dict[str, Any]]:
        """The last entry of each record, by this run and those before it, in the order of the input."""
        with self.path.open("rb") as handle, self.path.open("rb") as newest:
            next(handle)
            line = 0
            for text in handle:
                entry = json.loads(text)
                if entry["line"] <= line:
                    continue  # a later one, which was read at its record's place
                line = entry["line"]
                if line in self._newest:
                    newest.seek(self._newest[line])
                    entry = json.loads(newest.readline())
                yield entry

    def remove(self) -> None:
        """The run is complete, or there was nothing to do."""
        self._grown = False
        self.path.unlink()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            gone = not self.path.exists() or self.path.stat().st_ino != os.fstat(self._handle.fileno()).st_ino
        except BlockingIOError:
            gone = True
        if gone:
            raise ConfigError(
                f"{self.path}: another process is writing this output; wait for it or name another --out"
            )

    def _keep_whole_groups(self) -> None:
        self._handle.seek(0)
        header = self._handle.readline()
        if not header.endswith(b"\n"):
            self._handle.truncate(0)
            self._handle.write(json.dumps(self._identity).encode() + b"\n")
            self._handle.flush()
            return
        self._check(header)
        end = kept = self._handle.tell()
        group, places = list[dict[str, Any]](), list[int]()
        for line in self._handle:
            if not line.endswith(b"\n"):
                break
            group, places, end = [*group, json.loads(line)], [*places, end], end + len(line)
            if len(group) == self._group:
                self._take(group, places)
                kept, group, places = end, [], []
        self._handle.truncate(kept)
        self._grown = self.records > 0

    def _take(self, group: Sequence[Mapping[str, Any]], places: Sequence[int]) -> None:
        lines = [int(entry["line"]) for entry in group]
        self._newest |= {line: at for line, at in zip(lines, places, strict=True) if line <= self.last_line}
        new = [line for line in lines if line > self.last_line]
        self.records, self.last_line = self.records + len(new), max([self.last_line, *new])
        self.again -= set(lines)
        if any(map(self._unfinished, group)):
            self.again |= set(lines)

    def _check(self, header: bytes) -> None:
        try:
            found = dict(json.loads(header))
        except (ValueError, TypeError):
            found = {}
        for name, mine in self._identity.items():
            if found.get(name) != mine:
                raise ConfigError(
                    f"{self.path} was begun with another {name}: {found.get(name)!r}, now {mine!r}: "
                    "finish that run or delete the file"
                )
