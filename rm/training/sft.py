"""Supervised fine-tuning on judge rows through trl's SFTTrainer, resumable after a kill.

Deviation from trl: the loss projects only the positions whose next token is trained. Away from Triton
devices trl 1.16 scores every position and does so again in the backward pass, which costs more than the
whole of a small model. Its documentation asks for an overridden ``compute_loss`` in such cases.
"""

import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback
from trl import SFTConfig, SFTTrainer

from axiomrm.errors import ConfigError
from axiomrm.rm.training.config import StageConfig
from axiomrm.rm.training.losses import completion_loss, pad_id_of, trained_tokens
from axiomrm.rm.training.optimizer import make_optimizer
from axiomrm.rm.training.packing import TreeRow, collate

COMPLETE = "complete"
"""Name of the file that closes a checkpoint: without it the folder was being written when the run died."""


@dataclass(frozen=True)
class SftResult:
    """What a training run did."""

    steps: int
    tokens: int
    """Read by the optimizer, padding included, over all epochs."""
    seconds: float
    """Since the last (re)start."""
    resumed_from: int
    """Step of the checkpoint it went on from; 0: none."""
    history: list[dict[str, float]]
    """Logged losses and learning rates by step."""


class JudgeTrainer(SFTTrainer):  # type: ignore[misc]  # trl is untyped
    """SFTTrainer over prepared batches; see the module's deviation."""

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Mean weighted loss over the trained tokens of the whole step."""
        count = trained_tokens(inputs) if num_items_in_batch is None else num_items_in_batch
        loss = completion_loss(model, inputs) / torch.as_tensor(count).clamp(min=1)
        return (loss, None) if return_outputs else loss

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """No README in checkpoints: the judge card says what a user needs."""


class _Complete(TrainerCallback):  # type: ignore[misc]  # transformers is skipped by mypy
    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        temporary = folder / f"{COMPLETE}.tmp"
        temporary.write_text("", encoding="utf-8")
        os.replace(temporary, folder / COMPLETE)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint that was written to its end; half-written ones are removed."""
    found: list[tuple[int, Path]] = []
    for path in folder.glob("checkpoint-*"):
        if (path / COMPLETE).exists():
            found.append((int(path.name.rpartition("-")[2]), path))
        else:
            shutil.rmtree(path)
    return max(found)[1] if found else None


def planned_steps(batches: Sequence[Sequence[TreeRow]], config: StageConfig) -> int:
    """Optimizer steps that epochs, ``max_steps`` and ``max_train_tokens`` allow; at least 1."""
    steps = config.epochs * math.ceil(len(batches) / config.accumulate)
    if config.max_train_tokens:
        a_step = sum(map(padded_tokens, batches)) / len(batches) * config.accumulate
        steps = min(steps, config.max_train_tokens / a_step)
    return max(1, min(math.ceil(steps), config.max_steps or math.ceil(steps)))


def padded_tokens(batch: Sequence[TreeRow]) -> int:
    """Tokens of a batch, padding included."""
    return len(batch) * max(row.size for row in batch)


def run_sft(
    model: Any,
    tokenizer: Any,
    batches: Sequence[Sequence[TreeRow]],
    folder: str | Path,
    config: StageConfig,
    *,
    packed: bool = True,
) -> SftResult:
    """Train ``model`` in place (adapters included), going on from the last complete checkpoint in ``folder``.

    Args:
        model: a causal language model, or a peft model around one.
        tokenizer: for padding and for what the checkpoints hold.
        batches: prepared batches; each epoch shuffles their order.
        folder: checkpoints go here.
        config: the stage's settings.
        packed: whether rows are trees (see :func:`axiomrm.rm.training.packing.collate`).

    Raises:
        ConfigError: there is nothing to train on.
    """
    if not batches:
        raise ConfigError("no rows to train on: every example was dropped, see the counts")
    folder = Path(folder)
    steps = planned_steps(batches, config)
    trainer = _trainer(model, tokenizer, batches, _arguments(folder, config, steps), config, packed)
    resume = last_checkpoint(folder)
    start = time.monotonic()
    trainer.train(resume_from_checkpoint=str(resume) if resume else None)
    seconds = time.monotonic() - start
    mean = sum(map(padded_tokens, batches)) / len(batches)
    resumed = int(resume.name.rpartition("-")[2]) if resume else 0
    history = _history(trainer.state.log_history)
    return SftResult(steps, round(steps * config.accumulate * mean), seconds, resumed, history)


def _trainer(
    model: Any,
    tokenizer: Any,
    batches: Sequence[Sequence[TreeRow]],
    arguments: SFTConfig,
    config: StageConfig,
    packed: bool,
) -> JudgeTrainer:
    pad_id = pad_id_of(tokenizer)
    optimizer = make_optimizer(
        model, config.optimizer, learning_rate=config.learning_rate, weight_decay=config.weight_decay
    )
    trainer = JudgeTrainer(
        model=model,
        optimizers=(optimizer, None),
        args=arguments,
        train_dataset=Dataset.from_dict({"batch": list(range(len(batches)))}),
        data_collator=lambda items: collate(batches[items[0]["batch"]], pad_id, packed=packed),
        processing_class=tokenizer,
        callbacks=[_Complete()],
    )
    trainer.model_accepts_loss_kwargs = True
    trainer.remove_callback(PrinterCallback)  # losses are returned; what is printed is the CLI's matter
    return trainer


def _history(log: Sequence[Mapping[str, Any]]) -> list[dict[str, float]]:
    kept = ("loss", "learning_rate", "grad_norm", "step")
    return [{key: float(row[key]) for key in kept if key in row} for row in log if "loss" in row]


def _arguments(folder: Path, config: StageConfig, steps: int) -> SFTConfig:
    return SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=config.accumulate,
        max_steps=steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule if config.schedule != "constant" else "constant_with_warmup",
        warmup_steps=round(config.warmup_share * steps),
        weight_decay=config.weight_decay,
        max_grad_norm=config.max_grad_norm,
        bf16=config.precision == "bf16",
        gradient_checkpointing=config.gradient_checkpointing,
        save_strategy="steps",
        save_steps=config.save_steps,
        save_total_limit=2,
        logging_steps=config.log_steps,
        report_to="none",
        disable_tqdm=True,
        seed=config.seed,
        data_seed=config.seed,
        remove_unused_columns=False,
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        dataloader_pin_memory=False,
        eval_strategy="no",
    )
