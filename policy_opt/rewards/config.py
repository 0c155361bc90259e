"""Reward sources as ``policy.reward`` in YAML names them: a union on ``kind``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from axiomrm.data.settings import Settings

TRAINED = "trained"
"""Name of the last judge of a run, beside folders and hub ids."""


class VerifierReward(Settings):
    """The environment's outcome alone; no turn rewards."""

    kind: Literal["verifier"] = "verifier"


class RubricJudgeReward(Settings):
    """A judge asked a rubric's questions about every turn and every dialogue."""

    kind: Literal["rubric_judge"] = "rubric_judge"
    rubric: str = "service_desk_steps"
    """Library name or YAML file."""
    judge: str = TRAINED
    """``trained``: the last judge of this run; else a checkpoint folder or hub id."""
    level: Literal["turn", "trajectory", "both"] = "both"


class ProgrammaticReward(Settings):
    """A rubric whose items need no model, e.g. ``code_agent`` or, a turn, ``process_shaping``."""

    kind: Literal["programmatic"] = "programmatic"
    rubric: str
    level: Literal["turn", "trajectory", "both"] = "both"


class LabelsReward(Settings):
    """Labels of people (RLHF) or of another model (RLAIF) from a file, see `reward_labels`."""

    kind: Literal["labels"] = "labels"
    path: str
    source: Literal["any", "human", "ai"] = "any"


class PersonalRewardConfig(Settings):
    """A judge asked each user's own rubric, on that user's own scale, see `reward_personal`."""

    kind: Literal["personal"] = "personal"
    profiles: str
    """JSONL: ``{"subject": token, "slots": {…}, "policy_training": true}`` a line."""
    rubric: str = "service_desk_steps"
    judge: str = TRAINED


class DeskOracleReward(Settings):
    """For studies on ``service_desk``: the oracle, flipped at a rate, or paying for filler."""

    kind: Literal["desk_oracle"] = "desk_oracle"
    noise: float = Field(default=0.0, ge=0, le=1)
    """Share of turns whose reward is flipped."""
    filler_pay: float = Field(default=0.0, ge=0, le=1)
    """Weight of polite filler in the reward; what is left goes to the right step. 0: honest."""
    seed: int = 0


class CompositeReward(Settings):
    """A weighted sum of sources; a missing part makes the sum missing."""

    kind: Literal["composite"] = "composite"
    parts: dict[str, "RewardConfig"] = Field(min_length=1)
    weights: dict[str, float]
    """One for each part."""

    @model_validator(mode="after")
    def _one_weight_each(self) -> "CompositeReward":
        if set(self.parts) != set(self.weights):
            raise ValueError(
                f"parts {sorted(self.parts)!r} and weights {sorted(self.weights)!r} must name the same things"
            )
        return self


RewardConfig = Annotated[
    VerifierReward
    | RubricJudgeReward
    | ProgrammaticReward
    | LabelsReward
    | PersonalRewardConfig
    | DeskOracleReward
    | CompositeReward,
    Field(discriminator="kind"),
]
CompositeReward.model_rebuild()


def not_held_out(reward: RewardConfig, heldout: RewardConfig) -> str | None:
    """The part of ``reward`` that ``heldout`` asks too, as its key below ``reward``; ``None``: there is none.

    A source is the same whatever its ``level``, and a rubric that needs no model gives the same numbers with
    and without a judge. The verifier does not count (outcomes are looked at anyway), nor does a part without
    weight.
    """
    asked = [source for _, source in _sources(heldout, "")]
    return next((key for key, mine in _sources(reward, "reward") if any(_same(mine, s) for s in asked)), None)


def _sources(config: RewardConfig, key: str) -> Iterator[tuple[str, RewardConfig]]:
    if isinstance(config, CompositeReward):
        for name, part in config.parts.items():
            if config.weights[name] != 0:
                yield from _sources(part, f"{key}.parts.{name}")
    elif not isinstance(config, VerifierReward):
        yield key, config


def _same(a: RewardConfig, b: RewardConfig) -> bool:
    if isinstance(a, RubricJudgeReward | ProgrammaticReward) and a.kind != b.kind:
        return isinstance(b, RubricJudgeReward | ProgrammaticReward) and Path(a.rubric) == Path(b.rubric)
    return a.kind == b.kind and _identity(a) == _identity(b)


def _identity(config: RewardConfig) -> dict[str, Any]:
    files = ("rubric", "judge", "path", "profiles")
    fields = config.model_dump(exclude={"level"})
    return {name: Path(value) if name in files else value for name, value in fields.items()}
