"""The loss of judge rows, packed or plain, and whether a model reads packed rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from axiomrm.errors import ConfigError
from axiomrm.rm.training.config import StageConfig
from axiomrm.rm.training.packing import TreeRow, batches, collate, single_rows, tree_rows
from axiomrm.rm.training.row_set import IGNORED, JudgeRow

PROBE_TOLERANCE = 0.01
"""Largest difference of a logit between packed and plain rows, in standard deviations of the logits."""


def trained_logits(model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """What predicts each trained token, row by row.

    Returns:
        Logits ``(n, V)`` (float32), the tokens ``(n,)`` and their weights ``(n,)``.
    """
    target = inputs["labels"][:, 1:]
    used = (target != IGNORED).any(dim=0).nonzero().flatten()
    logits = model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        position_ids=inputs["position_ids"],
        logits_to_keep=used,
        use_cache=False,
    ).logits
    mask = target[:, used] != IGNORED
    weights = inputs["label_weights"][:, 1:][:, used]
    return logits[mask].float(), target[:, used][mask], weights[mask]


def completion_loss(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Sum of weighted negative log-likelihoods (nats) of the trained tokens."""
    logits, target, weights = trained_logits(model, inputs)
    return (cross_entropy(logits, target, reduction="none") * weights).sum()


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
    """Whether the model reads a few rows in one tree as it reads them alone."""
    few = sorted(_alike(rows[:200])[:4], key=lambda row: row.input_ids)
    tree = tree_rows(few, max_tokens=2**31, min_shared=0)
    was_training = model.training
    model.eval()
    try:
        plain, alike = (
            trained_logits(model, _on_device(model, collate(made, pad_id_of(tokenizer), packed=packed)))[0]
            for made, packed in ((single_rows(few), False), (tree, True))
        )
    except (ValueError, RuntimeError, TypeError, IndexError):  # the model takes no four-dimensional mask
        return False
    finally:
        model.train(was_training)
    tolerance = PROBE_TOLERANCE * (1 if model.dtype == torch.float32 else 10)
    return bool((plain - alike).abs().max() <= tolerance * plain.std())


def _alike(rows: Sequence[JudgeRow]) -> list[JudgeRow]:
    units = Counter(row.unit for row in rows)
    return [row for row in rows if row.unit == units.most_common(1)[0][0]]


def _on_device(model: Any, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.to(model.device) for name, value in inputs.items()}


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
        inputs = _on_device(model, collate(batch, pad_id, packed=packed))
        loss += float(completion_loss(model, inputs))
        count += trained_tokens(inputs)
    return loss, count
