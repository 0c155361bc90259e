"""Counter-based random numbers: keyed by what they are for, independent of who else is in the batch."""

import hashlib

import numpy as np

Part = str | int


def generator(*parts: Part) -> np.random.Generator:
    """A generator keyed by ``parts`` (run seed, purpose, task, rollout, turn …); same parts, same draws."""
    digest = hashlib.sha256("\x1f".join(str(part) for part in parts).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def derived_seed(*parts: Part) -> int:
    """A 31-bit seed for an environment or library that wants an integer."""
    return int(generator(*parts).integers(2**31 - 1))
