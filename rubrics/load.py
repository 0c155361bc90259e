"""Finding and reading a rubric with its imports, all findings collected."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

from axiomrm.errors import RubricError
from axiomrm.rubrics import imports
from axiomrm.rubrics.checks import structural
from axiomrm.rubrics.findings import Finding, sort_findings
from axiomrm.rubrics.imports import LockEntry
from axiomrm.rubrics.read import Document
from axiomrm.rubrics.rubric import Rubric

Sources = dict[str, str]
Loaded = tuple[Rubric | None, tuple[Finding, ...], Sources]


def load_with_findings(
    name_or_path: str | FilePath, *, search: Sequence[str | FilePath] = (), locked: bool = True
) -> Loaded:
    """As ``Rubric.load``, with the findings returned instead of raised.

    Returns:
        The rubric (``None`` if its shape is wrong), findings of all files, and file → text.

    Raises:
        RubricError: there is no such file or library rubric.
    """
    folders = tuple(FilePath(p) for p in search)
    path = find(name_or_path, folders)
    try:
        document = imports.read_file(path)
    except OSError as error:
        raise RubricError(f"{path}: {error.strerror or error}") from error
    return assemble(document, path, folders, locked=locked)


def find(name_or_path: str | FilePath, search: Sequence[FilePath] = ()) -> FilePath:
    """Path of a rubric.

    Raises:
        RubricError: nothing there; names the library's rubrics.
    """
    text = str(name_or_path)
    path = FilePath(text)
    if path.suffix in imports.SUFFIXES or "/" in text:
        if path.is_file():
            return path
        raise RubricError(f"{text}: {_what(path)}")
    for folder in (*search, imports.LIBRARY):
        for suffix in imports.SUFFIXES:
            if (folder / f"{text}{suffix}").is_file():
                return folder / f"{text}{suffix}"
    if path.is_file():
        return path
    if path.is_dir():
        raise RubricError(f"{text}: {_what(path)}")
    names = ", ".join(imports.library_names())
    raise RubricError(f"no rubric {text!r}: give a path to a YAML file or one of {names}")


def _what(path: FilePath) -> str:
    if path.is_dir():
        return f"a folder; name the rubrics in it ({path / '*.yaml'})"
    return "no ordinary file" if path.exists() else "no such file"


def assemble(
    document: Document, path: FilePath | None, search: tuple[FilePath, ...], *, locked: bool = True
) -> Loaded:
    """Resolve the imports of a document that was read, and run the checks that every rubric must pass.

    Args:
        document: as read.
        path: of its file; ``None``: from a text.
        search: folders for imports, before the library.
        locked: whether the imports must be those of the lock beside the file.
    """
    base = path.parent if path is not None else None
    sources: Sources = {}
    found: list[Finding] = []
    try:
        lock = imports.read_lock(base) if locked else {}
    except ValueError as error:
        lock = {}
        found.append(document.finding("E107", str(error), ("rubric", "imports")))
    rubric, more = _resolve(document, path, _Context(search, lock, sources), ())
    found += more
    if rubric is not None:
        found += _two_of_one(rubric)
        found += structural(rubric)
    return rubric, sort_findings(found), sources


def _two_of_one(rubric: Rubric) -> list[Finding]:
    """Two different contents under one id, reached through different imports."""
    seen: dict[str, Rubric] = {}
    found = []
    stack = list(reversed(rubric.imported))
    while stack:
        part = stack.pop()
        stack += reversed(part.imported)
        first = seen.setdefault(part.id, part)
        if first.hash != part.hash:
            message = f"{part.id} is imported as {first.version} and as {part.version}"
            found.append(rubric.source.finding("E107", message, ("rubric", "imports"), "use one version"))
    return found


@dataclass
class _Context:
    search: tuple[FilePath, ...]
    lock: dict[str, LockEntry]
    sources: Sources


def _resolve(
    document: Document, path: FilePath | None, context: _Context, stack: tuple[str, ...]
) -> tuple[Rubric | None, list[Finding]]:
    context.sources[document.file] = document.text
    found = list(document.findings)
    if document.model is None:
        return None, found
    header = document.model.rubric
    inner: list[Rubric] = []
    for index, spec in enumerate(header.imports):
        where: tuple[str | int, ...] = ("rubric", "imports", index)
        if spec.partition("@")[0] in (*stack, header.id):
            chain = " → ".join([*stack, header.id, spec.partition("@")[0]])
            found.append(document.finding("E103", f"cycle of imports: {chain}", where))
            continue
        part, problem, below = _import(spec, path, context, (*stack, header.id))
        found += below
        if problem:
            found.append(document.finding("E107", problem, where))
        if part is not None:
            inner.append(part)
    return Rubric(document.model, document, tuple(inner), str(path or ""), context.search), found


def _import(
    spec: str, path: FilePath | None, context: _Context, stack: tuple[str, ...]
) -> tuple[Rubric | None, str, list[Finding]]:
    parsed = imports.parse_spec(spec)
    if parsed is None:
        return None, f"import {spec!r} is not 'id@range' with a range like ^1.0, ~1.2 or 1.2.0", []
    name, span = parsed
    folders = imports.places(path.parent if path else None, context.search)
    seen: list[str] = []
    for folder in folders:
        for candidate in imports.candidates(name, folder):
            if candidate.document.model is not None and not span.holds(candidate.version):
                seen.append(candidate.document.model.rubric.version)
                continue
            rubric, found = _resolve(candidate.document, candidate.path, context, stack)
            return rubric, _lock_problem(rubric, context.lock), found
    if seen:
        return (
            None,
            f"no version of {name!r} in range {spec.partition('@')[2]!r}, found {', '.join(seen)}",
            [],
        )
    return None, f"import {name!r} not found beside the file, on the rubric path or in the library", []


def _lock_problem(rubric: Rubric | None, lock: Mapping[str, LockEntry]) -> str:
    entry = lock.get(rubric.id) if rubric is not None else None
    if rubric is None or entry is None or entry.hash == rubric.hash:
        return ""
    return f"{rubric.id}: lock {entry.hash[:8]}…, found {rubric.hash[:8]}… (version {rubric.version})"
