"""Which states are the same: ``info["state_key"]`` in one plain form, and its hash.

Two keys are equal where their canonical JSON is (`canonical_json`): the order of a dict does not matter, a
tuple is a list, an array or tensor is its ``tolist()``, whole. ``1``, ``1.0`` and ``True`` are three keys.
"""

import hashlib
import math
from collections.abc import Mapping
from typing import Any

from axiomrm.data.trajectory import canonical_json

PLAIN = "a plain JSON value: text, finite numbers, booleans, lists, dicts with text keys, arrays of these"


def plain_key(value: Any) -> Any:
    """``value`` in its plain form.

    Raises:
        ValueError: it has none; says which part of it and what was expected.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return float(value)  # NumPy's is one too
    if isinstance(value, str):
        value.encode()  # a lone surrogate is no text; UnicodeEncodeError is a ValueError
        return str(value)
    if isinstance(value, list | tuple):
        return [plain_key(item) for item in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {plain_key(key): plain_key(item) for key, item in value.items()}
    listed = value.tolist() if hasattr(value, "tolist") else value
    if type(listed) is type(value):
        raise ValueError(f"{type(value).__name__} in it, expected {PLAIN}")
    return plain_key(listed)


def anchor(state_key: Any) -> int | None:
    """The hash of a state, the same in every process; ``None`` = it was not told.

    Raises:
        ValueError: as ``plain_key``.
    """
    if state_key is None:
        return None
    text = canonical_json(plain_key(state_key))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
