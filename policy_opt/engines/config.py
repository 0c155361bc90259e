"""Which engine samples rollouts: a union on ``kind``. Without torch, as all configuration."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue, model_validator

from axiomrm.data.settings import Settings

OWN_OPTIONS = (
    "model",
    "dtype",
    "max_model_len",
    "logprobs_mode",
    "load_format",
    "hf_overrides",
    "generation_config",
    "skip_tokenizer_init",
    "enable_lora",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
)
"""Arguments of ``vllm.LLM`` that sampling and publication rest on."""


class MismatchLimits(Settings):
    """How far the sampler's log-probs may lie from the trainer's on the same fresh tokens, nats.

    Starting values: look at ``mismatch/…`` in ``metrics.jsonl`` and tighten them to what your engine shows.
    """

    mean_abs: float = Field(default=0.02, gt=0)
    mean: float = Field(default=0.005, gt=0)
    """Of the absolute value of the mean difference: a drift to one side."""
    p999_abs: float = Field(default=0.5, gt=0)
    """Of the 99.9th percentile of absolute differences."""


class TransformersEngine(Settings):
    """The trainer's own model in this process."""

    kind: Literal["transformers"] = "transformers"


class VllmEngine(Settings):
    """vLLM in this process, with a copy of the weights that is renewed before each iteration's rollouts."""

    kind: Literal["vllm"] = "vllm"
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """``auto``: bf16 where that is fast. The trainer's own is what the log-probs are compared with."""
    mismatch: MismatchLimits = MismatchLimits()
    """Beyond these the iteration stops before its update."""
    options: dict[str, JsonValue] = Field(default_factory=dict)
    """Further arguments of ``vllm.LLM`` (``max_num_seqs``, ``gpu_memory_utilization`` …), see
    `engine_options`."""

    @model_validator(mode="after")
    def _own_options_are_ours(self) -> "VllmEngine":
        taken = sorted(set(self.options) & set(OWN_OPTIONS))
        if taken:
            raise ValueError(
                f"options {taken!r} are set by the sampler, in one process with the trainer's weights"
                f"; leave them out"
            )
        return self


EngineConfig = Annotated[TransformersEngine | VllmEngine, Field(discriminator="kind")]
