"""Reward sources as ``policy.reward`` in YAML names them: a union on ``kind``."""

from typing import Annotated, Literal

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
