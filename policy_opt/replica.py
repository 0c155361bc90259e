"""One process's part in an update: alone, or beside others through Hugging Face ``accelerate``.

Several processes split the packed micro-batches of one optimizer step. The loss is normalised over the whole
minibatch before the split (``losses.step_weights``), so gradients are summed, not averaged, and the update is
that of one process up to rounding. Every process runs as many forwards; who has none left repeats one without
weight.

The main process decides everything: it samples, judges, plans and saves, and hands each minibatch to the
others, which only compute. Covers replicas that hold the whole model, on CPUs or GPUs. Does not cover sharded
weights (FSDP, DeepSpeed): the sampler and the checkpoint read whole weights.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from axiomrm.errors import ConfigError
from axiomrm.policy_opt.logprobs import SelectedLogprobs, selected_logprobs
from axiomrm.policy_opt.packing import TokenBatch

Share = list[tuple[TokenBatch, bool]]
"""Micro-batches to run and whether each counts; one that does not has weights of 0."""


class Replica(Protocol):
    """What an optimizer step asks of its process."""

    def share(self, batches: Sequence[TokenBatch]) -> Share:
        """This process's micro-batches of those of the whole minibatch."""
        ...

    def part(self, last: bool) -> AbstractContextManager[Any]:
        """Around forward and backward of a micro-batch; gradients are exchanged in the last one."""
        ...

    def forward(self, batch: TokenBatch) -> SelectedLogprobs:
        """Log-probs of the batch's action tokens, with gradient."""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of this process's part of the loss."""
        ...

    def clip(self, parameters: Sequence[nn.Parameter], limit: float) -> float:
        """Scale the gradients down to the norm ``limit``; returns their norm before."""
        ...

    def gather(self, found: Any) -> list[Any]:
        """``found`` of every process, in their order."""
        ...


class PackedPolicy(nn.Module):
    """The update's forward as a module, for wrappers that exchange gradients."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: TokenBatch) -> SelectedLogprobs:
        """Log-probs of the batch's action tokens."""
        device = next(self.model.parameters()).device
        return selected_logprobs(
            self.model,
            batch.input_ids_RL.to(device),
            batch.attention_mask_RL.to(device),
            batch.row_N.to(device),
            batch.column_N.to(device),
            batch.temperature,
        )


class OwnReplica:
    """A process on its own, plain torch."""

    def __init__(self, model: Any) -> None:
        self._policy = PackedPolicy(model)

    def share(self, batches: Sequence[TokenBatch]) -> Share:
        """All of them."""
        return [(batch, True) for batch in batches]

    def part(self, last: bool) -> AbstractContextManager[Any]:
        """Nothing to exchange."""
        return nullcontext()

    def forward(self, batch: TokenBatch) -> SelectedLogprobs:
        """See ``Replica``."""
        return self._policy.forward(batch)

    def backward(self, loss: Tensor) -> None:
        """See ``Replica``."""
        loss.backward()  # type: ignore[no-untyped-call]  # torch

    def clip(self, parameters: Sequence[nn.Parameter], limit: float) -> float:
        """See ``Replica``."""
        return float(nn.utils.clip_grad_norm_(parameters, limit))

    def gather(self, found: Any) -> list[Any]:
        """One."""
        return [found]


class AcceleratedReplica:
    """A process of an ``accelerate.Accelerator``, which moves, wraps and steps model and optimizer."""

    def __init__(self, accelerator: Any, model: Any, optimizer: torch.optim.Optimizer) -> None:
        """Args:
        accelerator: with ``gradient_accumulation_steps`` 1: the loss is normalised here.
        model: moved to the accelerator's device in place.
        optimizer: of the model's parameters; use ``optimizer`` of this object from now on.

        Raises:
            ConfigError: an accelerator that shards weights or divides the loss.
        """
        kind = accelerator.distributed_type.value
        if kind not in ("NO", "MULTI_CPU", "MULTI_GPU"):
            raise ConfigError(
                f"accelerate: distributed type {kind} is not supported; accepted: one process, MULTI_CPU, "
                "MULTI_GPU (every process holds the whole model)"
            )
        if accelerator.gradient_accumulation_steps != 1:
            raise ConfigError(
                f"accelerate: gradient_accumulation_steps={accelerator.gradient_accumulation_steps} would "
                "divide the loss; leave it at 1 and set tokens_per_forward, which splits a step and leaves "
                "it as it is"
            )
        self.accelerator = accelerator
        self._policy, self.optimizer = accelerator.prepare(PackedPolicy(model), optimizer)

    @property
    def processes(self) -> int:
        """How many take part."""
        return int(self.accelerator.num_processes)

    @property
    def main(self) -> bool:
        """Whether this is the process that decides."""
        return bool(self.accelerator.is_main_process)

    def share(self, batches: Sequence[TokenBatch]) -> Share:
        """Every n-th, filled up to the same number in each process."""
        index, n = int(self.accelerator.process_index), self.processes
        mine: Share = [(batch, True) for batch in batches[index::n]]
        while len(mine) < -(-len(batches) // n):
            mine.append((replace(batches[0], weight_S=torch.zeros_like(batches[0].weight_S)), False))
        return mine

    def part(self, last: bool) -> AbstractContextManager[Any]:
        """See ``Replica``."""
        waiting: AbstractContextManager[Any] = self.accelerator.no_sync(self._policy)
        return nullcontext() if last else waiting

    def forward(self, batch: TokenBatch) -> SelectedLogprobs:
        """See ``Replica``."""
        found: SelectedLogprobs = self._policy(batch)
        return found

    def backward(self, loss: Tensor) -> None:
        """See ``Replica``; the wrapper averages over processes, the sum is wanted."""
        self.accelerator.backward(loss * self.processes if self.processes > 1 else loss)

    def clip(self, parameters: Sequence[nn.Parameter], limit: float) -> float:
        """See ``Replica``."""
        return float(self.accelerator.clip_grad_norm_(parameters, limit))

    def gather(self, found: Any) -> list[Any]:
        """See ``Replica``."""
        from accelerate.utils import gather_object

        every: list[Any] = gather_object([found])
        return every

    def tell(self, message: Any) -> Any:
        """``message`` of the main process, in every process."""
        from accelerate.utils import broadcast_object_list

        if self.processes == 1:
            return message
        box = [message]
        broadcast_object_list(box)
        return box[0]
