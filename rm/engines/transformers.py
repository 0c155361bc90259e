"""Any local causal language model through transformers: packed label reading and batched generation.

Prompts that begin alike are packed into one row with a tree attention mask (see ``packing``): one forward
pass answers all criteria of all turns of a trajectory, and rows of several trajectories form a batch.
Models whose attention is not plain full attention (sliding windows, recurrent layers, positions that the
mask does not govern) are recognised by their configuration and by a probe, and take plain padded batches;
``capabilities.prefix_reuse`` says which. Tested on the CPU in fp32 and bf16; not tested on other devices.
"""

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.engines.base import (
    UNREAD,
    Capabilities,
    Generation,
    LabelReading,
    Prompt,
    Sampling,
    failure_of,
)
from axiomrm.rm.engines.decoding import Prefilled, decode, merge_prefilled, row_seeds
from axiomrm.rm.engines.model_facts import (
    cache_bytes,
    end_ids_of,
    longest_context,
    out_of_memory,
    plain_attention,
    work_balance,
)
from axiomrm.rm.engines.model_facts import weights_hash as weights_hash
from axiomrm.rm.engines.packing import Ids, Pack, buckets, pack
from axiomrm.rm.labels import LabelTable

log = logging.getLogger(__name__)
PROBE_TOLERANCE = 1e-2
"""Largest difference between packed and plain logits on the probe, relative to their spread."""


