"""Rubric items as questions for the judge, the same for training rows and scoring."""

from collections.abc import Sequence

from axiomrm.data.verdict import Scored, Verdict
from axiomrm.rm.labels import Label, LabelSet, binary_labels, label_set, level_labels
from axiomrm.rm.prompt import Criterion
from axiomrm.rubrics import ActiveAxiom, ActiveItem
from axiomrm.rubrics.model import Scale

COMPLIES = "Y"


def criterion_of(item: ActiveItem | ActiveAxiom) -> Criterion:
    """The criterion behind an item: its statement, its good and bad cases, and its scale as labels.

    A theorem's value says how true its statement is. An axiom's statement describes compliance: ``Y`` = 1,
    a violation = 0, with one label a severity where the axiom declares several.
    """
    lines = [item.statement]
    for case in item.cases:
        lines += [f"Good: {case.good}"] if case.good else []
        lines += [f"Bad: {case.bad}"] if case.bad else []
    return Criterion(item.id, "\n".join(lines), labels_of(item))


def labels_of(item: ActiveItem | ActiveAxiom) -> LabelSet:
    """The legal labels of an item."""
    return labels_for(item.severities if isinstance(item, ActiveAxiom) else (), item.scale)


def labels_for(severities: Sequence[str], scale: Scale | None = None) -> LabelSet:
    """The legal labels: a severity each for an axiom that names several, else those of the scale."""
    if severities:
        violated = [Label(str(i), 0.0, f"violated: {s}", s) for i, s in enumerate(severities, 1)]
        return label_set([Label(COMPLIES, 1.0, "yes"), *violated])
    if scale is not None and scale.kind == "ordinal":
        return level_labels([(anchor.value, anchor.text) for anchor in scale.anchors])
    return binary_labels()


def settled(item: ActiveItem | ActiveAxiom, verdict: Verdict) -> Verdict:
    """A violated axiom's verdict names its likeliest severity, even where ``Y`` is the likeliest label."""
    if not isinstance(item, ActiveAxiom) or not item.severities or not isinstance(verdict, Scored):
        return verdict
    if verdict.value >= 0.5 or verdict.label in item.severities:
        return verdict
    worst = max(item.severities, key=lambda severity: verdict.distribution.get(severity, 0.0))
    return verdict.model_copy(update={"label": worst})
