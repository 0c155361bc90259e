"""Loading a local model, and which precision it gets."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from axiomrm.errors import ConfigError

log = logging.getLogger(__name__)
DTYPES = ("float32", "bfloat16", "float16")
CONFIGS = ("config.json", "adapter_config.json")
WEIGHTS = ("*.safetensors", "*.bin", "*.safetensors.index.json", "*.bin.index.json")


def load_model(folder_or_id: str, *, dtype: str, device: str) -> tuple[Any, Any]:
    """Model on its device, and tokenizer.

    Raises:
        ConfigError: an unknown dtype, a device that is not here, or nothing loadable there.
    """
    check_device(device)
    chosen = torch_dtype(dtype, device)
    transformers.utils.logging.disable_progress_bar()  # bars are the command line's, ours
    with _loading(folder_or_id):
        tokenizer = AutoTokenizer.from_pretrained(folder_or_id)
        model = AutoModelForCausalLM.from_pretrained(folder_or_id, dtype=chosen, attn_implementation="sdpa")
    return model.to(device), tokenizer


def check_model(folder_or_id: str) -> Any:
    """Whether a model is there, without reading its weights; its tokenizer.

    A name that is no folder is looked for on the hub, where it could be one's.

    Raises:
        ConfigError: nothing there, or no configuration, tokenizer or weights.
    """
    folder = Path(folder_or_id)
    if folder.exists():
        _check_folder(folder)
    else:
        try:
            validate_repo_id(folder_or_id)
        except HFValidationError as error:
            raise ConfigError(f"model {folder_or_id!r}: there is no such folder") from error
    with _loading(folder_or_id):
        if not (folder / "adapter_config.json").is_file():
            AutoConfig.from_pretrained(folder_or_id)
        return AutoTokenizer.from_pretrained(folder_or_id)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise ConfigError(f"model {str(folder)!r}: a file; expected the folder of a causal language model")
    if not any((folder / name).is_file() for name in CONFIGS):
        raise ConfigError(f"model {str(folder)!r}: no {' and no '.join(CONFIGS)} in this folder")
    if not any(file.is_file() for pattern in WEIGHTS for file in folder.glob(pattern)):
        raise ConfigError(f"model {str(folder)!r}: no weights in this folder ({', '.join(WEIGHTS[:2])})")


@contextmanager
def _loading(folder_or_id: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        absent = "" if Path(folder_or_id).exists() else " (no folder of this name here)"
        raise ConfigError(f"model {folder_or_id!r}{absent} cannot be loaded: {reason}") from error


def check_device(name: str) -> None:
    """Put one number there and take it back.

    Raises:
        ConfigError: torch knows no such device, or it is not on this machine.
    """
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"device {name!r}: cannot compute there; use 'cpu', 'cuda' … ({reason})") from error


def torch_dtype(name: str, device: str) -> torch.dtype:
    """The precision; ``auto`` is bf16 where the device computes it fast, else fp32.

    Raises:
        ConfigError: an unknown name.
    """
    if name == "auto":
        name = "bfloat16" if fast_bf16(device) else "float32"
    if name not in DTYPES:
        raise ConfigError(f"dtype {name!r}: use {', '.join(map(repr, DTYPES))} or 'auto'")
    if name == "bfloat16" and not fast_bf16(device):
        log.warning("bfloat16 on this %s saves memory but no time: it has no instructions for it", device)
    return getattr(torch, name)  # type: ignore[no-any-return]  # a dtype, by the check above


def fast_bf16(device: str) -> bool:
    """Whether the device multiplies bf16 faster than fp32; devices other than CPU and CUDA count as not."""
    kind = torch.device(device).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return kind == "cpu" and bool({"avx512_bf16", "amx_bf16", "bf16"} & cpu_flags())


def cpu_flags() -> frozenset[str]:
    """What the kernel says that the processor can do; empty where it says nothing."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as handle:
            lines = [line for line in handle if line.startswith(("flags", "Features"))]
    except OSError:
        return frozenset()
    return frozenset(lines[0].partition(":")[2].split()) if lines else frozenset()
