"""``axiomrm rubric lock``: the versions and hashes that the imports of a rubric resolved to."""

from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from axiomrm.data.writing import atomic_file
from axiomrm.rubrics.imports import LIBRARY, LOCK_NAME, LockEntry, lock_text, read_lock

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric


def lock_entries(rubric: "Rubric") -> dict[str, LockEntry]:
    """Id → version, hash and place of every import, depth first."""
    return {p.id: LockEntry(p.version, p.hash, _where(rubric, p)) for p in rubric.parts if p is not rubric}


def _where(rubric: "Rubric", part: "Rubric") -> str:
    path = FilePath(part.where).resolve()
    if path.parent == LIBRARY:
        return "library"
    base = FilePath(rubric.where).resolve().parent
    return path.relative_to(base).as_posix() if path.is_relative_to(base) else path.as_posix()


def write_lock(rubric: "Rubric") -> FilePath:
    """Write ``rubrics.lock`` beside the rubric, at once or not at all.

    Entries of other rubrics in the same folder are kept; of a lock that cannot be read nothing is.
    """
    base = FilePath(rubric.where).resolve().parent
    path = base / LOCK_NAME
    try:
        kept = read_lock(base)
    except ValueError:
        kept = {}
    with atomic_file(path) as handle:
        handle.write(lock_text({**kept, **lock_entries(rubric)}))
    return path


def unreadable_lock(folder: FilePath) -> str:
    """Why the lock of a folder cannot be read; empty if it can, or if there is none."""
    try:
        read_lock(folder)
    except ValueError as error:
        return str(error)
    return ""
