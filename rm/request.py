"""What is asked of a judge, and how."""

from dataclasses import dataclass
from typing import Literal, get_args

from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError
from axiomrm.rm.prompt import Criterion, Mode, View
from axiomrm.rm.readout import NEVER, X_THRESHOLD, Readout, Rule

Overflow = Literal["fail", "elide"]


@dataclass(frozen=True)
class VerdictRequest:
    """One criterion on one unit."""

    trajectory: Trajectory
    criterion: Criterion
    turn: int | None = None
    """0-based; ``None``: the whole conversation."""
    guidelines: str = ""
    votes: int = 1
    """Samples; a direct reading of probabilities is one pass whatever it says."""
    view: View | None = None
    """What the judge of a turn sees; ``None``: what ``Asking.turn_view`` says."""
    mode: Mode | None = None
    """Counts where ``Asking.mode`` is not set; ``None``: ``direct`` there."""
    majority: bool = False
    """Several readings vote (axioms, see ``axiomrm.rm.voting``) instead of being averaged over."""

    def __post_init__(self) -> None:
        if type(self.votes) is not int or self.votes < 1:
            raise ConfigError(f"votes {self.votes!r} must be a whole number from 1 on")


@dataclass(frozen=True)
class Asking:
    """How requests are asked and read."""

    mode: Mode | None = None
    """``None``: as each request says, ``direct`` where it says nothing."""
    readout: Readout = "expected"
    min_mass: float = 0.8
    untrained: bool = False
    """The model was never trained as a judge: every verdict carries the flag ``untrained_judge``, and the
    probability of X is reported but decides nothing."""
    temperature: float = 0.7
    max_notes_tokens: int = 96
    seed: int = 0
    joint: int = 1
    """Criteria of one unit asked in one prompt, at most. 1: each alone."""
    overflow: Overflow = "fail"
    """A prompt that is too long fails, or (``elide``) its oldest tool outputs give way to a visible mark."""
    turn_view: View = "causal"
    """Whether the judge of a turn sees the later turns (``hindsight``, for audits: it leaks the outcome)."""
    adapter: str = "own"
    """Whose prompt and answer form: a key of :data:`axiomrm.rm.foreign_judges.ADAPTERS`."""

    def __post_init__(self) -> None:
        if self.joint < 1:
            raise ConfigError(f"joint {self.joint!r} must be at least 1 (1 = each criterion alone)")
        for name, kinds in (("overflow", Overflow), ("turn_view", View)):
            if (found := getattr(self, name)) not in get_args(kinds):
                raise ConfigError(f"{name} {found!r} must be one of {list(get_args(kinds))}")

    @property
    def rule(self) -> Rule:
        """How readings become verdicts."""
        x_threshold = NEVER if self.untrained else X_THRESHOLD
        return Rule(self.min_mass, self.readout, self.mode or "direct", x_threshold)

    @property
    def revision(self) -> dict[str, str | int]:
        """The settings that make another judge of the same model; part of the judge revision."""
        names = ("mode", "readout", "joint", "overflow", "turn_view", "adapter")
        return {name: getattr(self, name) for name in names} | {"mode": self.mode or "direct"}
