"""The tree of a condition and its truth under three-valued logic."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal, NamedTuple

Compare = Literal["==", "!=", "<", "<=", ">", ">="]
Const = bool | Decimal | str
Value = bool | int | float | Decimal | str
Env = Mapping[str, Value | None]


class ExprError(ValueError):
    """A condition that cannot be read; ``offset`` and ``length`` say where in its text."""

    def __init__(self, message: str, offset: int, length: int = 1, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.length = max(1, length)
        self.hint = hint


class Span(NamedTuple):
    """Place in the text of a condition."""

    start: int = 0
    length: int = 1


@dataclass(frozen=True)
class Literally:
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True)
class Test:
    """``name``, ``name cmp const`` or ``name [not] in {…}``; a bare name is ``name == true``."""

    __test__ = False
    name: str
    op: Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]
    constants: tuple[Const, ...]
    bare: bool = False
    at: Span = field(default=Span(), compare=False)
    constants_at: tuple[Span, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Not:
    """Negation."""

    arg: "Expr"


@dataclass(frozen=True)
class And:
    """All hold."""

    args: tuple["Expr", ...]


@dataclass(frozen=True)
class Or:
    """At least one holds."""

    args: tuple["Expr", ...]


@dataclass(frozen=True)
class Implies:
    """``left implies right``, right-associative."""

    left: "Expr"
    right: "Expr"


Expr = Literally | Test | Not | And | Or | Implies
TRUE = Literally(True)

_COMPARE: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def evaluate(tree: Expr, env: Env) -> bool | None:
    """Truth under Kleene's three-valued logic.

    Args:
        tree: from ``parse``.
        env: name → value; ``None`` or an absent name: unknown.

    Returns:
        ``None`` if the unknown names leave it open; never a guess.
    """
    match tree:
        case Literally(value):
            return value
        case Test():
            return _test(tree, env.get(tree.name))
        case Not(arg):
            inner = evaluate(arg, env)
            return None if inner is None else not inner
        case And(args):
            return _all([evaluate(a, env) for a in args])
        case Or(args):
            inner = _all([None if v is None else not v for v in (evaluate(a, env) for a in args)])
            return None if inner is None else not inner
        case Implies(left, right):
            return evaluate(Or((Not(left), right)), env)


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _test(test: Test, value: Value | None) -> bool | None:
    if value is None:
        return None
    if test.op in ("==", "in"):
        return any(_equal(value, c) for c in test.constants)
    if test.op in ("!=", "not in"):
        return not any(_equal(value, c) for c in test.constants)
    left, right = _decimal(value), _decimal(test.constants[0])
    if left is None or right is None:
        return None
    return _COMPARE[test.op](left, right)


def _decimal(value: Value) -> Decimal | None:
    if isinstance(value, bool | str):
        return None
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _equal(value: Value, constant: Const) -> bool:
    if isinstance(value, bool) or isinstance(constant, bool):
        return isinstance(value, bool) and isinstance(constant, bool) and value == constant
    if isinstance(value, str) or isinstance(constant, str):
        return value == constant
    return _decimal(value) == constant


def tests_of(tree: Expr) -> tuple[Test, ...]:
    """All tests, left to right."""
    match tree:
        case Literally():
            return ()
        case Test():
            return (tree,)
        case Not(arg):
            return tests_of(arg)
        case And(args) | Or(args):
            return tuple(t for a in args for t in tests_of(a))
        case Implies(left, right):
            return (*tests_of(left), *tests_of(right))


def names_of(tree: Expr) -> frozenset[str]:
    """The names that the condition mentions."""
    return frozenset(t.name for t in tests_of(tree))
