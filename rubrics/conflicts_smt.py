"""The same searches by z3 (extra ``smt``): pairs, and jointly impossible sets by counter-example.

Joint: find a scenario, then a reply that fulfils all items that apply there. If there is one, every
scenario whose applicable items are among those that this reply fulfils is fine too, and the next scenario
must make one of the others applicable. No further scenario = no conflict; no reply = a conflict, shrunk to
a minimal core and blocked.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

from axiomrm.rubrics.cells import Assignment, Undecided
from axiomrm.rubrics.clauses import Clause, together
from axiomrm.rubrics.cores import Core
from axiomrm.rubrics.expr import And, Expr, Implies, Literally, Not, Or, Test
from axiomrm.rubrics.expr_check import Variable

MAX_CLAUSES = 60
"""Clauses of one level in a joint search; z3 is asked about each of them many times."""
MAX_ROUNDS = 400


def available() -> bool:
    """Whether the ``smt`` extra is installed."""
    return find_spec("z3") is not None


class Encoder:
    """Conditions as z3 terms; enums are bounded ints."""

    def __init__(self, variables: Mapping[str, Variable]) -> None:
        import z3

        self.z3: Any = z3
        self.variables = variables
        self.terms: dict[str, Any] = {}
        self.bounds: list[Any] = []

    def term(self, name: str) -> Any:
        """The z3 variable of a name, with its domain added to ``bounds`` once."""
        if name not in self.terms:
            variable = self.variables[name]
            make = {"bool": self.z3.Bool, "number": self.z3.Real}.get(variable.type, self.z3.Int)
            term = make(name)
            self.terms[name] = term
            if variable.type == "enum":
                self.bounds.append(self.z3.And(term >= 0, term < len(variable.values)))
            if variable.type in ("int", "number"):
                self.bounds += [term >= str(variable.low)] if variable.low is not None else []
                self.bounds += [term <= str(variable.high)] if variable.high is not None else []
        return self.terms[name]

    def encode(self, expr: Expr) -> Any:
        """The term of a condition."""
        match expr:
            case Literally(value):
                return self.z3.BoolVal(value)
            case Test():
                return self._test(expr)
            case Not(arg):
                return self.z3.Not(self.encode(arg))
            case And(args):
                return self.z3.And([self.encode(a) for a in args])
            case Or(args):
                return self.z3.Or([self.encode(a) for a in args])
            case Implies(left, right):
                return self.z3.Implies(self.encode(left), self.encode(right))

    def _test(self, test: Test) -> Any:
        term, variable = self.term(test.name), self.variables[test.name]
        values = [self._const(c, variable) for c in test.constants]
        if test.op in ("==", "in", "!=", "not in"):
            hit = self.z3.Or([term == v for v in values])
            return hit if test.op in ("==", "in") else self.z3.Not(hit)
        value = values[0]
        return {"<": term < value, "<=": term <= value, ">": term > value, ">=": term >= value}[test.op]

    def _const(self, constant: Any, variable: Variable) -> Any:
        if isinstance(constant, bool):
            return self.z3.BoolVal(constant)
        if isinstance(constant, str):
            return self.z3.IntVal(variable.values.index(constant))
        return self.z3.RealVal(str(constant)) if variable.type == "number" else self.z3.IntVal(int(constant))

    def model(self, formulas: Sequence[Any]) -> Assignment | None:
        """An assignment of all names seen so far, or ``None``."""
        solver = self.z3.Solver()
        solver.add(*self.bounds, *formulas)
        if solver.check() != self.z3.sat:
            return None
        found = solver.model()
        return {n: self._value(found.eval(t, model_completion=True), n) for n, t in self.terms.items()}

    def _value(self, value: Any, name: str) -> Any:
        variable = self.variables[name]
        if variable.type == "bool":
            return self.z3.is_true(value)
        if variable.type == "enum":
            return variable.values[value.as_long()]
        if variable.type == "int":
            return value.as_long()
        return Decimal(value.numerator_as_long()) / Decimal(value.denominator_as_long())


def pair_conflicts(
    clauses: Sequence[Clause], variables: Mapping[str, Variable]
) -> Iterator[tuple[Clause, Clause]]:
    """Pairs that can apply together and whose formal sides exclude each other."""
    for i, a in enumerate(clauses):
        for b in clauses[i + 1 :]:
            if not (a.formal and b.formal and a.level == b.level and together(a, b)):
                continue
            if not (_possible([a.wants], variables) and _possible([b.wants], variables)):
                continue
            if not _possible([a.wants, b.wants], variables) and _possible([a.applies, b.applies], variables):
                yield a, b


def _possible(exprs: Sequence[Expr], variables: Mapping[str, Variable]) -> bool:
    encoder = Encoder(variables)
    formulas = [encoder.encode(e) for e in exprs]
    return encoder.model(formulas) is not None


def joint_cores(clauses: Sequence[Clause], variables: Mapping[str, Variable]) -> Iterator[Core]:
    """Minimal jointly impossible sets of two or more, by counter-example guided search.

    Raises:
        Undecided: too many clauses, or too many rounds.
    """
    for level in ("trajectory", "turn"):
        group = [c for c in clauses if c.formal and c.level == level and _possible([c.wants], variables)]
        if len(group) > MAX_CLAUSES:
            raise Undecided(2 ** len(group))
        yield from _cores(group, variables)


def _cores(group: list[Clause], variables: Mapping[str, Variable]) -> Iterator[Core]:
    scenario, reply = Encoder(variables), Encoder(variables)
    applies = [scenario.encode(c.applies) for c in group]
    wants = [reply.encode(c.wants) for c in group]
    active = [scenario.z3.Bool(f"__active_{i}") for i in range(len(group))]
    rules = [scenario.z3.Implies(a, e) for a, e in zip(active, applies, strict=True)]
    rules += [
        scenario.z3.Not(scenario.z3.And(active[i], active[j]))
        for i, a in enumerate(group)
        for j, b in enumerate(group[i + 1 :], i + 1)
        if not together(a, b)
    ]
    solver = scenario.z3.Solver()
    solver.add(*scenario.bounds, *rules)
    rounds = 0
    while solver.check() == scenario.z3.sat:
        rounds += 1
        if rounds > MAX_ROUNDS:
            raise Undecided(2 ** len(group))
        model = solver.model()
        chosen = [i for i, a in enumerate(active) if scenario.z3.is_true(model.eval(a))]
        if _holds(reply, [wants[i] for i in chosen]):
            # All sets inside what the best reply fulfils are fine: ask for one that is not.
            missed = _missed(reply, wants, chosen)
            solver.add(scenario.z3.Or([active[i] for i in missed]) if missed else scenario.z3.BoolVal(False))
            continue
        core = _shrunk(reply, wants, chosen)
        yield tuple(group[i] for i in core)
        solver.add(scenario.z3.Not(scenario.z3.And([active[i] for i in core])))


def _holds(reply: Encoder, formulas: Sequence[Any]) -> bool:
    solver = reply.z3.Solver()
    solver.add(*reply.bounds, *formulas)
    return bool(solver.check() == reply.z3.sat)


def _missed(reply: Encoder, wants: Sequence[Any], chosen: Sequence[int]) -> list[int]:
    """Items that a maximal fulfilled set, grown from ``chosen``, leaves out."""
    kept = [wants[i] for i in chosen]
    missed = []
    for i, want in enumerate(wants):
        if i in chosen:
            continue
        if _holds(reply, [*kept, want]):
            kept.append(want)
        else:
            missed.append(i)
    return missed


def _shrunk(reply: Encoder, wants: Sequence[Any], chosen: Sequence[int]) -> list[int]:
    core = list(chosen)
    for i in chosen:
        rest = [j for j in core if j != i]
        if not _holds(reply, [wants[j] for j in rest]):
            core = rest
    return core
