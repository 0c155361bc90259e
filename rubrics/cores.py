"""Minimal sets of three or more clauses that are jointly impossible although every pair is possible (E122).

Regions are split into boxes without holes. Such boxes have Helly's property: if every two of a set meet,
all of them meet. So a set of single-box clauses that are pairwise possible is jointly possible, every core
holds a clause with several boxes, and each of its boxes is killed either by one other clause alone or after
a further clause with several boxes has cut it. The search follows exactly these steps, so it misses no
core.
"""

from collections.abc import Mapping, Sequence, Set

from axiomrm.rubrics.cells import BUDGET, Undecided
from axiomrm.rubrics.clauses import Clause, together
from axiomrm.rubrics.regions import Box, Region, Space, disjoint, exclusive, meet

Core = tuple[Clause, ...]


def find_cores(
    group: Sequence[Clause],
    good: Mapping[Clause, Region],
    when: Mapping[Clause, Region],
    barred: Set[frozenset[Clause]],
    space: Space,
    budget: int = BUDGET,
) -> tuple[tuple[Core, ...], str]:
    """All minimal cores of size three or more.

    Args:
        group: clauses of one evidence level, each possible alone.
        good: where each is fulfilled.
        when: where each applies.
        barred: pairs that exclude each other; a core holds none of them.
        space: the cells.
        budget: clauses held against a box.

    Returns:
        The cores, and an empty text or why the search is not complete.
    """
    search = _CoreSearch(group, {c: space.intervals(good[c]) for c in group}, when, barred, space, budget)
    try:
        search.run()
    except Undecided as error:
        return tuple(search.found), str(error)
    return tuple(search.found), ""


class _CoreSearch:
    def __init__(
        self,
        group: Sequence[Clause],
        boxes: Mapping[Clause, Region],
        when: Mapping[Clause, Region],
        barred: Set[frozenset[Clause]],
        space: Space,
        budget: int,
    ) -> None:
        self.order = {c: i for i, c in enumerate(group)}
        self.group = group
        self.boxes = boxes
        self.when = when
        self.barred = barred
        self.space = space
        self.left = budget
        self.budget = budget
        self.found: list[Core] = []
        self.seen: set[frozenset[Clause]] = set()
        self.partners: dict[Clause, Set[Clause]] = {}

    def run(self) -> None:
        self.group = self._tangled()
        several = [c for c in self.group if len(self.boxes[c]) > 1]
        banned: set[Clause] = set()
        for first in several:
            banned.add(first)
            allowed = [c for c in self.group if c not in banned and c in self._partners(first)]
            if allowed:
                self._grow((first,), self.boxes[first], self.when[first], allowed)

    def _tangled(self) -> list[Clause]:
        """Clauses that could stand in a core.

        One with a box that meets every box of its partners can always choose that box, so what is impossible
        with it is impossible without it. Taking such clauses away frees others, until nothing changes.
        """
        left = set(self.group)
        while True:
            owners: dict[str, dict[int, set[Clause]]] = {}
            for clause in left:
                for box in self.boxes[clause]:
                    for name, mask in box.items():
                        owners.setdefault(name, {}).setdefault(mask, set()).add(clause)
            free = {c for c in left if any(self._meets_all(c, box, owners) for box in self.boxes[c])}
            if not free:
                return [c for c in self.group if c in left]
            left -= free

    def _meets_all(self, clause: Clause, box: Box, owners: Mapping[str, Mapping[int, Set[Clause]]]) -> bool:
        for name, mask in box.items():
            for other, holders in owners[name].items():
                if not mask & other and any(h is not clause and h in self._partners(clause) for h in holders):
                    return False
        return True

    def _partners(self, clause: Clause) -> Set[Clause]:
        """Clauses that can apply and be fulfilled together with one."""
        if clause not in self.partners:
            self.partners[clause] = {c for c in self.group if self._pair(clause, c)}
        return self.partners[clause]

    def _pair(self, a: Clause, b: Clause) -> bool:
        return (
            together(a, b)
            and frozenset((a, b)) not in self.barred
            and not exclusive(self.when[a], self.when[b])
        )

    def _grow(self, chosen: Core, alive: Region, when: Region, allowed: list[Clause]) -> None:
        box = alive[0]
        for clause in allowed:
            self.left -= 1
            if self.left < 0:
                raise Undecided(self.budget + 1)
            if not self._useful(clause, box):
                continue
            key = frozenset((*chosen, clause))
            if key in self.seen:
                continue
            self.seen.add(key)
            common = self.space.meet([when, self.when[clause]])
            if not common:
                continue
            self.left -= len(alive) * len(self.boxes[clause])
            rest = tuple(b for x in alive for y in self.boxes[clause] if (b := meet(x, y)) is not None)
            if not rest:
                self._record((*chosen, clause))
                continue
            following = [c for c in allowed if c is not clause and c in self._partners(clause)]
            if following:
                self._grow((*chosen, clause), rest, common, following)

    def _useful(self, clause: Clause, box: Box) -> bool:
        """Kills the box alone, or cuts it into pieces."""
        boxes = self.boxes[clause]
        touching = [b for b in boxes if not disjoint(b, box)]
        return not touching or (len(boxes) > 1 and any(meet(b, box) != box for b in touching))

    def _record(self, clauses: Core) -> None:
        core = self._shrunk(clauses)
        if len(core) >= 3 and not any(set(core) == set(old) for old in self.found):
            self.found.append(tuple(sorted(core, key=self.order.__getitem__)))

    def _shrunk(self, clauses: Core) -> Core:
        core = list(clauses)
        for clause in clauses:
            rest = [c for c in core if c is not clause]
            if len(rest) >= 2 and not self._possible(rest):
                core = rest
        return tuple(core)

    def _possible(self, clauses: list[Clause]) -> bool:
        alive: list[Box] = [{}]
        for clause in clauses:
            alive = [b for x in alive for y in self.boxes[clause] if (b := meet(x, y)) is not None]
        return bool(alive)
