"""Token rows of one training set, what they ask, and which examples made none."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from axiomrm.rm.prompt import Mode

DropReason = Literal["too_long", "identical", "bad_input"]
IGNORED = -100
"""Label of a token that is not trained, as torch and transformers have it."""


class Item(NamedTuple):
    """One question of a row."""

    criterion_id: str
    label: str
    at: int
    """Index of its label token."""


@dataclass(frozen=True)
class JudgeRow:
    """One question with its answer, or several in a joint row, as ids."""

    input_ids: tuple[int, ...]
    completion_mask: tuple[int, ...]
    """1 = trained."""
    label_at: int
    """Index of the (first) label token."""
    mode: Mode
    criterion_id: str = ""
    label: str = ""
    source: str = ""
    unit: str = ""
    """Rows with equal units show recordings that start alike, so they can share a prefix."""
    weight: float = 1.0
    label_weight: float = 1.0
    """How much a label token counts beside any other trained token."""
    others: tuple[Item, ...] = ()
    """The questions of a joint row after the first."""

    @property
    def items(self) -> tuple[Item, ...]:
        """Every question, in the order of the prompt."""
        return (Item(self.criterion_id, self.label, self.label_at), *self.others)

    @property
    def start(self) -> int:
        """Index of the first trained token; what stands before it is the prompt."""
        return self.completion_mask.index(1)


@dataclass(frozen=True)
class Dropped:
    """An example that made no row."""

    index: int
    """Its place among the examples."""
    reason: DropReason
    detail: str


@dataclass
class RowSet:
    """Rows and what became of the other examples."""

    rows: list[JudgeRow] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    _seen: set[tuple[int, ...]] = field(default_factory=set, repr=False, compare=False)

    def drop(self, members: Sequence[int], reason: DropReason, detail: str) -> None:
        """Count the examples of a row that was not made."""
        self.dropped += [Dropped(index, reason, detail) for index in members]

    def take(self, members: Sequence[int], row: JudgeRow, max_tokens: int) -> None:
        """Keep the row of some examples unless it is too long or its ids are there already."""
        if len(row.input_ids) > max_tokens:
            detail = f"{len(row.input_ids)} tokens, at most {max_tokens}"
            self.drop(members, "too_long", detail)
        elif row.input_ids in self._seen:
            self.drop(members, "identical", "an earlier row has the same ids")
        else:
            self._seen.add(row.input_ids)
            self.rows.append(row)

    @property
    def direct_share(self) -> float | None:
        """Real share of direct rows; ``None``: no rows."""
        return sum(row.mode == "direct" for row in self.rows) / len(self.rows) if self.rows else None

    @property
    def joint_share(self) -> float | None:
        """Real share of the questions that stand in joint rows; ``None``: no rows."""
        sizes = [len(row.items) for row in self.rows]
        return sum(size for size in sizes if size > 1) / sum(sizes) if sizes else None

    def counts(self) -> dict[str, dict[str, int]]:
        """Rows by mode, source and size, questions by label and criterion, dropped examples by reason."""
        items = [item for row in self.rows for item in row.items]
        return {
            "mode": dict(Counter(row.mode for row in self.rows)),
            "source": dict(Counter(row.source for row in self.rows)),
            "questions": dict(Counter(str(len(row.items)) for row in self.rows)),
            "label": dict(Counter(item.label for item in items)),
            "criterion_id": dict(Counter(item.criterion_id for item in items)),
            "dropped": dict(Counter(d.reason for d in self.dropped)),
        }

    def data_hash(self) -> str:
        """SHA-256 over ids, masks and weights, in order."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(repr((row.input_ids, row.completion_mask, row.weight)).encode())
        return digest.hexdigest()
