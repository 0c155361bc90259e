"""Domains cut into cells: finitely many points that decide a condition everywhere (RUBRICS.md section 6).

For each int or number the points are its ends, each constant and a point on either side of each; every test
is constant between them, so checking the points decides the whole range. Bools and enums are used whole.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from axiomrm.rubrics.expr import Expr, Value, evaluate, names_of, tests_of
from axiomrm.rubrics.expr_check import Variable

BUDGET = 200_000
"""Assignments tried in one search."""

Assignment = dict[str, Value]


class Undecided(Exception):
    """The search needs more than its budget; never to be read as "no conflict"."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count:,} assignments > {BUDGET:,}" if count < 10**12 else f"more than {BUDGET:,} assignments"
        )
        self.count = count


def points(variable: Variable, exprs: Iterable[Expr]) -> tuple[Value, ...]:
    """Points that decide every test of ``exprs`` on ``variable``, sorted."""
    if variable.type == "bool":
        return (False, True)
    if variable.type == "enum":
        return variable.values
    constants = {c for e in exprs for t in tests_of(e) if t.name == variable.name for c in t.constants}
    numbers = {c for c in constants if isinstance(c, Decimal)}
    return _whole(variable, numbers) if variable.type == "int" else _number(variable, numbers)


def _whole(variable: Variable, constants: set[Decimal]) -> tuple[Value, ...]:
    ends = {e for e in (variable.low, variable.high) if e is not None}
    near = {Decimal(c.to_integral_value()) + d for c in constants for d in (-1, 0, 1)}
    return tuple(int(p) for p in _inside(variable, ends | near or {Decimal(0)}))


def _number(variable: Variable, constants: set[Decimal]) -> tuple[Value, ...]:
    low = variable.low if variable.low is not None else min(constants, default=Decimal(0)) - 1
    high = variable.high if variable.high is not None else max(constants, default=Decimal(0)) + 1
    fixed = sorted({low, high, *constants})
    between = {(a + b) / 2 for a, b in itertools.pairwise(fixed)}
    return tuple(_inside(variable, set(fixed) | between))


def _inside(variable: Variable, numbers: set[Decimal]) -> list[Decimal]:
    low, high = variable.low, variable.high
    return sorted(n for n in numbers if (low is None or n >= low) and (high is None or n <= high))


def first_model(
    exprs: Sequence[Expr],
    variables: Mapping[str, Variable],
    fixed: Mapping[str, Value] | None = None,
    budget: int = BUDGET,
) -> Assignment | None:
    """First assignment in sorted order under which all ``exprs`` hold.

    Args:
        exprs: conditions whose names are all in ``variables`` or ``fixed``.
        variables: declared names.
        fixed: names whose value is given.
        budget: assignments that may be tried.

    Returns:
        Values of the free names, or ``None``: no assignment exists (exact).

    Raises:
        Undecided: the budget was spent first.
    """
    fixed = fixed or {}
    names = sorted({n for e in exprs for n in names_of(e)} - set(fixed))
    domains = [(n, points(variables[n], exprs)) for n in names if n in variables]
    search = _Search(exprs, domains, dict(fixed), budget)
    return {n: search.env[n] for n, _ in domains} if search.run(0) else None


class _Search:
    """Depth-first over the names; a prefix that makes one condition false is not followed."""

    def __init__(
        self,
        exprs: Sequence[Expr],
        domains: list[tuple[str, tuple[Value, ...]]],
        env: Assignment,
        budget: int,
    ) -> None:
        self.exprs = exprs
        self.domains = domains
        self.env = env
        self.budget = budget
        self.tried = 0

    def run(self, at: int) -> bool:
        truths = [evaluate(e, self.env) for e in self.exprs]
        if False in truths:
            return False
        if at == len(self.domains):
            return all(truths)
        name, values = self.domains[at]
        for value in values:
            self.tried += 1
            if self.tried > self.budget:
                raise Undecided(self._count())
            self.env[name] = value
            if self.run(at + 1):
                return True
        self.env.pop(name, None)
        return False

    def _count(self) -> int:
        total = 1
        for _, values in self.domains:
            total *= len(values)
        return total
