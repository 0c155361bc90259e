"""Types of a condition: does each name exist in the right table, does each constant fit it."""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from axiomrm.rubrics.expr import Const, Expr, Span, Test, tests_of
from axiomrm.rubrics.expr_text import const_text

Table = Literal["feature", "turn feature", "facet"]


@dataclass(frozen=True)
class Variable:
    """A declared name."""

    name: str
    table: Table
    type: Literal["bool", "int", "number", "enum"]
    values: tuple[str, ...] = ()
    """Enum only."""
    low: Decimal | None = None
    high: Decimal | None = None
    line: int = 0
    """Where it is declared; 0: elsewhere."""


@dataclass(frozen=True)
class ExprProblem:
    """One type error of a condition."""

    code: Literal["E101", "E106", "E162"]
    message: str
    at: Span
    hint: str = ""


def nearest(word: str, known: Mapping[str, object] | tuple[str, ...] | list[str]) -> str:
    """``did you mean …?`` or an empty text."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


def check(
    tree: Expr, allowed: Mapping[str, Variable], others: Mapping[str, Variable]
) -> Iterator[ExprProblem]:
    """Type errors of ``tree``.

    Args:
        tree: from ``parse``.
        allowed: the names that this condition may use.
        others: declared names that it may not use; using one is E162.
    """
    for test in tests_of(tree):
        variable = allowed.get(test.name)
        if variable is not None:
            yield from _check_test(test, variable)
        elif test.name in others:
            table = others[test.name].table
            yield ExprProblem("E162", f"{test.name!r} is a {table}; {_not_here(table)}", test.at)
        else:
            yield ExprProblem(
                "E101", f"unknown name {test.name!r}", test.at, nearest(test.name, dict(allowed))
            )


def _not_here(table: Table) -> str:
    if table == "facet":
        return "whether a criterion applies must not depend on the reply"
    if table == "turn feature":
        return "it is legal only where a turn-level item says when it applies"
    return "'requires' speaks about the reply: use facets"


def _check_test(test: Test, variable: Variable) -> Iterator[ExprProblem]:
    if test.bare and variable.type != "bool":
        yield ExprProblem(
            "E106", f"{test.name!r} is {_a(variable.type)}, compare it with a constant", test.at
        )
        return
    if test.op in ("<", "<=", ">", ">=") and variable.type in ("bool", "enum"):
        yield ExprProblem(
            "E106", f"{test.op!r} needs a number, {test.name!r} is {_a(variable.type)}", test.at
        )
        return
    for constant, at in zip(test.constants, test.constants_at, strict=True):
        problem = _check_const(constant, variable)
        if problem:
            yield ExprProblem("E106", problem[0], at, problem[1])


def _a(kind: str) -> str:
    return f"an {kind}" if kind in ("int", "enum") else f"a {kind}"


def _check_const(constant: Const, variable: Variable) -> tuple[str, str] | None:
    shown = const_text(constant) if not isinstance(constant, str) else constant
    what = f"{variable.table} {variable.name!r}"
    if variable.type == "bool":
        return (
            None if isinstance(constant, bool) else (f"{shown!r} is not true or false, {what} is a bool", "")
        )
    if variable.type == "enum":
        if isinstance(constant, str) and constant in variable.values:
            return None
        hint = nearest(shown, variable.values)
        where = f"declared at line {variable.line}" if variable.line else ""
        return f"{shown!r} is not a value of {what} ({', '.join(variable.values)})", " ".join(
            filter(None, (hint, where))
        )
    if not isinstance(constant, Decimal):
        return f"{shown!r} is not a number, {what} is {_a(variable.type)}", ""
    if variable.type == "int" and constant != constant.to_integral_value():
        return f"{shown} is not a whole number, {what} is an int", ""
    below = variable.low is not None and constant < variable.low
    above = variable.high is not None and constant > variable.high
    if below or above:
        return f"{shown} is outside the range [{variable.low}, {variable.high}] of {what}", ""
    return None
