"""Resolving ``imports``: beside the file, then rubric path, then library; highest version in range."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, NamedTuple

from axiomrm.rubrics.read import Document, read_bytes
from axiomrm.rubrics.versions import Range, Version, parse_range, parse_version

LIBRARY = FilePath(__file__).resolve().parent / "library"
LOCK_NAME = "rubrics.lock"
SUFFIXES = (".yaml", ".yml", ".json")


class LockEntry(NamedTuple):
    """What ``rubrics.lock`` holds of one import."""

    version: str
    hash: str
    where: str


@dataclass(frozen=True)
class Candidate:
    """A file that could serve an import."""

    path: FilePath
    document: Document
    version: Version


def parse_spec(spec: str) -> tuple[str, Range] | None:
    """``id@range`` → id and range; ``None`` if malformed."""
    name, _, text = spec.partition("@")
    span = parse_range(text)
    ok = name.isidentifier() and name == name.lower() and span is not None
    return (name, span) if ok and span is not None else None


def library_names() -> tuple[str, ...]:
    """Names of the shipped rubrics."""
    return tuple(sorted(p.stem for p in LIBRARY.glob("*.yaml")))


def places(base: FilePath | None, search: Sequence[FilePath]) -> tuple[FilePath, ...]:
    """Folders to look in, first wins."""
    return tuple(dict.fromkeys([*([base] if base else []), *search, LIBRARY]))


def candidates(name: str, folder: FilePath) -> list[Candidate]:
    """Files ``name.yaml`` and ``name@….yaml`` of ``folder`` with rubric id ``name``, newest first."""
    found = []
    files = [folder / f"{name}{s}" for s in SUFFIXES]
    files += sorted(p for s in SUFFIXES for p in folder.glob(f"{name}@*{s}"))
    for path in files:
        if not path.is_file():
            continue
        document = read_file(path)
        header = document.model.rubric if document.model else None
        version = parse_version(header.version) if header else Version(0, 0, 0)
        if version is not None and (header is None or header.id == name):
            found.append(Candidate(path, document, version))
    return sorted(found, key=lambda c: c.version, reverse=True)


def read_file(path: FilePath) -> Document:
    """Read at most a little over 1 MiB, so that a huge file costs nothing."""
    with path.open("rb") as handle:
        raw = handle.read((1 << 20) + 1)
    if len(raw) > 1 << 20:
        raw = raw.ljust(path.stat().st_size if path.stat().st_size < 1 << 24 else 1 << 24, b" ")
    return read_bytes(raw, str(path))


def read_lock(base: FilePath | None) -> dict[str, LockEntry]:
    """The lock beside a rubric; empty if there is none.

    Raises:
        ValueError: the lock is not what ``axiomrm rubric lock`` writes.
    """
    path = base / LOCK_NAME if base else None
    if path is None or not path.is_file():
        return {}
    try:
        loaded: Any = json.loads(path.read_text(encoding="utf-8"))
        return {k: LockEntry(v["version"], v["hash"], v["where"]) for k, v in loaded["rubrics"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: not a lock file ({error}); write it anew with 'axiomrm rubric lock', for each rubric "
            "of the folder"
        ) from error


def lock_text(entries: dict[str, LockEntry]) -> str:
    """Text of ``rubrics.lock``."""
    rows = {k: entries[k]._asdict() for k in sorted(entries)}
    return json.dumps({"schema": "atr-lock/1", "rubrics": rows}, indent=2, ensure_ascii=False) + "\n"
