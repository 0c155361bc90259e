"""``lint --fix``: mends what is mechanical (quoting, a mistyped key with one near match), never wording."""

from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.read import read_text


def fix(text: str, file: str) -> tuple[str, tuple[Finding, ...]]:
    """Apply every mechanical remedy that lowers the number of E100 findings.

    Args:
        text: of one rubric.
        file: name for messages.

    Returns:
        The new text, and the findings that were mended.
    """
    mended: list[Finding] = []
    findings = _faults(text, file)
    while True:
        better = _one_step(text, file, findings)
        if better is None:
            return text, tuple(mended)
        text, findings, finding = better
        mended.append(finding)


def _one_step(
    text: str, file: str, findings: tuple[Finding, ...]
) -> tuple[str, tuple[Finding, ...], Finding] | None:
    for finding in findings:
        if finding.fix is not None:
            new = replaced(text, finding, finding.fix)
            left = _faults(new, file)
            if len(left) < len(findings):
                return new, left, finding
    return None


def _faults(text: str, file: str) -> tuple[Finding, ...]:
    return read_text(text, file).findings


def replaced(text: str, finding: Finding, new: str) -> str:
    """``text`` with the underlined place of ``finding`` replaced."""
    rows = text.splitlines(keepends=True)
    row = rows[finding.line - 1]
    start = finding.col - 1
    rows[finding.line - 1] = row[:start] + new + row[start + finding.length :]
    return "".join(rows)
