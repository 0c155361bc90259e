"""Canonical text of a condition: equal trees, equal text, whatever blanks and spelling of numbers."""

import re
from decimal import Decimal

from axiomrm.rubrics.expr import And, Const, Expr, Implies, Literally, Not, Or, Test

_SYMBOL = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_KEYWORDS = {"and", "or", "not", "in", "implies", "true", "false"}


def decimal_text(value: Decimal) -> str:
    """Shortest plain decimal: ``1.50`` → ``1.5``, ``1E-6`` → ``0.000001``, ``-0`` → ``0``."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def const_text(value: Const) -> str:
    """One constant as it is written in a condition."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return decimal_text(value)
    if _SYMBOL.fullmatch(value) and value not in _KEYWORDS:
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unparse(tree: Expr) -> str:
    """Text that parses to an equal tree."""
    match tree:
        case Literally(value):
            return "true" if value else "false"
        case Test(name, op, constants, bare):
            if bare:
                return name
            if op in ("in", "not in"):
                return f"{name} {op} {{{', '.join(map(const_text, constants))}}}"
            return f"{name} {op} {const_text(constants[0])}"
        case Not(arg):
            return f"not {_atom(arg, (And, Or, Implies))}"
        case And(args):
            return " and ".join(_atom(a, (And, Or, Implies)) for a in args)
        case Or(args):
            return " or ".join(_atom(a, (Or, Implies)) for a in args)
        case Implies(left, right):
            return f"{_atom(left, (Implies,))} implies {unparse(right)}"


def _atom(tree: Expr, brackets: tuple[type, ...]) -> str:
    return f"({unparse(tree)})" if isinstance(tree, brackets) else unparse(tree)
