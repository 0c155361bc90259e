"""Which known name a mistyped one stands for: only near mistypings, and none where two are equally near."""

from collections.abc import Iterable

MOST = 2
"""Edits, and at most a third of the longer name's length."""


def near(typed: str, known: Iterable[str]) -> str | None:
    """The one nearest known name within the bounds; ``None``: there is none, or there are two."""
    found = sorted(
        (distance, name)
        for name in set(known)
        if (distance := edits(typed, name)) <= min(MOST, max(len(typed), len(name)) // 3)
    )
    if not found or (len(found) > 1 and found[0][0] == found[1][0]):
        return None
    return found[0][1]


def edits(left: str, right: str) -> int:
    """Insertions, deletions, replacements and swaps of neighbours (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        above, row = row, [i]
        for j, b in enumerate(right, 1):
            cost = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before = above
    return row[-1]