class Budget(NamedTuple):
    """Memory limits of one forward pass."""

    branch_tokens: int = 4096
    """What a packed row may hold beyond its longest prompt."""
    batch_tokens: int = 4096
    """Padded tokens of a batch."""
    mask_cells: int = 16_000_000
    """Padded squares of a batch: 64 MB of mask in fp32."""
    decode_rows: int = 64
    cache_bytes: int = 1_000_000_000
    """Keys and values of the rows that are decoded together."""


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
        self.usage = {"prompt_tokens": 0, "unshared_tokens": 0, "completion_tokens": 0}
        """Tokens fed, tokens that separate prompts would have taken, tokens written; since the start."""
        self._balance = work_balance(model)
        self._accepts = frozenset(inspect.signature(model.forward).parameters)
        self._reuse = plain_attention(model) and self._probe()
        if not self._reuse:
            log.warning("%s: no shared prefixes, prompts run in plain batches", type(model).__name__)

    @classmethod
    def load(
        cls, folder_or_id: str, *, dtype: str = "float32", device: str | None = None, **options: Any
    ) -> "TransformersEngine":
        """Load model and tokenizer; ``options`` go to the constructor.

        Raises:
            ConfigError: an unknown dtype, or nothing loadable there.
        """
        torch_dtype = getattr(torch, dtype, None)
        if not isinstance(torch_dtype, torch.dtype) or not torch_dtype.is_floating_point:
            raise ConfigError(f"dtype {dtype!r}: use 'float32', 'bfloat16' or 'float16'")
        transformers.utils.logging.disable_progress_bar()  # bars are the command line's, ours
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder_or_id)
            model = AutoModelForCausalLM.from_pretrained(
                folder_or_id, dtype=torch_dtype, attn_implementation="sdpa"
            )
        except (OSError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError(f"model {folder_or_id!r} cannot be loaded: {reason}") from error
        return cls(model.to(device or "cpu"), tokenizer, **options)

    @property
    def capabilities(self) -> Capabilities:
        """Exact full-vocabulary log-probabilities, ids in and out."""
        return Capabilities(
            token_ids=True, logprobs="exact", prefix_reuse=self._reuse, seeds=True, max_tokens=self.max_tokens
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
        results: list[LabelReading | Failed] = [self._too_long(len(s), 1) or UNREAD for s in sequences]
        fitting = [i for i, result in enumerate(results) if result is UNREAD]

        def read(i: int, logits: Tensor) -> None:
            results[fitting[i]] = _reading(logits, tables[fitting[i]])

        def fail(i: int, failure: Failed) -> None:
            results[fitting[i]] = failure

        self._each_last_logits([sequences[i] for i in fitting], read, fail)
        return results

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        """One completion a prompt; prompts are prefilled packed and decoded in one batch."""
        results: list[Generation | Failed] = [
            self._too_long(len(p.ids), sampling.max_new_tokens) or UNREAD for p in prompts
        ]
        fitting = [i for i, result in enumerate(results) if result is UNREAD]
        seeds = row_seeds([prompts[i].ids for i in fitting], sampling.seed)
        for batch in self._decode_batches([len(prompts[i].ids) + sampling.max_new_tokens for i in fitting]):
            rows = [fitting[j] for j in batch]
            try:
                prefilled = self._prefill([prompts[i].ids for i in rows])
                written = decode(self.model, prefilled, sampling, [seeds[j] for j in batch], self.end_ids)
            except RuntimeError as error:
                for i in rows:
                    results[i] = failure_of(error)
                continue
            for i, (ids, stop) in zip(rows, written, strict=True):
                self.usage["completion_tokens"] += len(ids)
                results[i] = Generation(self._text(ids), tuple(ids), stop)
        return results

    def _text(self, ids: Sequence[int]) -> str:
        text = self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return str(text)

    def _too_long(self, prompt: int, more: int) -> Failed | None:
        if self.max_tokens is None or prompt + more <= self.max_tokens:
            return None
        detail = f"prompt of {prompt} tokens + {more} exceeds the model's {self.max_tokens}"
        return Failed(kind="context_overflow", detail=detail)

    def _rows(self, sequences: Sequence[Ids]) -> list[Pack]:
        most = self.budget.branch_tokens if self._reuse else 0
        return pack(sequences, max_branches=most, balance=self._balance)

    @torch.inference_mode()
    def _each_last_logits(
        self,
        sequences: Sequence[Ids],
        read: Callable[[int, Tensor], None],
        fail: Callable[[int, Failed], None],
    ) -> None:
        """Hand the logits after each sequence to ``read``, batch by batch; a failing row goes to ``fail``."""
        rows = self._rows(sequences)
        limits = {"max_tokens": self.budget.batch_tokens, "max_square": self.budget.mask_cells}
        queue = buckets([row.size for row in rows], **limits)
        while queue:
            batch = [rows[i] for i in queue[0]]
            try:
                logits, _ = self._forward(batch, use_cache=False)
            except RuntimeError as error:
                halves = (queue[0][: len(batch) // 2], queue[0][len(batch) // 2 :])
                queue[:1] = [h for h in halves if h] if out_of_memory(error) and len(batch) > 1 else []
                if len(batch) == 1 or not out_of_memory(error):
                    for row in batch:
                        for index, _, _ in row.ends:
                            fail(index, failure_of(error))
                continue
            queue.pop(0)
            for b, row in enumerate(batch):
                for j, (index, _, _) in enumerate(row.ends, logits.shape[1] - len(row.ends)):
                    read(index, logits[b, j])

    def _forward(self, rows: Sequence[Pack], *, use_cache: bool) -> tuple[Tensor, Any]:
        """Logits ``(rows, most ends, vocabulary)`` of the last tokens, right-aligned, and the cache."""
        n = max(row.size for row in rows)
        self.usage["prompt_tokens"] += sum(row.size for row in rows)
        self.usage["unshared_tokens"] += sum(len(path) + 1 for row in rows for path in row.paths)
        ids = np.zeros((len(rows), n), dtype=np.int64)
        positions = np.zeros((len(rows), n), dtype=np.int64)
        packed = self._reuse
        seen = (
            np.tile(np.eye(n, dtype=bool), (len(rows), 1, 1))
            if packed
            else np.zeros((len(rows), n), dtype=bool)
        )
        for b, row in enumerate(rows):
            pad = n - row.size
            ids[b, pad:] = row.tokens()
            positions[b, pad:] = row.positions()
            if packed:
                seen[b, pad:, pad:] = row.mask()
            else:
                seen[b, pad:] = True
        keep = max(len(row.ends) for row in rows)
        out = self._call(ids, positions, seen, use_cache=use_cache, keep=keep)
        return out.logits[:, -keep:], getattr(out, "past_key_values", None)

    def _call(
        self, ids: np.ndarray, positions: np.ndarray, seen: np.ndarray, *, use_cache: bool, keep: int
    ) -> Any:
        device, dtype = self.model.device, self.model.dtype
        mask = torch.from_numpy(seen).to(device)
        if mask.dim() == 3:
            # An additive mask: eager attention adds it, sdpa takes it as it is.
            blocked = torch.full((), torch.finfo(dtype).min, dtype=dtype, device=device)
            mask = torch.where(mask, torch.zeros((), dtype=dtype, device=device), blocked)[:, None]
        options = {
            "position_ids": torch.from_numpy(positions).to(device),
            "logits_to_keep": keep,
            # Without a configuration its layers keep every token, also where attention slides.
            **({"past_key_values": DynamicCache()} if use_cache else {}),
        }
        return self.model(
            input_ids=torch.from_numpy(ids).to(device),
            attention_mask=mask if mask.dim() == 4 else mask.long(),
            use_cache=use_cache,
            **{name: value for name, value in options.items() if name in self._accepts},
        )

    @torch.inference_mode()
    def _prefill(self, sequences: Sequence[Ids]) -> Prefilled:
        rows = self._rows(sequences)
        limits = {"max_tokens": self.budget.batch_tokens, "max_square": self.budget.mask_cells}
        parts: list[tuple[list[Pack], Tensor, Any]] = []
        for batch in buckets([row.size for row in rows], **limits):
            packs = [rows[i] for i in batch]
            logits, cache = self._forward(packs, use_cache=True)
            if not hasattr(cache, "layers"):
                raise RuntimeError(f"{type(self.model).__name__} keeps no keys and values: use direct mode")
            parts.append((packs, logits, cache))
        return merge_prefilled(parts, len(sequences))

    def _decode_batches(self, lengths: Sequence[int]) -> list[list[int]]:
        tokens = max(1, self.budget.cache_bytes // cache_bytes(self.model))
        batches = buckets(lengths, max_tokens=tokens, max_square=2**62)
        rows = self.budget.decode_rows
        return [batch[i : i + rows] for batch in batches for i in range(0, len(batch), rows)]

    @torch.inference_mode()
    def _probe(self) -> bool:
        """Whether a packed row reads as its prompts do alone, on twelve tokens of this model."""
        vocabulary = min(int(self.model.config.get_text_config().vocab_size), 50)
        trunk = tuple(i % vocabulary for i in range(3, 9))
        branches = [(*trunk, *(b * 5 + i + 1 for i in range(3))) for b in range(2)]
        rows = pack(branches, max_branches=100), pack(branches, max_branches=0)
        try:
            self._reuse = True
            shared = self._forward(rows[0], use_cache=False)[0][0].float()
            self._reuse = False
            alone = self._forward(rows[1], use_cache=False)[0][:, 0].float()
        except Exception as error:
            # Models fail in many ways on a mask they do not know; each means that they take the plain path.
            log.debug("packed probe: %s", error)
            return False
        finally:
            self.usage = dict.fromkeys(self.usage, 0)
        gap = float((shared - alone).abs().max() / (alone.std() + 1e-6))
        return gap < PROBE_TOLERANCE * (1 if self.model.dtype == torch.float32 else 10)


def _reading(logits: Tensor, table: LabelTable) -> LabelReading | Failed:
    logits = logits.float()
    total = torch.logsumexp(logits, dim=-1)
    picked = logits[list(table.label_ids.values())] - total
    if not bool(torch.isfinite(total)):
        return Failed(kind="engine_error", detail="the model's logits are not finite")
    return LabelReading(dict(zip(table.label_ids, picked.tolist(), strict=True)))
