"""Settings of one training stage."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from axiomrm.data.settings import LONG, MANY, Rate, Settings

WIDE = 65_536
"""Greatest rank: models are narrower, and adapters of such a rank are larger than what they adapt."""


def _ordered(sizes: tuple[int, int]) -> tuple[int, int]:
    if not 2 <= sizes[0] <= sizes[1]:
        raise ValueError("expected two numbers from 2 on, the smaller one first")
    return sizes


JointSize = Annotated[tuple[int, int], AfterValidator(_ordered)]
"""Fewest and most questions of a joint row."""


class LoraSettings(Settings):
    """Low-rank adapters on all linear layers but the head; merged into the weights at the end."""

    rank: int = Field(default=16, ge=1, le=WIDE)
    alpha: float = Field(default=32, gt=0)
    dropout: float = Field(default=0, ge=0, lt=1)
    last_layers: int | None = Field(default=None, ge=1)
    """Adapters only in so many layers, counted from the last: the backward pass stops below them."""


class StageConfig(Settings):
    """How one stage turns examples into a judge; sizes are starting values, to be tuned on held-out data."""

    stage: str = "rm.general"
    """Name in the judge card: ``rm.general``, ``rm.rubric``, ``rm.personal``."""
    template: str = "default"
    secret: str = "axiomrm-training"
    """Key of the training nonces."""
    direct_share: float = Field(default=0.5, ge=0, le=1)
    joint_share: float = Field(default=0.0, ge=0, le=1)
    """Examples asked together with others about their unit, as ``RewardModel`` does with ``joint``."""
    joint_size: JointSize = (2, 8)
    """Fewest and most questions of such a row."""
    label_weight: float = Field(default=1.0, gt=0)
    """How much a label token counts in the loss beside a note token; a verdict is one token of thirty."""
    max_tokens: int = Field(default=2048, ge=8, le=LONG)
    """Longest row; a longer one is dropped and counted."""
    packing: Literal["auto", "tree", "off"] = "auto"
    """``auto``: trees where a probe shows that the model reads a packed row as it reads its parts."""
    row_tokens: int = Field(default=768, ge=8, le=LONG)
    """Size up to which a tree takes rows; dense attention makes larger ones cost more than they save."""
    batch_tokens: int = Field(default=4096, ge=8, le=LONG)
    """Padded tokens of a forward pass."""
    accumulate: int = Field(default=1, ge=1)
    """Forward passes an optimizer step."""
    epochs: float = Field(default=1, gt=0, le=MANY)
    max_steps: int | None = Field(default=None, ge=1)
    """Stop earlier; the learning-rate schedule ends there."""
    max_train_tokens: int | None = Field(default=None, ge=1)
    """Stop after about this many tokens (whole steps, at the mean batch size)."""
    learning_rate: Rate = 2e-4
    optimizer: Literal["adamw", "muon"] = "adamw"
    """``muon``: orthogonalised steps for the matrices of hidden layers, AdamW for all else."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_share: float = Field(default=0.05, ge=0, lt=1)
    weight_decay: float = Field(default=0, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    precision: Literal["fp32", "bf16"] = "fp32"
    lora: LoraSettings | None = None
    gradient_checkpointing: bool = False
    save_steps: int = Field(default=100, ge=1)
    log_steps: int = Field(default=10, ge=1)
    seed: int = 0
    min_mass: float = Field(default=0.8, ge=0, le=1)
    """Written into the judge card."""
