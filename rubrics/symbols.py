"""Declared names → typed variables for the condition checker and the searches."""

import math
from decimal import Decimal

from axiomrm.rubrics.expr_check import Table, Variable
from axiomrm.rubrics.model import Facet, Feature, RubricFile, TurnFeature
from axiomrm.rubrics.read import Document

SECTIONS: dict[str, Table] = {"features": "feature", "turn_features": "turn feature", "facets": "facet"}


def variables_of(file: RubricFile, source: Document) -> dict[str, Variable]:
    """The names that one file declares."""
    out: dict[str, Variable] = {}
    for section, table in SECTIONS.items():
        declared: dict[str, Feature | TurnFeature | Facet] = getattr(file, section)
        for name, spec in declared.items():
            line = source.at((section, name), key=True)[0] if source.root is not None else 0
            out.setdefault(name, variable(name, table, spec, line))
    return out


def variable(name: str, table: Table, spec: Feature | TurnFeature | Facet, line: int = 0) -> Variable:
    """One declaration as a variable; an end that is no finite number (E106) bounds nothing."""
    low, high = (Decimal(str(e)) if math.isfinite(e) else None for e in spec.range or (math.inf, math.inf))
    return Variable(name, table, spec.type, spec.values, low, high, line)
