"""One process a run folder: a lock file that names its owner, taken over when the owner is dead.

The owner is a process id *and* its start time, so that a recycled id is not mistaken for a living owner
after ``kill -9``. Reading and replacing the file happens under an ``flock`` that is held for an instant only,
so two processes cannot both take over the same stale lock.
"""

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError

LOCK = ".lock"
GUARD = ".lock.guard"


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Own ``folder`` (which must exist) for the length of the block.

    Raises:
        ConfigError: a living process owns it, or one on another machine may.
    """
    mine = _identity(os.getpid())
    with _guard(folder):
        _refuse_living_owner(folder)
        with atomic_file(folder / LOCK) as handle:
            json.dump(mine, handle)
    try:
        yield
    finally:
        with _guard(folder):
            if _read(folder / LOCK) == mine:
                (folder / LOCK).unlink()


@contextmanager
def _guard(folder: Path) -> Iterator[None]:
    with (folder / GUARD).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _refuse_living_owner(folder: Path) -> None:
    owner = _read(folder / LOCK)
    if owner is None:
        return
    path, pid, host = folder / LOCK, owner.get("pid"), owner.get("host")
    if host != socket.gethostname():
        raise ConfigError(
            f"{path}: process {pid} on machine {host!r} holds this run; if it no longer runs, delete the file"
        )
    if isinstance(pid, int) and _start_of(pid) == owner.get("started"):
        raise ConfigError(f"{folder}: process {pid} is working in this run folder; wait for it or use --name")


def _read(path: Path) -> dict[str, Any] | None:
    """The recorded owner; ``None``: nobody. It is written atomically, so other content is no lock of ours."""
    try:
        owner = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return owner if isinstance(owner, dict) else None


def _identity(pid: int) -> dict[str, Any]:
    return {"pid": pid, "started": _start_of(pid), "host": socket.gethostname()}


def _start_of(pid: int) -> str | None:
    """When process ``pid`` began, as text that no later process of that id repeats; ``None``: none runs."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            return None
        state, *rest = stat.rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id")
        return None if state == "Z" else f"{boot.read_text().strip() if boot.exists() else ''}/{rest[18]}"
    listed = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return listed.stdout.strip() or None
