"""E106, E162, and E101 in conditions: each parses, and each name is in the right table."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from axiomrm.rubrics.expr import ExprError, Span, parse
from axiomrm.rubrics.expr_check import Variable, check
from axiomrm.rubrics.findings import Finding, Path
from axiomrm.rubrics.model import Axiom, Facet, Feature, Template, Theorem, TurnFeature
from axiomrm.rubrics.templates import variants

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric


def e106_conditions(part: "Rubric") -> Iterator[Finding]:
    """Syntax, types and tables of all conditions, and the declarations that they rest on."""
    from axiomrm.rubrics.rubric import own_items

    yield from _declarations(part)
    for _, section, index, item in own_items(part):
        for field in ("applies_when", "requires"):
            text = getattr(item, field)
            if text is not None:
                allowed, others = tables(part, item, field)
                yield from _condition(part, item, (section, index, field), field, allowed, others)


def tables(
    part: "Rubric", item: Axiom | Theorem | Template, field: str
) -> tuple[Mapping[str, Variable], Mapping[str, Variable]]:
    """Names that a field of an item may use, and the declared rest."""
    legal = {"facet"} if field == "requires" else {"feature"}
    if field == "applies_when" and item.evidence.level == "turn":
        legal.add("turn feature")
    allowed = {n: v for n, v in part.variables.items() if v.table in legal}
    return allowed, {n: v for n, v in part.variables.items() if n not in allowed}


def _condition(
    part: "Rubric",
    item: Axiom | Theorem | Template,
    path: Path,
    field: str,
    allowed: Mapping[str, Variable],
    others: Mapping[str, Variable],
) -> Iterator[Finding]:
    texts = [(getattr(item, field), "")]
    if isinstance(item, Template) and item.params and "{" in getattr(item, field):
        texts = [(getattr(v, field), _values(chosen)) for chosen, v in variants(item)]
    shown: set[tuple[str, str]] = set()
    for text, suffix in texts:
        for code, message, span, hint in _problems(text, allowed, others):
            if (code, message) not in shown:
                shown.add((code, message))
                yield place(part, path, code, message + suffix, None if suffix else span, hint)


def _values(chosen: Mapping[str, tuple[str, str]]) -> str:
    return " (with " + ", ".join(f"{n}={value}" for n, (_, value) in chosen.items()) + ")"


def _problems(
    text: str, allowed: Mapping[str, Variable], others: Mapping[str, Variable]
) -> Iterator[tuple[str, str, Span, str]]:
    try:
        tree = parse(text)
    except ExprError as error:
        yield "E106", error.message, Span(error.offset, error.length), error.hint
        return
    for problem in check(tree, allowed, others):
        yield problem.code, problem.message, problem.at, problem.hint


def place(part: "Rubric", path: Path, code: str, message: str, span: Span | None, hint: str) -> Finding:
    """A finding inside a text node: at the span if the node is one line of the file, else at the node."""
    node = part.source.node(path)
    line, col, length = part.source.at(path)
    if node is None or span is None or node.block:
        return Finding(code, message, part.source.file, line, col, length, hint, path)
    start = col + span.start + (1 if node.quoted else 0)
    return Finding(code, message, part.source.file, line, start, span.length, hint, path)


def _declarations(part: "Rubric") -> Iterator[Finding]:
    for section in ("features", "turn_features", "facets"):
        declared: Mapping[str, Feature | TurnFeature | Facet] = getattr(part.file, section)
        for name, spec in declared.items():
            problem = _declaration(spec)
            field = problem.partition(" ")[0]
            if field in ("default", "range"):
                yield part.source.finding("E106", f"{name}: {problem}", (section, name, field))
            elif problem:
                yield part.source.finding("E106", f"{name}: {problem}", (section, name), key=True)


def _declaration(spec: Feature | TurnFeature | Facet) -> str:
    from axiomrm.rubrics.feature_values import accepted, fits

    if spec.type == "enum" and (not spec.values or len(set(spec.values)) < len(spec.values)):
        return "an enum needs 'values', each once"
    if spec.type != "enum" and spec.values:
        return f"'values' are for enums, the type is {spec.type}"
    if spec.type in ("bool", "enum") and spec.range is not None:
        return f"'range' is for numbers, the type is {spec.type}"
    if spec.range is not None and not all(map(math.isfinite, spec.range)):
        return f"range {list(spec.range)} has an end that is no finite number; leave `range` out for no bound"
    if spec.range is not None and not spec.range[0] <= spec.range[1]:
        return f"range {list(spec.range)} is empty"
    if spec.type == "int" and spec.range is None and not isinstance(spec, Facet):
        return "an int needs a 'range', so that every scenario can be checked"
    if not isinstance(spec, Facet) and spec.default is not None and not fits(spec.default, spec):
        return f"default {spec.default!r} is not accepted: {accepted(spec)}"
    return ""
