"""The verdict contract: one criterion on one unit gives exactly one of Scored, CannotAssess, Failed.

It lives in the lowest room because rubrics (programmatic judges, aggregation), the judge and replay
all speak it. A failure is never a number: neither ``CannotAssess`` nor ``Failed`` has a value.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

FailureKind = Literal[
    "timeout",
    "unreachable",
    "rate_limited",
    "engine_error",
    "cancelled",
    "infrastructure",
    "context_overflow",
    "bad_input",
    "no_verdict",
    "illegal_label",
    "truncated",
    "low_mass",
    "incomplete",
    "refused",
    "no_logprobs",
]
RETRYABLE: frozenset[FailureKind] = frozenset(
    {"timeout", "unreachable", "rate_limited", "engine_error", "infrastructure"}
)
"""Kinds for which the same request may succeed later."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Evidence(_Value):
    """One quote of a critique and whether it stands where the critique says."""

    turn: int
    """0-based index into ``trajectory.turns``."""
    quote: str
    status: Literal["verified", "wrong_turn", "absent"]


class Scored(_Value):
    """A verdict with a value, before polarity, weight or veto."""

    status: Literal["scored"] = "scored"
    value: float = Field(ge=0, le=1)
    label: str = ""
    distribution: dict[str, float] = Field(default_factory=dict)
    """Label to probability, without the cannot-assess label, summing to 1."""
    captured_mass: float | None = Field(default=None, ge=0, le=1 + 1e-6)
    """Full-vocabulary probability of all legal labels; ``None``: not a model's verdict."""
    critique: str = ""
    evidence: tuple[Evidence, ...] = ()
    p_na: float | None = None
    spread: float | None = None
    """Standard deviation over critiques; ``None`` for a single reading."""
    interval: tuple[float, float] | None = None
    """Where a person's value lies at the calibrator's level; ``None``: no calibrator gives one."""
    mode: Literal["direct", "critique", "programmatic", "constraint"] = "direct"
    readout: Literal["expected", "argmax", "sampled", "exact"] = "expected"
    n: int = 1
    flags: tuple[str, ...] = ()


class CannotAssess(_Value):
    """The recording lacks what the question needs: an answer, not an error."""

    status: Literal["cannot_assess"] = "cannot_assess"
    reason: str = ""
    p_na: float | None = None
    critique: str = ""
    flags: tuple[str, ...] = ()


class Failed(_Value):
    """No verdict exists."""

    status: Literal["failed"] = "failed"
    kind: FailureKind
    detail: str = ""

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.kind in RETRYABLE


Verdict = Annotated[Scored | CannotAssess | Failed, Field(discriminator="status")]
