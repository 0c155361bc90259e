"""What a conversion could not carry over, said field by field."""

import json
from collections import Counter
from dataclasses import dataclass
from typing import Literal

Kind = Literal["dropped", "approximated", "inferred"]


@dataclass(frozen=True)
class Loss:
    """One field that the target does not hold as the source had it."""

    path: str
    """Place in the source, e.g. ``theorems/th.concise`` or ``2/criteria/0``."""
    field: str
    kind: Kind
    """Left out; changed; or filled in from something that the source did not say outright."""
    detail: str = ""


@dataclass(frozen=True)
class LossReport:
    """All losses of one conversion, in the order of the source."""

    losses: tuple[Loss, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether nothing was lost."""
        return not self.losses

    def __add__(self, other: "LossReport") -> "LossReport":
        return LossReport(self.losses + other.losses)

    def as_json(self) -> str:
        """JSON, one object a loss."""
        rows = [vars(loss) for loss in self.losses]
        return json.dumps({"schema": "atr-losses/1", "losses": rows}, indent=1, ensure_ascii=False) + "\n"

    def text(self, limit: int = 20) -> str:
        """Counts by kind, then the first ``limit`` losses."""
        if self.empty:
            return "nothing lost"
        counts = Counter(loss.kind for loss in self.losses)
        lines = [", ".join(f"{n} {kind}" for kind, n in sorted(counts.items()))]
        for loss in self.losses[:limit]:
            place = f"{loss.path or 'file'}: {loss.field}".rstrip(": ")
            lines.append(f"  {loss.kind:<12} {place}" + (f": {loss.detail}" if loss.detail else ""))
        more = len(self.losses) - limit
        return "\n".join([*lines, *([f"  and {more} more"] if more > 0 else [])])


def shown(value: object, limit: int = 80) -> str:
    """``repr`` cut to ``limit`` characters."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
