"""``axiomrm rubric lint``: all static checks of one rubric, in one list."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from axiomrm.rubrics import conflicts, lint_private, lint_words, scenarios
from axiomrm.rubrics.checks import structural
from axiomrm.rubrics.conflicts import Search
from axiomrm.rubrics.findings import Finding, sort_findings
from axiomrm.rubrics.lint_private import Hit, TextDetector

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

__all__ = ["CODES", "Hit", "TextDetector", "lint", "lint_file", "sarif", "searches", "wording"]

CODES: dict[str, str] = {
    "E100": "shape: unknown field, wrong type, YAML traps",
    "E101": "unknown id, feature, facet, slot, judge, probe",
    "E102": "duplicate or malformed id, also across imports",
    "E103": "cycle in derived_from, beats, imports",
    "E104": "theorem that reaches no axiom",
    "W105": "premise that no theorem rests on",
    "E106": "expression syntax or type",
    "E107": "import unresolved, empty range, lock mismatch",
    "E108": "no such file or library rubric, or it cannot be opened",
    "E110": "applies_when can never hold",
    "W111": "scenario with no theorem, or more than 12",
    "E120": "theorem against axiom",
    "E121": "theorem against theorem without a beats edge",
    "E122": "three or more jointly impossible, no pair is",
    "W123": "criterion entailed by another",
    "W124": "not decided: over budget, or near-equal text without facets",
    "E130": "weight not positive and finite; total 0 in a scenario",
    "W131": "one theorem above half of a scenario's weight",
    "E132": "budget above 0.4; template without max_weight",
    "E140": "caps, fallback or votes of an axiom",
    "E141": "anchors missing, or not strictly rising from 0 to 1",
    "E142": "turn level without reduce, any/all on a non-binary scale",
    "E143": "programmatic args do not fit the function",
    "E150": "sensitive attribute",
    "E151": "personal data in a string",
    "E152": "template reads a slot that is not in the registry or not readable",
    "E153": "template of dimension value, of penalty polarity, or on an axiom's facet",
    "W160": "vague word without anchors",
    "W161": "two requirements in one, hedge, trait wording",
    "E162": "applicability looks at the reply; turn feature in a trajectory item",
    "W163": "rewards bulk without a bound; rubric without any penalty or gate",
    "W170": "dead: one label in almost all records",
    "W171": "redundant: says what another criterion says",
    "W172": "unreliable: repeated judgements disagree",
    "W173": "length-driven",
    "W174": "exploited: score rises while the outcome does not",
    "E180": "version bump smaller than the change",
}


def lint(rubric: "Rubric", detectors: Sequence[TextDetector] = ()) -> tuple[Finding, ...]:
    """All findings of a rubric that has the right shape; those of its imports only if they are errors.

    Args:
        rubric: as loaded.
        detectors: finders behind E150 and E151; without any, E150 runs its word list only.
    """
    found = structural(rubric)
    if not any(f.code in ("E101", "E106", "E162") for f in found):
        found += searches(rubric)
    found += wording(rubric, detectors)
    return sort_findings(f for f in found if not _allowed(rubric, f))


def searches(rubric: "Rubric") -> list[Finding]:
    """Findings of the searches over scenarios and replies."""
    search = Search(rubric)
    checks = (
        conflicts.e110_never,
        conflicts.e120_pairs,
        conflicts.e122_cores,
        conflicts.w123_entailed,
        scenarios.w111_gaps,
        scenarios.w131_dominant,
        lint_words.w124_near,
    )
    return [finding for check in checks for finding in check(search)]


def wording(rubric: "Rubric", detectors: Sequence[TextDetector] = ()) -> Iterator[Finding]:
    """Findings about the texts of this file, and about personal data in it and in what it imports."""
    for check in (
        lint_words.w105_unused,
        lint_words.w160_vague,
        lint_words.w161_double,
        lint_words.w163_bulk,
    ):
        yield from check(rubric)
    for part in rubric.parts:
        yield from lint_private.e150_sensitive(part, detectors)
        yield from lint_private.e151_personal(part, detectors)
        yield from lint_private.e152_slots(part)
        yield from lint_private.e153_dimension(part, rubric)


def _allowed(rubric: "Rubric", finding: Finding) -> bool:
    """Whether a warning is silenced by ``lint_allow`` of its item; errors cannot be."""
    if finding.level == "error" or finding.file != rubric.source.file or len(finding.path) < 2:
        return False
    section, index = finding.path[0], finding.path[1]
    if section not in ("axioms", "theorems", "personal_templates") or not isinstance(index, int):
        return False
    item = getattr(rubric.file, str(section))[index]
    return any(allow.code == finding.code for allow in item.lint_allow)


def lint_file(
    path: str | FilePath, *, search: Sequence[str | FilePath] = (), detectors: Sequence[TextDetector] = ()
) -> tuple["Rubric | None", tuple[Finding, ...], dict[str, str]]:
    """Lint a file or a library rubric.

    Returns:
        The rubric (``None`` if its shape is wrong), all findings, and file → text for excerpts.

    Raises:
        RubricError: there is no such file.
    """
    from axiomrm.rubrics.load import load_with_findings

    rubric, found, sources = load_with_findings(path, search=search)
    if rubric is not None:
        found = sort_findings((*found, *lint(rubric, detectors)))
    return rubric, found, sources


def sarif(findings: Sequence[Finding]) -> str:
    """SARIF 2.1.0 for code hosts."""
    used = sorted({f.code for f in findings})
    rules = [{"id": c, "shortDescription": {"text": CODES.get(c, c)}} for c in used]
    driver = {"name": "axiomrm", "informationUri": "https://axiomrm.invalid/rubrics", "rules": rules}
    results = [_result(f) for f in findings]
    log: Mapping[str, Any] = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2, ensure_ascii=False)


def _result(finding: Finding) -> dict[str, Any]:
    text = "\n".join([finding.message, *finding.detail, *([finding.hint] if finding.hint else [])])
    region = {"startLine": max(1, finding.line), "startColumn": max(1, finding.col)}
    place = {"artifactLocation": {"uri": finding.file}, "region": region}
    level = "error" if finding.level == "error" else "warning"
    return {
        "ruleId": finding.code,
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }
