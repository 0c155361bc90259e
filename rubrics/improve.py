"""``axiomrm rubric improve``: from scored conversations to a proposal that a person can review (section 11).

Faults are looked for in one half of the tasks; what retiring or re-weighting would change is measured on
the other, by aggregating the stored verdicts anew. Changes of wording are marked as needing new verdicts.
Nothing is applied.
"""

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from axiomrm.errors import DataError
from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.improve_edit import edited_text
from axiomrm.rubrics.improve_effect import Accuracy, halves, pair_accuracy
from axiomrm.rubrics.improve_faults import MIN_UNITS, Fault, faults, too_few
from axiomrm.rubrics.improve_proposal import (
    ChangeProposal,
    Proposal,
    accepted,
    changes_for,
    edits_of,
    loaded,
    note_of,
    read_proposal,
    versioned,
    with_edits,
)
from axiomrm.rubrics.improve_rows import Row, Rows, read_rows, sort_rows
from axiomrm.rubrics.rubric import Rubric

__all__ = [
    "Fault",
    "Improvement",
    "Proposal",
    "Row",
    "Rows",
    "accepted",
    "improve",
    "read_proposal",
    "read_rows",
    "score_findings",
    "sort_rows",
]

_CODES = {
    "dead": "W170",
    "never_applies": "W170",
    "unassessable": "W170",
    "redundant": "W171",
    "unreliable": "W172",
    "length_driven": "W173",
    "exploited": "W174",
}


@dataclass(frozen=True)
class Improvement:
    """The result of one run."""

    proposal: Proposal
    faults: tuple[Fault, ...]
    diff: str
    """Unified; all changes taken together."""
    evidence: str
    """Markdown."""


def improve(rubric: Rubric, rows: Rows) -> Improvement:
    """Look for criteria that do no work, or the wrong one.

    Args:
        rubric: the one that the rows were scored with, or a later wording of it.
        rows: from ``read_rows``.

    Raises:
        DataError: no row has a verdict on any of the rubric's theorems.
    """
    search, held = halves(rows.main)
    _check(rubric, rows)
    found = tuple(faults(rubric.theorems, search, rows))
    changes = changes_for(rubric, found, search)
    edits = versioned(rubric, edits_of(changes), note_of(changes))
    text = edited_text(rubric.source, edits) if edits else rubric.source.text
    version = loaded(text, rubric).version if edits else rubric.version
    proposal = Proposal(rubric=rubric.id, hash=rubric.hash, version=version, changes=list(changes))
    return Improvement(
        proposal,
        found,
        _diff(rubric, text),
        "\n".join(_evidence(rubric, rows, search, held, found, changes)) + "\n",
    )


def _check(rubric: Rubric, rows: Rows) -> None:
    names = {t.id for t in rubric.theorems}
    for row in rows.main:
        if names & (row.verdicts.keys() | {n for t in row.turns for n in t}):
            return
    raise DataError(
        f"{rubric.id}: no scored row has a verdict on any of its criteria ({len(rows.main)} rows)"
    )


def _diff(rubric: Rubric, text: str) -> str:
    name = Path(rubric.source.file).name
    old, new = rubric.source.text.splitlines(keepends=True), text.splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))


def _evidence(
    rubric: Rubric,
    rows: Rows,
    search: Sequence[Row],
    held: Sequence[Row],
    found: Sequence[Fault],
    changes: Sequence[ChangeProposal],
) -> Iterator[str]:
    yield from _seen(rubric, rows, search, held)
    if not found:
        yield "No faults found."
        return
    before = pair_accuracy(rubric, held)
    yield f"Pair accuracy on held-out tasks as it stands: {before}"
    for fault, change in zip(found, changes, strict=True):
        heading = f"## {change.id} {fault.criterion}: {fault.kind.replace('_', ' ')}"
        yield from ("", heading, "", f"{fault.message}.", "")
        yield f"- proposal: {change.advice}"
        yield f"- {_effect(rubric, change, held, before)}"
        if fault.examples:
            yield f"- transcripts: {', '.join(fault.examples)}"
    taken = [c for c in changes if c.edits and not c.needs_rescoring]
    if len(taken) > 1:
        after = pair_accuracy(with_edits(rubric, edits_of(taken)), held)
        yield from ("", f"All changes that need no new verdicts, together: {after}")


def _seen(rubric: Rubric, rows: Rows, search: Sequence[Row], held: Sequence[Row]) -> Iterator[str]:
    """What the report rests on."""
    tasks = len({r.task for r in rows.main})
    yield f"# Evidence for {rubric.id} {rubric.version}"
    yield ""
    yield f"{len(rows.main)} conversations of {tasks} tasks; {len(search)} to look at, {len(held)} held out."
    again, second = sum(map(len, rows.repeats.values())), len(rows.second)
    yield f"{again} repeated judgements, {second} by a second judge."
    stale = sum(r.rubric_hash not in ("", rubric.hash) for r in rows.main)
    if stale:
        yield f"{stale} of them were scored with another wording or weighting of this rubric."
    few = too_few(rubric.theorems, search)
    if few:
        listed = ", ".join(f"{name} ({n})" for name, n in sorted(few.items()))
        yield f"Too few units (below {MIN_UNITS}) to say anything: {listed}."
    yield ""


def _effect(rubric: Rubric, change: ChangeProposal, held: Sequence[Row], before: Accuracy) -> str:
    if change.needs_rescoring:
        return "needs_rescoring: stored verdicts cannot say what it does"
    if not change.edits:
        return "no mechanical change"
    after = pair_accuracy(with_edits(rubric, change.edits), held)
    return f"pair accuracy {before} before, {after} after"


def score_findings(rubric: Rubric, scores: Path) -> list[Finding]:
    """Findings W170 to W174 for ``axiomrm rubric lint --scores``; over all rows, as no effect is measured.

    Raises:
        DataError: the file cannot be read.
    """
    rows = read_rows([scores])
    out = []
    for fault in faults(rubric.theorems, rows.main, rows):
        index = next((i for i, t in enumerate(rubric.file.theorems) if t.id == fault.criterion), None)
        path = ("theorems", index, "id") if index is not None else ("theorems",)
        message = f"{fault.criterion}: {fault.kind.replace('_', ' ')}: {fault.message}"
        out.append(rubric.source.finding(_CODES[fault.kind], message, path))
    return out
