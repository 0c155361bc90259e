"""Contradictions between items (E120, E121), entailed criteria (W123), with a witness in words.

A and B conflict if some scenario makes both applicable and no reply satisfies both ``requires``. Facets of
a turn and of a trajectory measure different texts, so only items of one evidence level are compared.
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING

from axiomrm.rubrics.cells import Undecided, first_model
from axiomrm.rubrics.clauses import Clause, clauses_of, together
from axiomrm.rubrics.cores import Core, find_cores
from axiomrm.rubrics.expr import Expr, Value
from axiomrm.rubrics.expr_text import const_text
from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.regions import EVERYWHERE, Region, Space, exclusive, inside
from axiomrm.rubrics.templates import MAX_VARIANTS, variant_count

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

MAX_REPORTED = 50
"""Findings of one code in one file; more of them say nothing new."""


class Search:
    """Clauses of a rubric with their regions."""

    def __init__(self, rubric: "Rubric") -> None:
        self.rubric = rubric
        self.clauses = clauses_of(rubric)
        exprs = [e for c in self.clauses for e in (c.applies, c.wants)]
        self.space = Space(rubric.variables, exprs)
        self.undecided: list[tuple[Clause, str]] = []
        self.when: dict[Clause, Region] = {}
        self.good: dict[Clause, Region] = {}
        for clause in self.clauses:
            self.when[clause] = self._region(clause, clause.applies)
            self.good[clause] = self._region(clause, clause.wants)

    def _region(self, clause: Clause, expr: Expr) -> Region:
        try:
            return self.space.region(expr)
        except Undecided as error:
            self.undecided.append((clause, str(error)))
            return EVERYWHERE

    def pairs(self) -> Iterator[tuple[Clause, Clause]]:
        """Pairs that cannot both hold in some common scenario, without a ``beats`` edge between them."""
        for a, b in self.excluded:
            if b.id not in a.beats and a.id not in b.beats:
                yield a, b

    @cached_property
    def excluded(self) -> tuple[tuple[Clause, Clause], ...]:
        """Pairs whose formal sides exclude each other although both can apply."""
        return tuple(self._excluded())

    def _excluded(self) -> Iterator[tuple[Clause, Clause]]:
        for level in ("trajectory", "turn"):
            group = [c for c in self.clauses if c.formal and c.level == level and self.good[c]]
            for i, a in enumerate(group):
                region = self.good[a]
                for b in group[i + 1 :]:
                    if exclusive(region, self.good[b]) and self.meet_somewhere(a, b):
                        yield a, b

    def meet_somewhere(self, a: Clause, b: Clause) -> bool:
        """Whether one user and one scenario can have both."""
        return together(a, b) and not exclusive(self.when[a], self.when[b])

    def cores(self) -> tuple[tuple[Core, ...], str]:
        """Minimal sets of three or more that are jointly impossible, and why the search was not finished."""
        barred = {frozenset((a, b)) for a, b in self.excluded}
        out: list[Core] = []
        unfinished = ""
        for level in ("trajectory", "turn"):
            group = [c for c in self.clauses if c.formal and c.level == level and self.good[c]]
            try:
                found, complete = find_cores(group, self.good, self.when, barred, self.space)
            except Undecided as error:
                found, complete = (), str(error)
            out += found
            unfinished = unfinished or complete
        return tuple(out), unfinished

    def witness(self, clauses: Sequence[Clause]) -> dict[str, Value] | None:
        """The first scenario in sorted order that makes all of them applicable."""
        try:
            return first_model([c.applies for c in clauses], self.rubric.variables)
        except Undecided:
            return {}


def e120_pairs(search: Search) -> Iterator[Finding]:
    """E120 and E121, one finding a pair of items; further variants of a template are not repeated."""
    seen: set[frozenset[str]] = set()
    for a, b in search.pairs():
        key = frozenset((a.id, b.id))
        if key in seen or not (a.own or b.own) or len(seen) >= MAX_REPORTED:
            continue
        if a.kind == b.kind == "axiom":
            continue
        seen.add(key)
        yield _pair(search, a, b)


def _pair(search: Search, a: Clause, b: Clause) -> Finding:
    if b.kind == "axiom" or (a.kind == "personal" and b.kind == "theorem"):
        a, b = b, a
    at = b if b.own else a
    code = "E120" if "axiom" in (a.kind, b.kind) else "E121"
    first, second = (b, a) if code == "E120" else (a, b)
    if b.kind == "personal":
        first, second = b, a
    joined = "against" if code == "E120" else "and"
    message = f"{first.label} {joined} {second.label}" + (" cannot both hold" if code == "E121" else "")
    details = explain(search, (first, second))
    details.append(f"remedy     {_remedy(search, first, second)}")
    line = search.rubric.source.finding(code, message, (*at.path, "requires"))
    return Finding(**{**line.__dict__, "detail": tuple(details)})


def explain(search: Search, clauses: Sequence[Clause]) -> list[str]:
    """Scenario and impossible demand in words."""
    scenario = search.witness(clauses) or {}
    shown = ", ".join(f"{n}={value_text(v)}" for n, v in sorted(scenario.items()))
    others = "all other features: any" if shown else "any scenario"
    demand = "  and  ".join(c.text for c in clauses)
    return [f"scenario   {shown} ({others})" if shown else f"scenario   {others}", f"no reply   {demand}"]


def value_text(value: Value) -> str:
    """A feature value as it is written in a rubric."""
    return const_text(value if isinstance(value, bool | str | Decimal) else Decimal(str(value)))


def _remedy(search: Search, first: Clause, second: Clause) -> str:
    if first.kind == "personal" and first.chosen:
        name, (key, _) = next(iter(first.chosen.items()))
        fine = [
            c.chosen[name][1]
            for c in search.clauses
            if c.id == first.id and c.chosen and not exclusive(search.good[c], search.good[second])
        ]
        values = (
            f"map[{key}] of {name}: no conflict with {', '.join(dict.fromkeys(fine)) or 'none of the values'}"
        )
        return values if second.kind == "axiom" else f"{values}; or give {second.id} `beats: [{first.id}]`"
    if second.kind == "axiom":
        return f"change {first.id}: an axiom cannot be beaten"
    return f"give one of them `beats: [{second.id}]`, or narrow an applies_when"


def e122_cores(search: Search) -> Iterator[Finding]:
    """Three or more items that are jointly impossible although no two of them are; W124 if not decided."""
    cores, unfinished = search.cores()
    reported: set[frozenset[str]] = set()
    for core in cores:
        names = frozenset(c.id for c in core)
        if names in reported or not any(c.own for c in core) or len(reported) >= MAX_REPORTED:
            continue
        reported.add(names)
        at = next(c for c in reversed(core) if c.own)
        message = f"core: {' · '.join(c.label for c in core)} cannot all hold"
        line = search.rubric.source.finding("E122", message, (*at.path, "requires"))
        yield Finding(**{**line.__dict__, "detail": tuple(explain(search, core))})
    if unfinished:
        yield from _undecided(search, unfinished)
    for template in search.rubric.own_templates:
        if template.status == "active" and variant_count(template) > MAX_VARIANTS:
            index = search.rubric.own_templates.index(template)
            message = f"{template.id}: {variant_count(template):,} variants, {MAX_VARIANTS} were searched"
            path = ("personal_templates", index, "params")
            yield search.rubric.source.finding("W124", message, path, "split the template", key=True)
    for clause, why in search.undecided:
        if clause.own:
            message = f"{clause.id}: not decided, {why}"
            yield search.rubric.source.finding("W124", message, (*clause.path, "id"), "split the condition")


def _undecided(search: Search, why: str) -> Iterator[Finding]:
    from axiomrm.rubrics import conflicts_smt

    if not conflicts_smt.available():
        hint = "install the `smt` extra"
        yield search.rubric.source.finding(
            "W124", f"joint conflicts not decided: {why}", ("theorems",), hint, key=True
        )
        return
    try:
        cores = list(conflicts_smt.joint_cores(search.clauses, search.rubric.variables))
    except Undecided:
        message = f"joint conflicts not decided: {why}, and too many items for z3"
        yield search.rubric.source.finding("W124", message, ("theorems",), "split the rubric", key=True)
        return
    for core in cores:
        if len(core) >= 3 and any(c.own for c in core):
            at = next(c for c in reversed(core) if c.own)
            message = f"core: {' · '.join(c.label for c in core)} cannot all hold"
            line = search.rubric.source.finding("E122", message, (*at.path, "requires"))
            yield Finding(**{**line.__dict__, "detail": tuple(explain(search, core))})


def w123_entailed(search: Search) -> Iterator[Finding]:
    """A criterion that another one, applicable wherever it is, already forces."""
    for level in ("trajectory", "turn"):
        group = [
            c
            for c in search.clauses
            if c.formal and c.level == level and c.kind != "axiom" and search.good[c]
        ]
        reported: set[tuple[str, str]] = set()
        for a in group:
            for b in group:
                if (a.id, b.id) in reported or not (a.own or b.own) or not _may_entail(search, a, b):
                    continue
                reported.add((a.id, b.id))
                at = b if b.own else a
                message = f"{b.id} follows from {a.label}: counted twice"
                yield search.rubric.source.finding(
                    "W123", message, (*at.path, "requires"), "merge them, or narrow one"
                )


def _may_entail(search: Search, a: Clause, b: Clause) -> bool:
    if not together(a, b) or b.id in (a.specialises, *a.beats) or a.id in (b.specialises, *b.beats):
        return False
    if search.good[b] == EVERYWHERE or not _mentions(search.good[a], search.good[b]):
        return False
    try:
        if not inside(search.good[a], search.good[b], search.space):
            return False
        return search.when[b] == EVERYWHERE or inside(search.when[a], search.when[b], search.space)
    except Undecided:
        return False


def _mentions(a: Region, b: Region) -> bool:
    """A box of ``a`` can lie in one of ``b`` only if it bounds one of its names."""
    return all(any(n in box for other in b for n in other) for box in a)


def e110_never(search: Search) -> Iterator[Finding]:
    """Conditions that no scenario fulfils, in no variant; formal sides that no reply fulfils."""
    alive = {c.id for c in search.clauses if search.when[c]}
    reported: set[str] = set()
    for clause in search.clauses:
        if clause.own and clause.id not in alive | reported:
            reported.add(clause.id)
            message = f"{clause.id}: applies_when can never hold"
            yield search.rubric.source.finding("E110", message, (*clause.path, "applies_when"))
        if clause.own and clause.formal and search.when[clause] and not search.good[clause]:
            message = f"{clause.label}: no reply can fulfil requires"
            code = "E120" if clause.kind == "axiom" else "E121"
            yield search.rubric.source.finding(code, message, (*clause.path, "requires"))
