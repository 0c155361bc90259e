"""One form of Unicode for all that is compared: NFC, in which é is one character."""

import unicodedata
from collections.abc import Mapping
from typing import Any


def nfc(value: Any) -> Any:
    """The value with its texts in NFC, within lists, sets and mappings too."""
    if isinstance(value, str):
        return unicodedata.normalize("NFC", value)
    if isinstance(value, Mapping):
        return {nfc(k): nfc(v) for k, v in value.items()}
    for kind in (list, tuple, set, frozenset):
        if isinstance(value, kind):
            return kind(nfc(v) for v in value)
    return value
