"""Reads the new tokens of many live rows in one pass, side by side and without padding."""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from axiomrm.policy_opt.engines.row_slots import Pass, RowSlots
from axiomrm.policy_opt.logprobs import trunk_and_head
from axiomrm.rm.engines.branching import attending, configs_of
from axiomrm.rm.engines.judging import evaluating
from axiomrm.rm.engines.linears import by_onednn, plain_linears
from axiomrm.rm.engines.model_facts import plain_attention

log = logging.getLogger(__name__)
LARGE = 1 << 16
"""Weights of a linear layer from which on oneDNN's product is faster, for some tens of tokens."""
TRIAL = (range(3, 8), range(11, 15), range(20, 23))
"""Rows on which a model is tried."""
TRIAL_TOLERANCE = 1e-2
"""Largest difference of their states, read side by side and alone, relative to the spread."""


class PackedReader:
    """One model and the keys and values of its live rows, a slot each."""

    together = False
    """Whether rows are given new ids at the same time only."""

    def __init__(self, model: Any, slots: int) -> None:
        """``slots`` empty ones; the weights stay as they are while it is used."""
        self._slots = RowSlots(slots)
        self._trunk, self._head = trunk_and_head(model)
        self._like = next(model.parameters())
        self._configs = configs_of(model)
        self._linears = [m for m in plain_linears(model) if m.weight.numel() >= LARGE]

    def forget(self, slot: int) -> None:
        """Empty a slot."""
        self._slots.lengths[slot] = 0

    def free(self, slot: int) -> None:
        """The last slot in use moves there."""
        self._slots.free(slot)

    def read(self, tokens: Sequence[Sequence[int]]) -> Tensor:
        """Append tokens to every slot in use.

        Args:
            tokens: of each slot in use; of some slots there may be none.

        Returns:
            ``(slots that got tokens, width)``: the states of their last tokens.
        """
        plan = Pass(self._slots, [len(own) for own in tokens], self._like)
        ids = torch.tensor(plan.order(tokens), device=self._like.device)
        with attending(self._configs, plan), by_onednn(self._linears):
            out = self._trunk(
                input_ids=ids[None], position_ids=plan.columns[None], attention_mask=None, use_cache=False
            )
        plan.done()
        return out.last_hidden_state[0, plan.last()]  # type: ignore[no-any-return]  # transformers is untyped

    def logits(self, hidden: Tensor) -> Tensor:
        """``(N, vocabulary)`` of states ``(N, width)``."""
        with by_onednn(self._linears):
            return self._head(hidden)  # type: ignore[no-any-return]  # transformers is untyped


def reads_packed(model: Any) -> bool:
    """Whether the model reads rows side by side as it reads each alone, by its configuration and a trial."""
    if not plain_attention(model):
        return False
    trunk, head = trunk_and_head(model)
    rows = [[i % head.weight.shape[0] for i in ids] for ids in TRIAL]
    with torch.no_grad(), evaluating(model):
        try:
            reader = PackedReader(model, len(rows))
            reader.read([row[:cut] for cut, row in zip((3, 1, 2), rows, strict=True)])
            packed = reader.read([row[cut:] for cut, row in zip((3, 1, 2), rows, strict=True)])
        except Exception as error:
            # Models fail in many ways on an attention they do not know; each sends them to padded rows.
            log.debug("trial of packed rows: %s", error)
            return False
        prompts = (torch.tensor([row], device=packed.device) for row in rows)
        alone = torch.cat([trunk(input_ids=ids, use_cache=False).last_hidden_state[:, -1] for ids in prompts])
    gap = float(((alone - packed).abs().amax(-1) / (alone.std(-1) + 1e-6)).max())
    return gap < TRIAL_TOLERANCE * (1 if packed.dtype == torch.float32 else 10)
