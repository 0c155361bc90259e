"""Sampling turns of live episodes from a transformers model, with keys and values kept across turns.

Each row goes on when its own turn ends: a step feeds every row what it has, the token that it sampled last or
with it the ids that its environment answered.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axiomrm.policy_opt.engines.live_rows import Generation as Generation
from axiomrm.policy_opt.engines.live_rows import LiveRows, Sampling, Turn, sample
from axiomrm.policy_opt.engines.packed_reader import PackedReader, reads_packed
from axiomrm.policy_opt.engines.padded_reader import PaddedReader
from axiomrm.rm.engines.judging import evaluating

PASS_TOKENS = 4096
"""Ids that a pass takes at most beyond one of each row; longer prompts take several passes."""


class Sampler(Protocol):
    """What rollouts need from a model."""

    temperature: float

    def open(self, n: int) -> LiveRows:
        """``n`` empty rows."""
        ...


class TransformersSampler:
    """Samples from a transformers model in this process; the weights are the trainer's own."""

    def __init__(
        self, model: Any, end_ids: frozenset[int], *, temperature: float = 1.0, greedy: bool = False
    ) -> None:
        self.model = model
        self.end_ids = end_ids
        self.temperature = temperature
        self.greedy = greedy
        """Arg-max instead of a draw; for evaluation only, its log-probs are no behaviour policy."""

    def open(self, n: int) -> "TransformersRows":
        """``n`` empty rows; the weights stay as they are while they are used."""
        reader = (PackedReader if self._packed else PaddedReader)(self.model, n)
        return TransformersRows(self.model, n, reader, Sampling(self.end_ids, self.temperature, self.greedy))

    @cached_property
    def _packed(self) -> bool:
        return reads_packed(self.model)


class TransformersRows:
    """The live batch of a ``TransformersSampler``."""

    def __init__(self, model: Any, n: int, reader: PackedReader | PaddedReader, how: Sampling) -> None:
        """``n`` empty rows, in as many slots of ``reader``."""
        self._model, self._reader, self._how = model, reader, how
        self._rows = list(range(n))
        """The row of each slot in use."""
        self._new: list[list[int]] = [[] for _ in range(n)]
        """Ids of each row that the model has not read."""
        self._turns: dict[int, Turn] = {}

    def feed(self, row: int, new_ids: Sequence[int], uniforms: NDArray[np.float64]) -> None:
        """See ``LiveRows.feed``."""
        self._new[row] += new_ids
        self._turns[row] = Turn(uniforms)

    def step(self) -> list[tuple[int, Generation]]:
        """See ``LiveRows.step``."""
        ended: list[tuple[int, Generation]] = []
        with torch.no_grad(), evaluating(self._model):
            while self._turns and (self._reader.together or not ended):
                ended += self._pass()
        return ended

    def fork(self, row: int) -> None:
        """See ``LiveRows.fork``."""
        self._reader.forget(self._rows.index(row))
        self._new[row] = []

    def drop(self, row: int) -> None:
        """See ``LiveRows.drop``."""
        slot = self._rows.index(row)
        self._reader.free(slot)
        self._rows[slot] = self._rows[-1]
        self._rows.pop()
        self._turns.pop(row, None)

    def _pass(self) -> list[tuple[int, Generation]]:
        """Feed every row what it has, and sample where that was all; the turns that ended."""
        bring: list[list[int]] = []
        room = PASS_TOKENS
        for row in self._rows:
            bring.append(self._new[row][: room + 1] if row in self._turns else [])
            self._new[row] = self._new[row][len(bring[-1]) :]
            room -= max(0, len(bring[-1]) - 1)
        hidden = self._reader.read(bring)
        fed = [row for row, ids in zip(self._rows, bring, strict=True) if ids]
        ready = [place for place, row in enumerate(fed) if not self._new[row]]
        return self._sample([fed[place] for place in ready], hidden[ready])

    def _sample(self, rows: list[int], hidden: Tensor) -> list[tuple[int, Generation]]:
        """Each of these rows' next token, by their last states."""
        turns = [self._turns[row] for row in rows]
        uniforms = torch.tensor([turn.draws[len(turn.token_ids)] for turn in turns], dtype=torch.float64)
        chosen, logps = sample(self._reader.logits(hidden), uniforms.to(hidden.device), self._how)
        ended = []
        for row, turn, token, logp in zip(rows, turns, chosen.tolist(), logps.tolist(), strict=True):
            self._new[row] = [token]  # read next, with what follows it
            generation = turn.add(token, logp, self._how.end_ids)
            if generation is not None:
                ended.append((row, generation))
                del self._turns[row]
        return ended
