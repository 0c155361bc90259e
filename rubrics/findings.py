"""Findings: what is wrong in a rubric, where, and what to do about it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from axiomrm.errors import RubricError

Level = Literal["error", "warn"]
Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Finding:
    """One finding of the reader or the linter."""

    code: str
    """``E…`` or ``W…``, RUBRICS.md section 5."""
    message: str
    file: str = ""
    line: int = 0
    """1-based; 0: no place in a file is known."""
    col: int = 0
    """1-based."""
    length: int = 1
    """Characters to underline."""
    hint: str = ""
    path: Path = ()
    """Place in the document, e.g. ``("theorems", 2, "weight")``."""
    detail: tuple[str, ...] = ()
    """Further lines: the witness of a conflict."""
    fix: str | None = None
    """Text for the underlined place, where the remedy is purely mechanical."""

    @property
    def level(self) -> Level:
        """``E`` codes are errors, ``W`` codes warnings."""
        return "error" if self.code.startswith("E") else "warn"

    def as_dict(self) -> dict[str, object]:
        """Plain values for ``--format json``."""
        return {
            "file": self.file,
            "line": self.line,
            "col": self.col,
            "code": self.code,
            "level": self.level,
            "message": self.message,
            "hint": self.hint,
            "path": "/".join(map(str, self.path)),
            "detail": list(self.detail),
        }

    def text(self, source: str | None = None) -> str:
        """``file:line:col: code message``, with the line and a caret where the source is given."""
        place = (
            f"{self.file or '<rubric>'}:{self.line}:{self.col}: "
            if self.line
            else f"{self.file or '<rubric>'}: "
        )
        lines = [f"{place}{self.code} {self.message}", *(f"    {entry}" for entry in self.detail)]
        excerpt = _excerpt(source, self.line)
        if excerpt is None:
            return "\n".join([*lines, *([f"    {self.hint}"] if self.hint else [])])
        stripped = excerpt.lstrip()
        caret = max(0, self.col - 1 - (len(excerpt) - len(stripped)))
        shown, caret = _window(stripped.rstrip(), caret)
        marks = "^" * max(1, min(self.length, len(shown) - caret))
        lines += [f"    {shown}", f"    {' ' * caret}{marks}   {self.hint}".rstrip()]
        return "\n".join(lines)


def _excerpt(source: str | None, line: int) -> str | None:
    if source is None or line < 1:
        return None
    rows = source.splitlines()
    return rows[line - 1] if line <= len(rows) else None


def _window(row: str, caret: int, width: int = 120) -> tuple[str, int]:
    if len(row) <= width:
        return row, caret
    start = max(0, caret - width // 2)
    return row[start : start + width], caret - start


def sort_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By file, place and code, without repetitions."""
    unique = dict.fromkeys(findings)
    return tuple(sorted(unique, key=lambda f: (f.file, f.line, f.col, f.code, f.message)))


def errors_of(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those of level error."""
    return tuple(f for f in findings if f.level == "error")


def raise_findings(findings: Iterable[Finding], sources: Mapping[str, str]) -> None:
    """Raise one ``RubricError`` that carries all errors; do nothing if there is none.

    Args:
        findings: of any level; warnings are not raised.
        sources: file name → text, for the excerpts.

    Raises:
        RubricError: at least one finding has level error.
    """
    errors = errors_of(sort_findings(findings))
    if errors:
        raise RubricError("\n".join(f.text(sources.get(f.file)) for f in errors), errors)
