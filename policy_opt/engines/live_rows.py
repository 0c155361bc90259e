"""What rollouts ask of a sampler: episodes in flight, each a row that grows at its end."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axiomrm.errors import DataError


@dataclass(frozen=True)
class Generation:
    """One sampled turn."""

    token_ids: list[int]
    logprobs: list[float]
    """Of the sampled ids, at the sampling temperature."""
    stop_reason: Literal["stop", "length"]


class LiveRows(Protocol):
    """Episodes in flight on one sampler; each is a row, known by its number from 0."""

    def feed(self, row: int, new_ids: Sequence[int], uniforms: NDArray[np.float64]) -> None:
        """Append ``new_ids`` to a row and have its next turn sampled, of 1 to ``len(uniforms)`` tokens.

        A row is fed again when :meth:`step` has handed out its turn.
        """
        ...

    def step(self) -> list[tuple[int, Generation]]:
        """Sample until a turn ends: all that did, with their rows. Empty where none is being sampled."""
        ...

    def fork(self, row: int) -> None:
        """Forget the row's past: the next ``new_ids`` carry its whole prompt."""
        ...

    def drop(self, row: int) -> None:
        """Free what the row holds; it is not fed again."""
        ...


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn, and which end a turn."""

    end_ids: frozenset[int]
    temperature: float
    greedy: bool


@dataclass
class Turn:
    """A turn that is being sampled."""

    draws: NDArray[np.float64]
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    def add(self, token: int, logprob: float, end_ids: frozenset[int]) -> Generation | None:
        """Take a sampled token; the whole turn where it was the last one."""
        self.token_ids.append(token)
        self.logprobs.append(logprob)
        if token in end_ids:
            return Generation(self.token_ids, self.logprobs, "stop")
        if len(self.token_ids) == len(self.draws):
            return Generation(self.token_ids, self.logprobs, "length")
        return None


def sample(logits: Tensor, uniforms: Tensor, how: Sampling) -> tuple[Tensor, Tensor]:
    """A token of each row of ``logits`` ``(N, vocabulary)``, and its log-prob at the temperature.

    The token is the first whose cumulative probability passes the row's uniform, or the most likely one.

    Raises:
        DataError: a row has no probabilities, because its logits are no finite numbers at the temperature.
    """
    logits = logits.float() / how.temperature
    logps = torch.log_softmax(logits, dim=-1)
    if how.greedy:
        chosen = logits.argmax(-1)
    else:
        cumulative = logps.double().exp().cumsum(-1)
        threshold = (uniforms * cumulative[:, -1])[:, None]
        found = torch.searchsorted(cumulative, threshold, right=True).squeeze(1)
        chosen = found.clamp(max=logits.shape[-1] - 1)
    found_logps = logps.gather(1, chosen[:, None]).squeeze(1)
    if bool(found_logps.isnan().any()):
        raise DataError(
            f"sampling at temperature {how.temperature:g}: the model's logits are no finite numbers; "
            "its weights have diverged, or the temperature is too low"
        )
    return chosen, found_logps
