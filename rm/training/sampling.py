"""Balanced labels: the rarest label of a criterion is kept whole, the others are thinned."""

import random
from collections.abc import Iterable

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.errors import ConfigError
from axiomrm.rm.labels import NOT_ASSESSABLE


def balanced(examples: Iterable[JudgeExample], ratio: float = 1.3, seed: int = 0) -> list[JudgeExample]:
    """All examples of a criterion's rarest label and at most ``ratio`` times as many of each other label.

    The cannot-assess label stays as it is: it is neither thinned nor taken for the rarest. A criterion with
    a single label is kept whole.

    Raises:
        ConfigError: ``ratio`` is below 1.
    """
    if ratio < 1:
        raise ConfigError(f"ratio {ratio!r} must be >= 1: the rarest label is kept whole")
    kept: list[tuple[int, JudgeExample]] = []
    cells: dict[str, dict[str, list[tuple[int, JudgeExample]]]] = {}
    for index, example in enumerate(examples):
        if example.label == NOT_ASSESSABLE:
            kept.append((index, example))
        else:
            cells.setdefault(example.criterion_id, {}).setdefault(example.label, []).append((index, example))
    for criterion, by_label in cells.items():
        limit = int(ratio * min(map(len, by_label.values())))
        for label, several in by_label.items():
            rng = random.Random(f"{seed} {criterion} {label}")
            kept += several if len(several) <= limit or len(by_label) == 1 else rng.sample(several, limit)
    return [example for _, example in sorted(kept, key=lambda item: item[0])]
