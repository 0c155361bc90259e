"""Splits that keep a group (a prompt, a dialogue, a task) on one side.

The side is a hash of seed and group: it does not depend on the order or on the other items, so adding data
never moves an item from one side to another. The price: shares are met on average over groups, not exactly.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from axiomrm.data.trajectory import PreferencePair, Trajectory
from axiomrm.errors import ConfigError, DataError

T = TypeVar("T")


def group_of(item: object) -> str:
    """The split key: ``group`` of a pair, ``group_id``, ``task_id`` or ``task.id`` of a
    trajectory; or else the ``id``.

    Raises:
        DataError: none of them is set, or ``item`` is something else (pass ``split_by_group`` a ``key``).
    """
    match item:
        case PreferencePair():
            group = item.group or item.id
        case Trajectory():
            group = item.group
        case _:
            raise DataError(f"a split of {type(item).__name__} objects needs a key function")
    if not group:
        raise DataError(f"cannot split: no group and no id on {item!r:.200}")
    return group


def split_by_group(
    items: Iterable[T],
    shares: Mapping[str, float],
    seed: int,
    *,
    key: Callable[[T], str] = group_of,
) -> dict[str, list[T]]:
    """Deal ``items`` to the sides named in ``shares``, whole groups at a time, in their order.

    Args:
        items: pairs and trajectories; anything else with ``key``.
        shares: side to its share, each > 0, summing to 1, like ``{"train": 0.75, "test": 0.25}``.
        seed: another seed is another split.
        key: the group of an item.

    Raises:
        ConfigError: the shares cannot be used.
        DataError: an item has no group.
    """
    if (
        not shares
        or any(not share > 0 for share in shares.values())
        or not math.isclose(sum(shares.values()), 1)
    ):
        raise ConfigError(f"shares {dict(shares)!r} must each be > 0 and sum to 1")
    sides: dict[str, list[T]] = {side: [] for side in shares}
    for item in items:
        sides[_side(key(item), shares, seed)].append(item)
    return sides


def _side(group: str, shares: Mapping[str, float], seed: int) -> str:
    digest = hashlib.sha256(f"{seed}\0{group}".encode()).digest()
    place = int.from_bytes(digest[:8], "big") / 2**64
    for side, share in shares.items():
        place -= share
        if place < 0:
            return side
    return list(shares)[-1]  # rounding: the shares sum to a hair below 1
