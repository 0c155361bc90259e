"""The optimizer of judge training: AdamW, or Muon for the hidden matrices and AdamW for the rest."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from axiomrm.rm.training.muon import Muon

Kind = Literal["adamw", "muon"]


class Together(torch.optim.Optimizer):
    """Several optimizers over disjoint parameters as one, so that schedulers and checkpoints see one."""

    def __init__(self, parts: Iterable[torch.optim.Optimizer]) -> None:
        self.parts = list(parts)
        groups = [group for part in self.parts for group in part.param_groups]
        super().__init__(groups, {})
        self._share_groups()

    def _share_groups(self) -> None:
        # The very groups of the parts: a learning rate that a scheduler sets here reaches them.
        self.param_groups = [group for part in self.parts for group in part.param_groups]

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step of each part; ``closure`` is not supported."""
        if closure is not None:
            raise ValueError("this optimizer takes no closure")
        for part in self.parts:
            part.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients."""
        for part in self.parts:
            part.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The parts' states, in order."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """What `state_dict` gave."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self._share_groups()


def make_optimizer(
    model: nn.Module, kind: Kind, *, learning_rate: float, weight_decay: float
) -> torch.optim.Optimizer:
    """An optimizer over the trainable parameters of ``model``.

    Args:
        model: adapters or the whole model.
        kind: ``adamw``, or ``muon`` for matrices of hidden layers with AdamW for embeddings, head, norms
            and biases.
        learning_rate: peak, before the schedule.
        weight_decay: decoupled; none on vectors.
    """
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    if kind == "adamw":
        return torch.optim.AdamW(_decayed((p for _, p in named), weight_decay), lr=learning_rate)
    hidden = [p for name, p in named if p.dim() == 2 and not _is_vocabulary(name)]
    rest = [p for name, p in named if p.dim() != 2 or _is_vocabulary(name)]
    muon = Muon(hidden, learning_rate, weight_decay=weight_decay)
    return Together([muon, torch.optim.AdamW(_decayed(rest, weight_decay), lr=learning_rate)])


def _is_vocabulary(name: str) -> bool:
    return "embed" in name or "lm_head" in name


def _decayed(parameters: Iterable[Tensor], weight_decay: float) -> list[dict[str, Any]]:
    found = list(parameters)
    groups = [
        {"params": [p for p in found if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in found if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
