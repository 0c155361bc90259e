"""``lint --fix``: mends what is mechanical (quoting, a mistyped key with one near match), never wording."""

from pathlib import Path as FilePath

from axiomrm.rubrics.findings import Finding, Path, errors_of
from axiomrm.rubrics.load import assemble
from axiomrm.rubrics.read import Document, read_text

Remedy = tuple[Path, str | None]
"""Place and new text."""


def fix(text: str, file: str) -> tuple[str, tuple[Finding, ...]]:
    """Apply every mechanical remedy that makes the file better, until none is left.

    Better: fewer E100 findings, or a section that has its right name and shows the faults inside it, which
    are mended next. A value that would be refused all the same stays as it is.

    Args:
        text: of one rubric.
        file: name for messages.

    Returns:
        The new text, and the findings that were mended.
    """
    refused: set[Remedy] = set()
    while True:
        new, document, mended = _all_steps(text, file, refused)
        wrong = {_remedy(f) for f in mended if _still_wrong(f, document)}
        if not wrong:
            return new, tuple(mended)
        refused |= wrong


def _all_steps(text: str, file: str, refused: set[Remedy]) -> tuple[str, Document, list[Finding]]:
    mended: list[Finding] = []
    document = read_text(text, file)
    while True:
        better = _one_step(text, document, refused)
        if better is None:
            return text, document, mended
        text, document, finding = better
        mended.append(finding)


def _remedy(finding: Finding) -> Remedy:
    return finding.path, finding.fix


def _still_wrong(finding: Finding, document: Document) -> bool:
    """Whether a value that was mended is refused all the same, by what looks at the whole rubric."""
    if document.model is None:
        return False
    path = FilePath(document.file)
    found = assemble(document, path if path.is_file() else None, ())[1]
    return any(f.path == finding.path and f.file == document.file for f in errors_of(found))


def _one_step(text: str, document: Document, refused: set[Remedy]) -> tuple[str, Document, Finding] | None:
    for finding in document.findings:
        if finding.fix is not None and _remedy(finding) not in refused:
            new = replaced(text, finding, finding.fix)
            after = read_text(new, document.file)
            if _better(document, after, finding):
                return new, after, finding
    return None


def _better(before: Document, after: Document, mended: Finding) -> bool:
    if after.root is None:
        return False  # not YAML any more
    return len(after.findings) < len(before.findings) or _section_found(before, after, mended)


def _section_found(before: Document, after: Document, mended: Finding) -> bool:
    """Whether a mistyped section has its name now and is a list or a mapping as that name wants."""
    section = before.node(mended.path) if mended.path else None
    if section is None or not isinstance(section.value, dict | list):
        return False
    path = (*mended.path[:-1], str(mended.fix))
    at = [finding.message for finding in after.findings if finding.path == path]
    return all(message.endswith(" is missing") for message in at)  # of a key that may be mended next


def replaced(text: str, finding: Finding, new: str) -> str:
    """``text`` with the underlined place of ``finding`` replaced; a quoted key stays quoted."""
    rows = text.splitlines(keepends=True)
    row = rows[finding.line - 1]
    start = finding.col - 1
    if row[start] in "\"'" and new[0] != row[start]:
        start += 1
    rows[finding.line - 1] = row[:start] + new + row[start + finding.length :]
    return "".join(rows)
