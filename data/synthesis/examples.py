"""Judge training examples before any prompt is rendered: a question about a unit, and the right answer."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from axiomrm.data.trajectory import Trajectory


@dataclass(frozen=True)
class JudgeExample:
    """One question about one unit with its answer."""

    trajectory: Trajectory
    turn: int | None
    """0-based; ``None``: the whole conversation."""
    criterion_id: str
    ask: str
    """The question as the judge reads it."""
    label: str
    """``Y``, ``N`` or ``X`` (the recording does not tell) for binary questions; else a level or letter."""
    notes: str = ""
    """A correct critique; empty: only a direct row can be made."""
    quotes: tuple[tuple[int, str], ...] = ()
    """0-based turn and words copied from it."""
    labels: tuple[str, ...] = ("Y", "N")
    """Legal labels without X."""
    weight: float = 1.0
    source: str = ""
    """``oracle``, ``human``, ``pair`` …; counted in the checkpoint manifest."""
    tags: tuple[str, ...] = field(default=())
    """``surface``, ``relational``, ``personal`` …"""


def by_trajectory(examples: Iterable[JudgeExample]) -> dict[str, list[JudgeExample]]:
    """Examples grouped by trajectory (id and content), in order of first appearance."""
    groups: dict[str, list[JudgeExample]] = {}
    for example in examples:
        groups.setdefault(f"{example.trajectory.id}/{example.trajectory.content_hash}", []).append(example)
    return groups
