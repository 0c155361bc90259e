"""Cold start: supervised fine-tuning of a policy on successful dialogues until the dev loss stops falling.

Plain next-token loss on the agent's own tokens, the end of each turn included. The best weights by dev
loss are kept; of a model with adapters those alone. Resumable: a checkpoint after every evaluation, the
order of an epoch is keyed by its number.
"""

import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.checkpoint import load_trained, trained_weights
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.rm.training.optimizer import Kind, make_optimizer

IGNORED = -100


@dataclass(frozen=True)
class ColdStartSettings:
    """How to fine-tune."""

    learning_rate: float = 1e-3
    optimizer: Kind = "adamw"
    max_epochs: int = 12
    patience: int = 2
    """Evaluations without a lower dev loss after which it stops."""
    tokens_per_step: int = 4096
    warmup_steps: int = 20
    weight_decay: float = 0.01
    seed: int = 0


@dataclass(frozen=True)
class ColdStartResult:
    """What happened."""

    epochs: int
    best_epoch: int
    dev_losses: list[float]
    """Nats a trained token after each epoch; the first is the untrained base's."""


def dialogue_row(chat: TemplateChat, trajectory: Trajectory) -> tuple[list[int], list[int]]:
    """Ids of a dialogue and its labels: the agent's tokens with their end, ``-100`` elsewhere.

    The ids are those a rollout would have seen: header, action, end, then the new messages.
    """
    ids: list[int] = []
    labels: list[int] = []
    pending: list[Any] = []
    first = True
    for message in trajectory.messages:
        if not message.is_action:
            pending.append(message)
            continue
        prompt = chat.prompt_ids(pending, trajectory.tools, first)
        action = chat.action_ids(message)
        ids += prompt + action
        labels += [IGNORED] * len(prompt) + action
        pending, first = [], False
    return ids, labels


def fine_tune(
    model: Any,
    train: Sequence[tuple[list[int], list[int]]],
    dev: Sequence[tuple[list[int], list[int]]],
    settings: ColdStartSettings,
    folder: Path,
    *,
    pad_id: int = 0,
    on_epoch: Callable[[int, float], None] | None = None,
) -> ColdStartResult:
    """Train ``model`` in place and leave it at its best dev loss.

    Raises:
        ConfigError: there is nothing to train on or nothing to stop by.
    """
    if not train or not dev:
        raise ConfigError(f"cold start needs train and dev dialogues; found {len(train)} and {len(dev)}")
    folder.mkdir(parents=True, exist_ok=True)
    optimizer = make_optimizer(
        model, settings.optimizer, learning_rate=settings.learning_rate, weight_decay=settings.weight_decay
    )
    saved = folder / "cold_start.pt"
    if saved.exists():
        losses, best = _resumed(saved, model, optimizer)
    else:
        losses, best = [dev_loss(model, dev, settings, pad_id)], _weights(model)
    while len(losses) <= settings.max_epochs and not _stalled(losses, settings.patience):
        epoch = len(losses)
        _epoch(model, optimizer, train, settings, epoch, pad_id)
        losses.append(dev_loss(model, dev, settings, pad_id))
        if losses[-1] == min(losses):
            best = _weights(model)
        _save(
            saved,
            {"model": _weights(model), "optimizer": optimizer.state_dict(), "losses": losses, "best": best},
        )
        if on_epoch is not None:
            on_epoch(epoch, losses[-1])
    load_trained(model, best)
    return ColdStartResult(len(losses) - 1, losses.index(min(losses)), losses)


def _resumed(saved: Path, model: Any, optimizer: Any) -> tuple[list[float], dict[str, Tensor]]:
    """Put model and optimizer where a killed run left them; dev losses so far, and the best weights."""
    state = torch.load(saved, weights_only=False)
    load_trained(model, state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["losses"], state["best"]


@torch.inference_mode()
def dev_loss(
    model: Any, rows: Sequence[tuple[list[int], list[int]]], settings: ColdStartSettings, pad_id: int
) -> float:
    """Mean nats a trained token."""
    model.eval()
    total, count = 0.0, 0
    for batch in _batches(rows, settings.tokens_per_step, None):
        loss, n = _loss(model, batch, pad_id)
        total, count = total + float(loss), count + n
    return total / count


def _epoch(
    model: Any,
    optimizer: torch.optim.Optimizer,
    rows: Sequence[Any],
    settings: ColdStartSettings,
    epoch: int,
    pad_id: int,
) -> None:
    model.train()
    batches = _batches(rows, settings.tokens_per_step, random.Random(f"{settings.seed}/{epoch}"))
    for i, batch in enumerate(batches):
        step = (epoch - 1) * len(batches) + i + 1
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * min(1.0, step / settings.warmup_steps) / math.sqrt(epoch)
        loss, n = _loss(model, batch, pad_id)
        optimizer.zero_grad()
        torch.autograd.backward(loss / n)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def _loss(model: Any, batch: Sequence[tuple[list[int], list[int]]], pad_id: int) -> tuple[Tensor, int]:
    width = max(len(ids) for ids, _ in batch)
    ids_BT = torch.tensor([ids + [pad_id] * (width - len(ids)) for ids, _ in batch])
    labels_BT = torch.tensor([labels + [IGNORED] * (width - len(labels)) for _, labels in batch])
    used = (labels_BT[:, 1:] != IGNORED).any(dim=0).nonzero().flatten()
    logits = model(input_ids=ids_BT, logits_to_keep=used, use_cache=False).logits.float()
    target = labels_BT[:, 1:][:, used]
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return loss, int((target != IGNORED).sum())


def _batches(rows: Sequence[Any], tokens: int, rng: random.Random | None) -> list[list[Any]]:
    order = list(range(len(rows)))
    if rng is not None:
        rng.shuffle(order)
    order.sort(key=lambda i: len(rows[i][0]) // 32)
    groups: list[list[Any]] = [[]]
    for i in order:
        if groups[-1] and (len(groups[-1]) + 1) * len(rows[i][0]) > tokens:
            groups.append([])
        groups[-1].append(rows[i])
    if rng is not None:
        rng.shuffle(groups)
    return groups


def _stalled(losses: Sequence[float], patience: int) -> bool:
    return len(losses) - 1 - losses.index(min(losses)) >= patience


def _weights(model: Any) -> dict[str, Tensor]:
    return {k: v.detach().clone() for k, v in trained_weights(model).items()}


def _save(path: Path, state: dict[str, Any]) -> None:
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)
