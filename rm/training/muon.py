"""Muon: momentum, made orthogonal (Jordan et al. 2024; scaled as in arXiv:2502.16982).

    M ← μ·M + (1 − μ)·G      U = (1 − μ)·G + μ·M      W ← (1 − η·λ)·W − η·0.2·√max(r, c)·orth(U)

with ``orth`` by five steps of the quintic Newton–Schulz iteration and the last factor so chosen that an
update has the root mean square of one of AdamW's, whose learning rates then serve.

Deviations from ``torch.optim.Muon`` (2.13), which has the same formulas:
1. The iteration runs in the parameters' own precision, not in bfloat16: eight times faster on a CPU without
   bfloat16 units, where it would otherwise cost more than the backward pass.
2. Matrices of one shape are iterated as one batch.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

A, B, C = 3.4445, -4.7750, 2.0315
"""Coefficients of the iteration."""
STEPS = 5
_TINY = 1e-7


class Muon(torch.optim.Optimizer):
    """For matrices of hidden layers; embeddings, heads and vectors belong to another optimizer."""

    def __init__(
        self, params: Iterable[Tensor], lr: float, *, momentum: float = 0.95, weight_decay: float = 0.0
    ) -> None:
        matrices = list(params)
        for matrix in matrices:
            if matrix.dim() != 2:
                raise ValueError(f"Muon takes matrices, this parameter has shape {tuple(matrix.shape)}")
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One update of every matrix that has a gradient; takes no closure."""
        if closure is not None:
            raise ValueError("Muon takes no closure")
        with torch.no_grad():
            for group in self.param_groups:
                self._update(group)

    def _update(self, group: dict[str, Any]) -> None:
        matrices = [p for p in group["params"] if p.grad is not None]
        updates = orthogonal([self._nesterov(p, group["momentum"]) for p in matrices])
        for matrix, update in zip(matrices, updates, strict=True):
            matrix.mul_(1 - group["lr"] * group["weight_decay"])
            matrix.sub_(update, alpha=group["lr"] * 0.2 * max(matrix.shape) ** 0.5)

    def _nesterov(self, matrix: Tensor, momentum: float) -> Tensor:
        state: dict[str, Any] = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        gradient, buffer = matrix.grad, state["momentum_buffer"]
        assert gradient is not None
        buffer.lerp_(gradient, 1 - momentum)
        return gradient.lerp(buffer, momentum)


def orthogonal(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Matrices with the singular vectors of ``matrices`` and singular values near 1.

    Args:
        matrices: each ``(r, c)``, of any shapes.

    Returns:
        In order, in the shapes and precision given. Singular values land between about 0.7 and 1.2.
    """
    wide = [m if m.shape[0] <= m.shape[1] else m.T for m in matrices]
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for i, m in enumerate(wide):
        by_shape.setdefault(tuple(m.shape), []).append(i)
    found: list[Tensor] = list(matrices)
    for places in by_shape.values():
        for i, x in zip(places, _newton_schulz(torch.stack([wide[i] for i in places])), strict=True):
            found[i] = x if matrices[i].shape == x.shape else x.T
    return found


def _newton_schulz(x: Tensor) -> Tensor:
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=_TINY)
    for _ in range(STEPS):
        gram = x @ x.mT
        polynomial = torch.baddbmm(gram, gram, gram, beta=B, alpha=C)
        x = torch.baddbmm(x, polynomial, x, beta=A)
    return x
