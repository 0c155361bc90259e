"""What a loaded model's configuration says: length, end tokens, kind of attention, costs, identity."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download

from axiomrm.errors import ConfigError

PAIR_OVERHEAD = 3
"""Masking, exponentials and narrow heads make a pair of tokens this much dearer than its multiply-adds
(measured on the CPU with a 1 M model)."""
HASHED_WHOLE = 1 << 30
"""Bytes up to which every weight enters the hash."""
HASHED_BLOCK = 1 << 24
SAMPLED_EVERY, SAMPLED = 1 << 20, 1 << 16
"""Of larger files: so many bytes of every so many, and of the end."""
WEIGHTS = ("*.safetensors", "*.bin")


def weights_hash(model: Any) -> str:
    """BLAKE2 over names, shapes and values; of a model above ``HASHED_WHOLE`` bytes every 1,009th value."""
    tensors = model.state_dict()
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    digest = hashlib.blake2b(digest_size=20)
    for name, tensor in sorted(tensors.items()):
        values = tensor.detach().flatten()
        values = values if total <= HASHED_WHOLE else values[::1009]
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(values.contiguous().cpu().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def files_hash(folder_or_id: str) -> str:
    """BLAKE2 over the weight files of a model folder, or of a hub id's local copy.

    Of files above ``HASHED_WHOLE`` bytes together, ``SAMPLED`` bytes of every ``SAMPLED_EVERY`` enter it, and
    the last ``SAMPLED``: training moves every layer and is seen, a few edited bytes may not be.

    Raises:
        ConfigError: there are no weight files, so nothing would tell this judge from another.
    """
    folder = Path(folder_or_id)
    if not folder.is_dir():
        folder = Path(snapshot_download(folder_or_id, local_files_only=True, allow_patterns=list(WEIGHTS)))
    files = sorted(path for pattern in WEIGHTS for path in folder.glob(pattern))
    if not files:
        raise ConfigError(f"model {folder_or_id!r}: no weights ({', '.join(WEIGHTS)}) to know the judge by")
    whole = sum(path.stat().st_size for path in files) <= HASHED_WHOLE
    digest = hashlib.blake2b(digest_size=20)
    for path in files:
        digest.update(f"{path.name} {path.stat().st_size} ".encode())
        for block in _blocks(path) if whole else _sampled(path):
            digest.update(block)
    return digest.hexdigest()


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as handle:
        while block := handle.read(HASHED_BLOCK):
            yield block


def _sampled(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as handle:
        for start in (*range(0, size, SAMPLED_EVERY), max(0, size - SAMPLED)):
            handle.seek(start)
            yield handle.read(SAMPLED)


def end_ids_of(model: Any, tokenizer: Any) -> set[int]:
    """Tokens that end an answer, by generation configuration and tokenizer."""
    configured = getattr(model, "generation_config", None)
    eos = getattr(configured, "eos_token_id", None)
    several = eos if isinstance(eos, list) else [eos]
    return {i for i in (*several, tokenizer.eos_token_id) if i is not None}


def longest_context(model: Any) -> int | None:
    """Positions that the model was built for; ``None``: not said."""
    config = model.config.get_text_config()
    found = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    return int(found) if found else None


def plain_attention(model: Any) -> bool:
    """Whether every layer attends to all earlier tokens, whatever their number, by the configuration."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    window = getattr(config, "sliding_window", None)
    if getattr(config, "use_sliding_window", True) is False or getattr(config, "layer_types", None):
        window = None
    return kinds == {"full_attention"} and not window and steady_length(model) is None


def steady_length(model: Any) -> int | None:
    """Length beyond which positions are turned otherwise, also those before it; ``None``: nowhere."""
    config = model.config.get_text_config()
    scaling = getattr(config, "rope_parameters", None) or {}
    kinds = [scaling] if "rope_type" in scaling else [s for s in scaling.values() if isinstance(s, dict)]
    turns = [s["original_max_position_embeddings"] for s in kinds if s.get("rope_type") == "longrope"]
    return int(min(turns)) if turns else None


def layer_work(model: Any) -> int:
    """Multiply-adds of the layers on one token."""
    return sum(p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name)


def work_balance(model: Any) -> float:
    """Work of the layers on one token over that of attention on one pair, by multiply-adds."""
    config = model.config.get_text_config()
    return float(layer_work(model) / (2 * config.hidden_size * config.num_hidden_layers * PAIR_OVERHEAD))


def cache_bytes(model: Any) -> int:
    """Bytes of keys and values for one token."""
    config = model.config.get_text_config()
    if not getattr(config, "num_attention_heads", None):
        return 1  # no attention, no keys and values
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width * model.dtype.itemsize)


def out_of_memory(error: RuntimeError) -> bool:
    """Whether a smaller batch may work."""
    return isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error)
