"""Scenarios of the task: where no theorem applies, where too many do, where one dominates (W111, E130, W131).

A scenario is one combination of feature values. A turn-level item counts as applicable if some turn could
make it so; W111 also looks at single turns.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from axiomrm.rubrics.cells import BUDGET, Undecided
from axiomrm.rubrics.clauses import Clause
from axiomrm.rubrics.conflicts import Search, value_text
from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.regions import Region, Space, project

MAX_THEOREMS = 12
DOMINANT = 0.5

Truth = bool | None
Verdict = Callable[[Sequence[Truth]], bool | None]
"""From the truth of each item so far: ``False`` cut the branch, ``True`` found, ``None`` go on."""


@dataclass
class _Walk:
    """Depth-first over the names that the regions mention, with early cuts."""

    space: Space
    regions: Sequence[Region]
    decide: Verdict
    left: int = BUDGET // 10

    def first(self) -> dict[str, int] | None:
        """Name → point index of the first scenario in sorted order, ``None`` if there is none."""
        names = sorted({n for r in self.regions for b in r for n in b})
        return self._go(names, {}, list(self.regions))

    def _go(self, names: list[str], chosen: dict[str, int], open_: list[Region]) -> dict[str, int] | None:
        self.left -= 1
        if self.left < 0:
            raise Undecided(BUDGET + 1)
        truths = [_truth(r) for r in open_]
        found = self.decide(truths)
        if found is not None or not names:
            return dict(chosen) if found else None
        name, rest = names[0], names[1:]
        for at in range(len(self.space.points[name])):
            narrowed = [_fixed(r, name, at) for r in open_]
            hit = self._go(rest, {**chosen, name: at}, narrowed)
            if hit is not None:
                return hit
        return None


def _truth(region: Region) -> Truth:
    if not region:
        return False
    return True if any(not box for box in region) else None


def _fixed(region: Region, name: str, at: int) -> Region:
    bit = 1 << at
    return tuple({n: m for n, m in box.items() if n != name} for box in region if box.get(name, bit) & bit)


def _theorems(search: Search) -> list[Clause]:
    return [c for c in search.clauses if c.kind == "theorem"]


def w111_gaps(search: Search) -> Iterator[Finding]:
    """E130: a scenario of total weight 0; W111: a scenario or turn with no theorem, or too many."""
    theorems = _theorems(search)
    if not theorems or not any(c.own for c in theorems):
        return
    names = [n for n, v in search.rubric.variables.items() if v.table == "feature"]
    whole = [project(search.when[c], names) for c in theorems]
    every = [search.when[c] for c in theorems]
    empty = _describe(search, whole, _none_applies)
    if empty is not None:
        yield _at(search, "E130", f"{empty}: total weight 0")
    gap = _describe(search, every, _none_applies)
    if gap is not None:
        yield _at(search, "W111", f"no theorem when {gap}", "add a theorem, or one that always applies")
    crowd = _describe(search, whole, _too_many)
    if crowd is not None:
        yield _at(
            search, "W111", f"more than {MAX_THEOREMS} theorems when {crowd}", "a judge call each: merge some"
        )


def _none_applies(truths: Sequence[Truth]) -> bool | None:
    if True in truths:
        return False
    return True if None not in truths else None


def _too_many(truths: Sequence[Truth]) -> bool | None:
    if sum(t is not False for t in truths) <= MAX_THEOREMS:
        return False
    return True if sum(t is True for t in truths) > MAX_THEOREMS else None


def _describe(search: Search, regions: Sequence[Region], decide: Verdict) -> str | None:
    try:
        found = _Walk(search.space, regions, decide).first()
    except Undecided:
        return None
    return None if found is None else words(search.space, found)


def words(space: Space, chosen: Mapping[str, int]) -> str:
    """``domain=other, vip=false``, or ``any features``."""
    return (
        ", ".join(f"{n}={value_text(space.points[n][i])}" for n, i in sorted(chosen.items()))
        or "any features"
    )


def _at(search: Search, code: str, message: str, hint: str = "") -> Finding:
    return search.rubric.source.finding(code, message, ("theorems",), hint, key=True)


def w131_dominant(search: Search) -> Iterator[Finding]:
    """One theorem with more than half of a scenario's weight; a rubric of one theorem does not count."""
    theorems = _theorems(search)
    names = [n for n, v in search.rubric.variables.items() if v.table == "feature"]
    regions = {c: project(search.when[c], names) for c in theorems}
    for clause in theorems:
        if clause.own and len(theorems) > 1:
            found = _dominated(search, clause, regions)
            if found is not None:
                share, where = found
                path = (*clause.path, "weight")
                message = f"{clause.id}: {100 * share:.1f} % of the weight when {where}"
                yield search.rubric.source.finding(
                    "W131", message, path, "lower it, or lint_allow W131 with a reason"
                )


def _dominated(search: Search, clause: Clause, regions: Mapping[Clause, Region]) -> tuple[float, str] | None:
    others = [c for c in regions if c is not clause]
    weights = [c.weight for c in others]

    def decide(truths: Sequence[Truth]) -> bool | None:
        mine, rest = truths[0], truths[1:]
        sure = sum(w for w, t in zip(weights, rest, strict=True) if t is True)
        if mine is False or sure * DOMINANT >= clause.weight * (1 - DOMINANT):
            return False
        if all(t is False for t in rest):
            return False if mine is True else None
        return True if mine is True and None not in rest else None

    ordered = [regions[clause], *(regions[c] for c in others)]
    try:
        found = _Walk(search.space, ordered, decide).first()
    except Undecided:
        return None
    if found is None:
        return None
    sure = [w for c, w in zip(others, weights, strict=True) if _applies(regions[c], found)]
    total = clause.weight + sum(sure)
    if not (0 < clause.weight < math.inf and 0 < total < math.inf):  # E130 says so
        return None
    return clause.weight / total, words(search.space, found)


def _applies(region: Region, chosen: Mapping[str, int]) -> bool:
    return any(all(mask >> chosen[n] & 1 for n, mask in box.items() if n in chosen) for box in region)
