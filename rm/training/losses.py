"""The loss of judge rows, packed or plain, and whether a model reads packed rows."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from axiomrm.errors import ConfigError
from axiomrm.rm.training.config import StageConfig
from axiomrm.rm.training.packing import TreeRow, batches, collate, single_rows, tree_rows
from axiomrm.rm.training.rows import IGNORED, JudgeRow

PROBE_TOLERANCE = 1e-3
"""Largest relative difference of the loss between packed and plain rows for packing to be used."""


def completion_loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Sum of weighted negative log-likelihoods (nats) of the trained tokens."""
    target = inputs["labels"][:, 1:]
    used = (target != IGNORED).any(dim=0).nonzero().flatten()
    logits = model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        position_ids=inputs["position_ids"],
        logits_to_keep=used,
        use_cache=False,
    ).logits
    flat = cross_entropy(
        logits.float().flatten(0, 1), target[:, used].flatten(), ignore_index=IGNORED, reduction="none"
    )
    return (flat * inputs["label_weights"][:, 1:][:, used].flatten()).sum()


def trained_tokens(inputs: dict[str, Tensor]) -> int:
    """Tokens that the loss counts."""
    return int((inputs["labels"][:, 1:] != IGNORED).sum())


def pad_id_of(tokenizer: Any) -> int:
    """What fills rows up; the end token where the tokenizer has no pad token."""
    return int(tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id)


def plan_packing(
    model: Any, tokenizer: Any, rows: Sequence[JudgeRow], config: StageConfig
) -> tuple[bool, list[TreeRow]]:
    """Whether rows are packed into trees, and the rows to train on.

    Raises:
        ConfigError: ``packing: tree`` is asked for and the model does not read trees.
    """
    if config.packing == "off" or not rows:
        return False, single_rows(rows)
    trees = tree_rows(rows, max_tokens=min(config.row_tokens, config.batch_tokens))
    if reads_trees(model, tokenizer, rows):
        return True, trees
    if config.packing == "tree":
        raise ConfigError(f"packing 'tree': {type(model).__name__} reads packed rows differently; use 'auto'")
    return False, single_rows(rows)


@torch.inference_mode()
def reads_trees(model: Any, tokenizer: Any, rows: Sequence[JudgeRow]) -> bool:
    """Whether a few rows have the same loss in one tree as they have alone."""
    unit = max(rows[:200], key=lambda row: sum(other.unit == row.unit for other in rows[:200])).unit
    few = [row for row in rows[:200] if row.unit == unit][:4]
    tree = tree_rows(few, max_tokens=2**31, min_shared=0)
    was_training = model.training
    model.eval()
    try:
        plain, _ = _sums(model, tokenizer, [single_rows(few)], False)
        alike, _ = _sums(model, tokenizer, [tree], True)
    except (ValueError, RuntimeError, TypeError, IndexError):  # the model takes no four-dimensional mask
        return False
    finally:
        model.train(was_training)
    return abs(plain - alike) <= PROBE_TOLERANCE * max(1.0, plain)


@torch.inference_mode()
def mean_loss(model: Any, tokenizer: Any, rows: Sequence[JudgeRow], config: StageConfig) -> float | None:
    """Mean loss in nats a trained token; ``None`` without rows."""
    if not rows:
        return None
    was_training = model.training
    model.eval()
    packed, trees = plan_packing(model, tokenizer, rows, config)
    loss, count = _sums(model, tokenizer, batches(trees, max_tokens=config.batch_tokens, seed=0), packed)
    model.train(was_training)
    return loss / count


def _sums(model: Any, tokenizer: Any, made: Sequence[Sequence[TreeRow]], packed: bool) -> tuple[float, int]:
    pad_id = pad_id_of(tokenizer)
    loss, count = 0.0, 0
    for batch in made:
        inputs = {k: v.to(model.device) for k, v in collate(batch, pad_id, packed=packed).items()}
        loss += float(completion_loss(model, inputs))
        count += trained_tokens(inputs)
    return loss, count
