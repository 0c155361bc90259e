"""Axiom-theorem rubrics: schema, conditions, static checks, programmatic judges, aggregation."""

from axiomrm.rubrics.aggregate import Aggregate, aggregate
from axiomrm.rubrics.bind import ActiveAxiom, ActiveItem, ActiveRubric, Grant, Personal
from axiomrm.rubrics.compare import Comparison, compare_orders
from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.judges import JUDGES, judge
from axiomrm.rubrics.probes import PROBES
from axiomrm.rubrics.rubric import Rubric

__all__ = [
    "JUDGES",
    "PROBES",
    "ActiveAxiom",
    "ActiveItem",
    "ActiveRubric",
    "Aggregate",
    "Comparison",
    "Finding",
    "Grant",
    "Personal",
    "Rubric",
    "aggregate",
    "compare_orders",
    "judge",
]
