"""Conditions as unions of boxes over cells: exact, and fast enough for every pair of a large rubric.

A *space* gives each name its finitely many points (``cells.points``). A *box* maps names to bit masks of
points; names it does not mention are free. A condition is the union of its boxes. Two conditions exclude
each other exactly if no two of their boxes meet.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from axiomrm.rubrics.cells import Undecided, points
from axiomrm.rubrics.expr import And, Const, Expr, Implies, Literally, Not, Or, Test, Value, tests_of
from axiomrm.rubrics.expr_check import Variable

MAX_BOXES = 512

Box = Mapping[str, int]
Region = tuple[Box, ...]
EVERYWHERE: Region = ({},)


class Space:
    """Points of every name that a set of conditions mentions."""

    def __init__(self, variables: Mapping[str, Variable], exprs: Iterable[Expr]) -> None:
        by_name: dict[str, list[Expr]] = {}
        for expr in exprs:
            for test in tests_of(expr):
                by_name.setdefault(test.name, []).append(test)
        self.variables = variables
        self.points = {n: points(variables[n], tests) for n, tests in by_name.items() if n in variables}
        self.full = {n: (1 << len(p)) - 1 for n, p in self.points.items()}
        self._numbers = {
            n: [Decimal(str(v)) for v in p]
            for n, p in self.points.items()
            if variables[n].type in ("int", "number")
        }
        self._cache: dict[tuple[Expr, bool], Region] = {}

    def region(self, expr: Expr, positive: bool = True) -> Region:
        """Boxes where ``expr`` holds (or, if not ``positive``, where it does not).

        Raises:
            Undecided: more than 512 boxes.
        """
        key = (expr, positive)
        if key not in self._cache:
            self._cache[key] = self._region(expr, positive)
        return self._cache[key]

    def _region(self, expr: Expr, positive: bool) -> Region:
        match expr:
            case Literally(value):
                return EVERYWHERE if value == positive else ()
            case Test():
                mask = self._mask(expr)
                full = self.full[expr.name]
                mask = mask if positive else full & ~mask
                return () if not mask else EVERYWHERE if mask == full else ({expr.name: mask},)
            case Not(arg):
                return self.region(arg, not positive)
            case And(args) | Or(args):
                parts = [self.region(a, positive) for a in args]
                meet = isinstance(expr, And) == positive
                return self.meet(parts) if meet else _union(parts)
            case Implies(left, right):
                return self.region(Or((Not(left), right)), positive)

    def meet(self, parts: Iterable[Region]) -> Region:
        """Where all parts hold."""
        out: Region = EVERYWHERE
        for part in parts:
            out = tuple(b for x in out for y in part if (b := meet(x, y)) is not None)
            if len(out) > MAX_BOXES:
                raise Undecided(len(out))
        return _reduced(out)

    def _mask(self, test: Test) -> int:
        values = self.points[test.name]
        numbers = self._numbers.get(test.name)
        if test.op in ("==", "in", "!=", "not in"):
            mask = sum(1 << i for i in {self._index(values, numbers, c) for c in test.constants} if i >= 0)
            return mask if test.op in ("==", "in") else self.full[test.name] & ~mask
        constant = test.constants[0]
        if numbers is None or not isinstance(constant, Decimal):
            return 0
        below = (1 << bisect_left(numbers, constant)) - 1
        at = self._index(values, numbers, constant)
        upto = below | (1 << at if at >= 0 else 0)
        full = self.full[test.name]
        return {"<": below, "<=": upto, ">": full & ~upto, ">=": full & ~below}[test.op]

    @staticmethod
    def _index(values: Sequence[Value], numbers: list[Decimal] | None, constant: Const) -> int:
        if numbers is not None:
            if not isinstance(constant, Decimal):
                return -1
            at = bisect_left(numbers, constant)
            return at if at < len(numbers) and numbers[at] == constant else -1
        return values.index(constant) if constant in values else -1

    def intervals(self, region: Region) -> Region:
        """The same region in boxes whose masks have no holes.

        Raises:
            Undecided: more than 512 boxes.
        """
        out: list[Box] = []
        for box in region:
            pieces: list[dict[str, int]] = [{}]
            for name, mask in box.items():
                pieces = [{**p, name: run} for p in pieces for run in _runs(mask)]
            out += pieces
            if len(out) > MAX_BOXES:
                raise Undecided(len(out))
        return tuple(out)


def _runs(mask: int) -> list[int]:
    runs = []
    while mask:
        low = mask & -mask
        above = mask + low
        run = mask & ~above
        runs.append(run)
        mask &= ~run
    return runs


def meet(a: Box, b: Box) -> Box | None:
    """Intersection of two boxes, ``None`` if empty."""
    if not a or not b:
        return b or a
    out = dict(a)
    for name, mask in b.items():
        mask &= out.get(name, mask)
        if not mask:
            return None
        out[name] = mask
    return out


def disjoint(a: Box, b: Box) -> bool:
    """Whether two boxes do not meet."""
    return any(not mask & b.get(name, mask) for name, mask in a.items())


def exclusive(a: Region, b: Region) -> bool:
    """Whether two regions do not meet."""
    return all(disjoint(x, y) for x in a for y in b)


def inside(a: Region, b: Region, space: Space) -> bool:
    """Whether ``a`` lies in ``b``: nothing of ``a`` is left when ``b`` is taken away.

    Raises:
        Undecided: more than 512 boxes on the way.
    """
    left: list[Box] = list(a)
    for box in b:
        left = [piece for x in left for piece in _minus(x, box, space)]
        if len(left) > MAX_BOXES:
            raise Undecided(len(left))
    return not left


def _minus(a: Box, b: Box, space: Space) -> list[Box]:
    if disjoint(a, b):
        return [a]
    out: list[Box] = []
    rest = dict(a)
    for name, mask in b.items():
        have = rest.get(name, space.full[name])
        outside = have & ~mask
        if outside:
            out.append({**rest, name: outside})
        rest[name] = have & mask
    return out


def project(region: Region, names: Iterable[str]) -> Region:
    """The region seen through ``names`` only: where some value of the other names makes it hold."""
    kept = set(names)
    return _reduced(tuple({n: m for n, m in box.items() if n in kept} for box in region))


def _union(parts: Sequence[Region]) -> Region:
    out = tuple(b for p in parts for b in p)
    if len(out) > MAX_BOXES:
        raise Undecided(len(out))
    return _reduced(out)


def _reduced(region: Region) -> Region:
    """Without repetitions; a box that is everywhere swallows the rest."""
    if any(not box for box in region):
        return EVERYWHERE
    unique = {tuple(sorted(box.items())): box for box in region}
    return tuple(unique.values())
