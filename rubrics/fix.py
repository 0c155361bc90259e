"""``lint --fix``: mends what is mechanical (quoting, a mistyped key with one near match), never wording."""

from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.read import Document, read_text


def fix(text: str, file: str) -> tuple[str, tuple[Finding, ...]]:
    """Apply every mechanical remedy that makes the file better, until none is left.

    Better: fewer E100 findings, or a section that has its right name and shows the faults inside it, which
    are mended next.

    Args:
        text: of one rubric.
        file: name for messages.

    Returns:
        The new text, and the findings that were mended.
    """
    mended: list[Finding] = []
    document = read_text(text, file)
    while True:
        better = _one_step(text, document)
        if better is None:
            return text, tuple(mended)
        text, document, finding = better
        mended.append(finding)


def _one_step(text: str, document: Document) -> tuple[str, Document, Finding] | None:
    for finding in document.findings:
        if finding.fix is not None:
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
