"""Faults → changes that a person can take or leave, and taking them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from axiomrm.errors import ConfigError, DataError
from axiomrm.rubrics.convert.entry import load_yaml
from axiomrm.rubrics.diff import diff
from axiomrm.rubrics.findings import raise_findings
from axiomrm.rubrics.improve_edit import Edit, edited_text
from axiomrm.rubrics.improve_faults import Fault
from axiomrm.rubrics.improve_rows import Row
from axiomrm.rubrics.lint import lint
from axiomrm.rubrics.load import assemble
from axiomrm.rubrics.model import Theorem
from axiomrm.rubrics.read import read_text
from axiomrm.rubrics.rubric import Rubric
from axiomrm.rubrics.yaml_write import to_yaml

SCHEMA = "atr-proposal/1"
_ADVICE = {
    "dead": "retire; if it is a must, make it an axiom instead",
    "never_applies": "fix applies_when, or retire",
    "unassessable": "change the evidence level, so that the judge sees what the question needs",
    "redundant": "merge: the weights are added",
    "unreliable": "sharpen the anchors, add cases, or split the question",
    "length_driven": "bound the length, or take the penalty for length into use",
    "exploited": "take the penalty into use or write an axiom; the transcripts are its cases",
}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class ChangeProposal(_Part):
    """One change, or one advice without a mechanical change."""

    id: str
    """``p1`` …"""
    criterion: str
    fault: str
    why: str
    advice: str
    needs_rescoring: bool = False
    """Stored verdicts say nothing about it; score again after taking it."""
    edits: list[dict[str, Any]] = Field(default_factory=list)
    examples: list[str] = Field(default_factory=list)
    """Ids of conversations."""


class Proposal(_Part):
    """What ``proposal.yaml`` holds."""

    schema_: str = Field(default=SCHEMA, alias="schema")
    rubric: str
    hash: str
    """Of the rubric that the changes are for."""
    version: str
    """With all changes taken."""
    changes: list[ChangeProposal] = Field(default_factory=list)

    def to_yaml(self) -> str:
        """As written to ``proposal.yaml``."""
        return to_yaml(self.model_dump(mode="json", by_alias=True))


def changes_for(rubric: Rubric, faults: Sequence[Fault], rows: Sequence[Row]) -> tuple[ChangeProposal, ...]:
    """One change a fault; edits only for theorems of this file, not for those of its imports."""
    own = {t.id: t for t in rubric.own_theorems}
    weights = {t.id: t.weight for t in rubric.theorems}
    taken = {*own, *(a.id for a in rubric.file.axioms)}
    texts = {r.name: r.text for r in rows}
    out = []
    for number, fault in enumerate(faults, 1):
        edits: list[Edit] = []
        advice = _ADVICE[fault.kind]
        if fault.criterion in own and (not fault.other or fault.other in own):
            edits = _edits(fault, own[fault.criterion], weights, texts, taken)
        elif fault.kind in ("dead", "redundant"):
            advice += "; it stands in an import, change it there"
        out.append(
            ChangeProposal(
                id=f"p{number}",
                criterion=fault.criterion,
                fault=fault.kind,
                why=fault.message,
                advice=advice,
                needs_rescoring=fault.kind not in ("dead", "redundant", "never_applies"),
                edits=edits,
                examples=list(fault.examples),
            )
        )
    return tuple(out)


def _edits(
    fault: Fault, theorem: Theorem, weights: dict[str, float], texts: dict[str, str], taken: set[str]
) -> list[Edit]:
    retire: Edit = {"id": theorem.id, "set": {"status": "deprecated"}}
    if fault.kind == "dead":
        return [retire]
    if fault.kind == "redundant":
        # Weights add up over several merges into one criterion.
        weights[fault.other] = round(weights[fault.other] + weights[theorem.id], 12)
        return [retire, {"id": fault.other, "set": {"weight": weights[fault.other]}}]
    if fault.kind == "length_driven":
        statement = "Uses more words than what it says needs."
        return [{"add": _penalty(theorem, "wordy", statement, "length was rewarded", (), taken)}]
    if fault.kind == "exploited":
        cases = tuple((name, texts.get(name, "")) for name in fault.examples)
        statement = f"Keeps to the wording of this rule without serving its purpose: {theorem.statement}"
        derivation = "the score of the rule rose while what it stands for did not"
        return [{"add": _penalty(theorem, "gamed", statement, derivation, cases, taken)}]
    return []


def _penalty(
    theorem: Theorem,
    ending: str,
    statement: str,
    derivation: str,
    cases: Sequence[tuple[str, str]],
    taken: set[str],
) -> dict[str, Any]:
    """A draft: it scores once a person has read it and set it active."""
    name, number = f"{theorem.id}_{ending}", 1
    while name in taken:
        number += 1
        name = f"{theorem.id}_{ending}{number}"
    taken.add(name)
    out: dict[str, Any] = {"id": name, "derived_from": list(theorem.derived_from), "derivation": derivation}
    out |= {"statement": statement, "polarity": "penalty", "weight": theorem.weight}
    shown = [{"bad": text} for _, text in cases if text.strip()][:3]
    if shown:
        out["cases"] = shown
    if cases:
        out["sources"] = [{"kind": "transcript", "ref": ref} for ref, _ in cases]
    out["evidence"] = theorem.evidence.model_dump(mode="json", exclude_defaults=True) or {
        "level": "trajectory"
    }
    return {**out, "status": "draft"}


def edits_of(changes: Sequence[ChangeProposal]) -> list[Edit]:
    """The edits of several changes, in their order, the last value of a field winning."""
    out: list[Edit] = []
    for change in changes:
        for edit in change.edits:
            if "set" in edit:
                out = [
                    e
                    for e in out
                    if not ("set" in e and e["id"] == edit["id"] and e["set"].keys() <= edit["set"].keys())
                ]
            out.append(edit)
    return out


def with_edits(rubric: Rubric, edits: Sequence[Edit]) -> Rubric:
    """The rubric as the edited file would be loaded.

    Raises:
        RubricError: it could not be loaded.
    """
    return loaded(edited_text(rubric.source, edits), rubric)


def loaded(text: str, rubric: Rubric) -> Rubric:
    """A changed text of a rubric's file, imports resolved as before.

    Raises:
        RubricError: findings of level error.
    """
    path = Path(rubric.where) if rubric.where else None
    result, findings, sources = assemble(read_text(text, rubric.source.file), path, tuple(rubric.search))
    raise_findings(findings, sources)
    assert result is not None
    return result


def versioned(rubric: Rubric, edits: Sequence[Edit], note: str) -> list[Edit]:
    """The edits with the version bump that they need, and a line in the changelog if the file keeps one."""
    if not edits:
        return []
    version = diff(rubric, with_edits(rubric, edits)).needed
    out = [*edits, {"version": version}]
    if rubric.file.changelog:
        out.append({"change": {"version": version, "note": note}})
    return out


def note_of(changes: Sequence[ChangeProposal]) -> str:
    """One line for the changelog."""
    parts = [f"{c.fault.replace('_', ' ')} {c.criterion}" for c in changes if c.edits]
    return "improve: " + ", ".join(parts)


def read_proposal(text: str, file: str) -> Proposal:
    """A proposal as written by ``improve``.

    Raises:
        DataError: it is none.
    """
    try:
        found = Proposal.model_validate(load_yaml(text, file))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{file}: not a proposal of improve: {place}: {first['msg']}") from error
    if found.schema_ != SCHEMA:
        raise DataError(f"{file}: schema {found.schema_!r} is not {SCHEMA!r}")
    return found


def accepted(rubric: Rubric, proposal: Proposal, only: Sequence[str] = ()) -> str:
    """The file's text with the chosen changes.

    Args:
        rubric: as it stands now.
        proposal: made for it.
        only: ids of changes or of criteria; empty: all.

    Raises:
        ConfigError: the rubric has changed since, an id is unknown, or nothing is to be done.
        RubricError: the result has findings of level error.
    """
    if rubric.hash != proposal.hash:
        raise ConfigError(
            f"{rubric.id}: the rubric has changed since the proposal ({rubric.hash[:8]}… is not "
            f"{proposal.hash[:8]}…); run improve again"
        )
    known = {c.id for c in proposal.changes} | {c.criterion for c in proposal.changes}
    unknown = [name for name in only if name not in known]
    if unknown:
        raise ConfigError(f"no change {unknown[0]!r} in the proposal; accepted: {', '.join(sorted(known))}")
    chosen = [c for c in proposal.changes if not only or c.id in only or c.criterion in only]
    edits = edits_of(chosen)
    if not edits:
        raise ConfigError(
            "none of the chosen changes can be made mechanically; see their advice in the proposal"
        )
    text = edited_text(rubric.source, versioned(rubric, edits, note_of(chosen)))
    result = loaded(text, rubric)
    raise_findings(lint(result), {rubric.source.file: text})
    return text
