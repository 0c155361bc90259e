"""Log-probabilities of sampled tokens only: positions are picked before the language-model head.

Vocabulary times positions never exists at once: the head runs in chunks under checkpointing. Log-sum-exp is
fp32.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from axiomrm.errors import ConfigError

CHUNK_ROWS = 1024
CHUNK_ELEMENTS = 1 << 23
"""Logits held at once, so that a large vocabulary is cut into fewer rows."""
_UNSUPPORTED = ("final_logit_softcapping", "logit_scale", "logits_scaling")


class SelectedLogprobs(NamedTuple):
    """``_N`` = selected tokens, in the order asked."""

    logp_N: Tensor
    entropy_N: Tensor
    """Nats, no gradient."""
    hidden_NH: Tensor | None = None
    """The states that the head read."""


def trunk_and_head(model: Any) -> tuple[Any, Any]:
    """The decoder without its head, and the head, of a (peft-wrapped) causal language model.

    Raises:
        ConfigError: the model transforms its logits after the head, which this split would skip.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    for name in _UNSUPPORTED:
        value = getattr(base.config, name, None)
        if value not in (None, 1, 1.0):
            raise ConfigError(f"model config: {name}={value!r} changes logits after the head; not supported")
    return base.get_decoder(), base.get_output_embeddings()


def hidden_size(model: Any) -> int:
    """Width of the states that the head reads."""
    return int(trunk_and_head(model)[1].weight.shape[1])


def chunk_rows(head: Any) -> int:
    """Rows of one chunk: at most ``CHUNK_ROWS``, fewer where the vocabulary is large."""
    weight = getattr(head, "weight", None)
    return CHUNK_ROWS if weight is None else max(1, min(CHUNK_ROWS, CHUNK_ELEMENTS // weight.shape[0]))


def logprobs_of_hidden(
    hidden_NH: Tensor, head: Any, targets_N: Tensor, temperature: float, *, chunk: int | None = None
) -> SelectedLogprobs:
    """Log-prob of each target under ``head(hidden) / temperature``, ``chunk`` rows at a time."""
    logps, entropies = [], []
    chunk = chunk_rows(head) if chunk is None else chunk
    for rows in range(0, hidden_NH.shape[0], chunk):
        hidden, targets = hidden_NH[rows : rows + chunk], targets_N[rows : rows + chunk]
        if hidden.requires_grad and hidden_NH.shape[0] > chunk:
            logp, entropy = checkpoint(_chunk, hidden, head, targets, temperature, use_reentrant=False)
        else:
            logp, entropy = _chunk(hidden, head, targets, temperature)
        logps.append(logp)
        entropies.append(entropy)
    if not logps:
        empty = hidden_NH.new_zeros(0, dtype=torch.float32)
        return SelectedLogprobs(empty, empty)
    return SelectedLogprobs(torch.cat(logps), torch.cat(entropies))


def _chunk(hidden: Tensor, head: Any, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    logits = head(hidden).float() / temperature
    norm = torch.logsumexp(logits, dim=-1)
    logp = logits.gather(1, targets[:, None]).squeeze(1) - norm
    with torch.no_grad():
        entropy = norm - (torch.softmax(logits, dim=-1) * logits).sum(-1)
    return logp, entropy.detach()


def selected_logprobs(
    model: Any,
    input_ids: Tensor,
    attention_mask: Tensor,
    rows_N: Tensor,
    columns_N: Tensor,
    temperature: float,
) -> SelectedLogprobs:
    """One forward of right-padded rows; log-probs of the ids at ``(rows_N, columns_N)``.

    Args:
        model: causal language model (its train/eval mode is the caller's business; dropout must be off).
        input_ids: ``(R, L)`` int64, right-padded.
        attention_mask: ``(R, L)``, 1 = counts.
        rows_N: row of each selected token.
        columns_N: its column, at least 1 (the state before it predicts it).
        temperature: the sampling temperature, applied here as it was there.
    """
    trunk, head = trunk_and_head(model)
    hidden = trunk(input_ids=input_ids, attention_mask=attention_mask, use_cache=False).last_hidden_state
    picked = hidden[rows_N, columns_N - 1]
    out = logprobs_of_hidden(picked, head, input_ids[rows_N, columns_N], temperature)
    return out._replace(hidden_NH=picked)
