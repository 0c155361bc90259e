"""Which engine serves a local model, by the name that users type."""

from typing import TYPE_CHECKING, Literal

from axiomrm.errors import ConfigError

if TYPE_CHECKING:
    from axiomrm.rm.engines.transformers import TransformersEngine
    from axiomrm.rm.engines.vllm import VllmEngine

EngineKind = Literal["transformers", "vllm"]


def load_engine(
    kind: EngineKind, folder_or_id: str, *, dtype: str = "float32", device: str | None = None
) -> "TransformersEngine | VllmEngine":
    """An engine with its tokenizer.

    Raises:
        ImportError: the library is not installed.
        ConfigError: an unknown kind, a device for vLLM, or a model that cannot be loaded.
    """
    if kind == "transformers":
        from axiomrm.rm.engines.transformers import TransformersEngine

        return TransformersEngine.load(folder_or_id, dtype=dtype, device=device)
    if kind != "vllm":
        raise ConfigError(f"engine {kind!r}: use 'transformers' or 'vllm'")
    if device is not None:
        raise ConfigError(f"device {device!r}: vLLM takes what it finds; hide devices in the environment")
    from axiomrm.rm.engines.vllm import VllmEngine

    return VllmEngine.load(folder_or_id, dtype=dtype)
