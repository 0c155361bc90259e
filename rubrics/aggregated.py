"""What an aggregation gives."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Contribution:
    """What one criterion did."""

    id: str
    polarity: Literal["reward", "penalty"]
    weight: float
    """Final weight, after the personal share."""
    lo: float
    hi: float
    point: float | None
    """``None``: no point, so it is left out of the mean."""
    amount: float
    """Its part of the unclipped value (net) or of Σw⁺v − Σw⁻p (signed); 0 without a point."""
    coverage: float
    """Share that was Scored."""
    personal: bool = False


@dataclass(frozen=True)
class Aggregate:
    """The result of one aggregation."""

    reward: float | None
    """``None``: abstain; no gradient, left out of means, counted."""
    interval: tuple[float, float]
    """Where the reward lies whatever the missing verdicts turn out to be."""
    coverage: float
    gate: float | None
    """``None``: unknown, a serving gate must block."""
    violated_axioms: tuple[str, ...]
    contributions: tuple[Contribution, ...]
    reason: str = ""
    """Why the reward is missing."""
    base: float | None = None
    unclipped: float | None = None
    """m⁺ − (W⁻/W⁺)·m⁻ before clipping and gating (signed: Σw⁺v − Σw⁻p); ``None`` if a mean is missing."""
    generic: float | None = None
    """Part of ``unclipped`` that generic items gave."""
    personal: float | None = None
    share: float = 0.0
    """λ as used."""
    assumed_axioms: tuple[str, ...] = ()
    """Count as violated because they could not be assessed."""
    hard_violated: bool = False

    @property
    def rank_key(self) -> tuple[bool, float, float] | None:
        """No hard violation, gate, base; ``None`` if abstaining. Between the first and the others a ranking
        looks at the reward."""
        if self.reward is None or self.gate is None or self.base is None:
            return None
        return (not self.hard_violated, self.gate, self.base)

    @property
    def passes_gate(self) -> bool:
        """What a serving gate asks: known, and fully open. Unknown blocks."""
        return self.gate == 1.0
