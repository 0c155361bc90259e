"""Any local causal language model through transformers: shared label reading and batched generation.

Prompts that begin alike are read as one trunk with branches (see ``packing``): the criteria, the turns and
the samples of a conversation cost one reading of it, and its keys and values are held once for all that is
written after it. Models whose attention is not plain full attention (sliding windows, recurrent layers) or
not taken from transformers' interface are recognised by their configuration and by a probe, and take plain
padded batches; ``capabilities.prefix_reuse`` and ``usage["prefix_reused"]`` say which. The device is the
model's. Tested on the CPU in fp32 and bf16; not tested on accelerators.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any

import torch
import transformers
from torch import Tensor

from axiomrm.data.verdict import Failed
from axiomrm.rm.chat import text_of
from axiomrm.rm.engines.base import (
    UNREAD,
    Capabilities,
    Generation,
    LabelReading,
    Prompt,
    Sampling,
    too_long,
)
from axiomrm.rm.engines.budget import Budget as Budget
from axiomrm.rm.engines.decoding import Stop, Writer
from axiomrm.rm.engines.fanout import Fanout
from axiomrm.rm.engines.forward import Forward
from axiomrm.rm.engines.judging import judging
from axiomrm.rm.engines.model_facts import end_ids_of, longest_context, plain_attention
from axiomrm.rm.engines.model_facts import weights_hash as weights_hash
from axiomrm.rm.engines.model_load import load_model
from axiomrm.rm.engines.packing import Ids
from axiomrm.rm.engines.plain import Plain
from axiomrm.rm.engines.row_seeds import row_seeds
from axiomrm.rm.labels import LabelTable

log = logging.getLogger(__name__)
PROBE_TOLERANCE = 1e-2
"""Largest difference between shared and plain logits on the probe, relative to their spread."""


class TransformersEngine:
    """The :class:`~axiomrm.rm.engines.base.Engine` for a local model."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        end_ids: Sequence[int] = (),
        budget: Budget = Budget(),  # noqa: B008
    ) -> None:
        """Wrap a loaded model; ``end_ids`` are further tokens that end an answer."""
        self.model, self.tokenizer, self.budget = model.eval(), tokenizer, budget
        self.end_ids = frozenset({*end_ids, *end_ids_of(model, tokenizer)})
        self.max_tokens = longest_context(model)
        self.usage = dict.fromkeys(
            ("prompt_tokens", "unshared_tokens", "prefix_reused", "completion_tokens"), 0
        )
        """Tokens fed, tokens that separate prompts would have taken, their difference, tokens written."""
        self._forward: Forward | Plain = Plain(self.model)
        if plain_attention(model) and self._probe():
            self._forward = Forward(self.model, packed_bytes=budget.packed_bytes)
        else:
            log.warning("%s: no shared prefixes, prompts run in plain batches", type(model).__name__)

    @classmethod
    def load(
        cls, folder_or_id: str, *, dtype: str = "float32", device: str | None = None, **options: Any
    ) -> "TransformersEngine":
        """Load model and tokenizer; ``options`` go to the constructor.

        Args:
            folder_or_id: a model folder (one with adapters names its base), or a hub id.
            dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: bf16 where the device is fast in it.
            device: torch device; the CPU by default.
            **options: of the constructor.

        Raises:
            ConfigError: an unknown dtype, or nothing loadable there.
        """
        model, tokenizer = load_model(folder_or_id, dtype=dtype, device=device or "cpu")
        return cls(model, tokenizer, **options)

    @property
    def capabilities(self) -> Capabilities:
        """Exact full-vocabulary log-probabilities, ids in and out."""
        return Capabilities(
            token_ids=True,
            logprobs="exact",
            prefix_reuse=isinstance(self._forward, Forward),
            seeds=True,
            max_tokens=self.max_tokens,
        )

    @cached_property
    def identity(self) -> Mapping[str, str]:
        """Library version, hash of the weights, precision."""
        return {
            "engine": "transformers",
            "version": transformers.__version__,
            "weights": weights_hash(self.model),
            "dtype": str(self.model.dtype),
        }

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        """One reading a prompt, right after its lead-in."""
        sequences = [p.ids + t.lead_in_ids for p, t in zip(prompts, tables, strict=True)]
        results: list[LabelReading | Failed] = [
            too_long(len(s), 1, self.max_tokens) or self._unreadable(s) or UNREAD for s in sequences
        ]
        fitting = [i for i, result in enumerate(results) if result is UNREAD]

        def read(i: int, logits: Tensor) -> None:
            results[fitting[i]] = _reading(logits, tables[fitting[i]])

        def fail(i: int, failure: Failed) -> None:
            results[fitting[i]] = failure

        chosen = [sequences[i] for i in fitting]
        with self._counted(chosen) as fanout:
            fanout.read(chosen, read, fail)
        return results

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        """One completion a prompt; prompts of a conversation are decoded side by side over one trunk."""
        new = sampling.max_new_tokens
        results: list[Generation | Failed] = [
            too_long(len(p.ids), new, self.max_tokens) or self._unreadable(p.ids) or UNREAD for p in prompts
        ]
        fitting = [i for i, result in enumerate(results) if result is UNREAD]
        chosen = [prompts[i].ids for i in fitting]
        writer = Writer(sampling, row_seeds(chosen, sampling.seed), self.end_ids)

        def write(i: int, written: tuple[list[int], Stop]) -> None:
            ids, stop = written
            self.usage["completion_tokens"] += len(ids)
            results[fitting[i]] = Generation(text_of(self.tokenizer, ids), tuple(ids), stop)

        def fail(i: int, failure: Failed) -> None:
            results[fitting[i]] = failure

        with self._counted(chosen) as fanout:
            fanout.write(chosen, writer, write, fail)
        return results

    def _unreadable(self, ids: Ids) -> Failed | None:
        """A prompt that would make the pass fail, and with it its neighbours."""
        known = int(self.model.config.get_text_config().vocab_size)
        if ids and min(ids) >= 0 and max(ids) < known:
            return None
        found = f"a prompt with ids {min(ids)} to {max(ids)}" if ids else "a prompt of no tokens"
        return Failed(kind="engine_error", detail=f"{found}; the model reads ids 0 to {known - 1}")

    @contextmanager
    def _counted(self, sequences: Sequence[Ids]) -> Iterator[Fanout]:
        """Feeds these and counts their tokens."""
        with judging(self.model):
            before = self._forward.fed
            yield Fanout(self._forward, self.budget)
            fed, unshared = self._forward.fed - before, sum(map(len, sequences))
            self.usage["prompt_tokens"] += fed
            self.usage["unshared_tokens"] += unshared
            self.usage["prefix_reused"] += max(0, unshared - fed)

    def _probe(self) -> bool:
        """Whether branches over a trunk read as their prompts do alone, on a few tokens of this model."""
        vocabulary = min(int(self.model.config.get_text_config().vocab_size), 50)
        trunk = tuple(i % vocabulary for i in range(3, 9))
        branches = [(*trunk[: 6 - b], *((b * 5 + i + 1) % vocabulary for i in range(3))) for b in range(3)]
        found: list[dict[int, Tensor]] = [{}, {}]
        ways: list[Forward | Plain] = [Forward(self.model), Plain(self.model)]
        for logits, forward in zip(found, ways, strict=True):
            try:
                with judging(self.model):
                    Fanout(forward, self.budget).read(branches, partial(_keep, logits), _ignore)
            except Exception as error:
                # Models fail in many ways on an attention they do not know; each sends them to plain batches.
                log.debug("probe of shared prefixes: %s", error)
        shared, alone = found
        if len(shared) < len(branches) or len(alone) < len(branches):
            return False
        gap = max(float((shared[i] - alone[i]).abs().max() / (alone[i].std() + 1e-6)) for i in alone)
        return gap < PROBE_TOLERANCE * (1 if self.model.dtype == torch.float32 else 10)


def _keep(into: dict[int, Tensor], prompt: int, logits: Tensor) -> None:
    into[prompt] = logits.float()


def _ignore(prompt: int, failure: Failed) -> None:
    """A missing result says enough."""


def _reading(logits: Tensor, table: LabelTable) -> LabelReading | Failed:
    logits = logits.float()
    total = torch.logsumexp(logits, dim=-1)
    picked = logits[list(table.label_ids.values())] - total
    if not bool(torch.isfinite(total)):
        return Failed(kind="engine_error", detail="the model's logits are not finite")
    return LabelReading(dict(zip(table.label_ids, picked.tolist(), strict=True)))
