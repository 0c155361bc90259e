"""Label tokens: every verdict label is exactly one token after the lead-in ``verdict[nonce]=``.

The full-vocabulary probabilities of these tokens are the judge's reading, so a label of two tokens would
share its first one with others. :func:`label_table` proves the property at load, not at run time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from axiomrm.errors import ConfigError

NOT_ASSESSABLE = "X"
"""The label for "the recording does not tell"; present in every set, it has no value."""
LEVELS = "0123456"
CHOICES = "ABCDEFGHIJKLMNOPQRSTUVWYZ"


class Label(NamedTuple):
    """One legal answer."""

    token: str
    """What the judge writes after the lead-in."""
    value: float | None
    """In [0, 1]; ``None`` only for the cannot-assess label."""
    text: str = ""
    """What the label means, as printed in the prompt."""
    name: str = ""
    """What the verdict shows instead of the token (a severity, an option); empty = the token."""


@dataclass(frozen=True)
class LabelSet:
    """The legal answers to one criterion, cannot-assess last."""

    labels: tuple[Label, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The label tokens, in prompt order."""
        return tuple(label.token for label in self.labels)

    @property
    def values(self) -> dict[str, float]:
        """Token to value, without the cannot-assess label."""
        return {label.token: label.value for label in self.labels if label.value is not None}

    @property
    def names(self) -> dict[str, str]:
        """Token to the name a verdict shows."""
        return {label.token: label.name or label.token for label in self.labels}


def label_set(labels: Sequence[Label]) -> LabelSet:
    """A checked set, with the cannot-assess label added at the end.

    Raises:
        ConfigError: a doubled or empty token, a value outside [0, 1], or no label at all.
    """
    tokens = [label.token for label in labels]
    if not tokens or len(set(tokens)) != len(tokens) or "" in tokens or NOT_ASSESSABLE in tokens:
        raise ConfigError(f"labels {tokens!r}: need distinct, non-empty tokens other than {NOT_ASSESSABLE!r}")
    for label in labels:
        if label.value is None or not 0 <= label.value <= 1:
            raise ConfigError(f"label {label.token!r}: value {label.value!r} must lie in [0, 1]")
    return LabelSet((*labels, Label(NOT_ASSESSABLE, None, "the recording does not tell")))


def binary_labels(yes: str = "yes", no: str = "no") -> LabelSet:
    """``Y`` = 1, ``N`` = 0."""
    return label_set([Label("Y", 1.0, yes), Label("N", 0.0, no)])


def level_labels(anchors: Sequence[tuple[float, str]]) -> LabelSet:
    """``0`` … ``6`` for 2 to 7 ``(value, text)`` anchors, mild to strong."""
    if not 2 <= len(anchors) <= len(LEVELS):
        raise ConfigError(f"{len(anchors)} anchors: a level scale has 2 to {len(LEVELS)}")
    return label_set([Label(LEVELS[i], value, text) for i, (value, text) in enumerate(anchors)])


def pair_labels() -> LabelSet:
    """``A`` = 1, ``T`` = 0.5, ``B`` = 0: how far the first answer is ahead."""
    return label_set(
        [Label("A", 1.0, "the first is better"), Label("B", 0.0, "the second"), Label("T", 0.5, "a tie")]
    )


def choice_labels(options: Sequence[tuple[str, float, str]]) -> LabelSet:
    """Letters (never ``X``) for ``(name, value, text)`` options; the verdict shows the names."""
    if not 2 <= len(options) <= len(CHOICES):
        raise ConfigError(f"{len(options)} options: a choice has 2 to {len(CHOICES)}")
    return label_set([Label(CHOICES[i], v, text, name) for i, (name, v, text) in enumerate(options)])


BINARY = binary_labels()


@dataclass(frozen=True)
class LabelTable:
    """Where a reading happens: the forced lead-in and one id per label."""

    lead_in: str
    """The lead-in as text (all an HTTP engine has)."""
    lead_in_ids: tuple[int, ...]
    label_ids: Mapping[str, int]


def label_table(encodings: Mapping[str, Sequence[int]], lead_in: str = "") -> LabelTable:
    """Ids of the lead-in and of each label.

    Args:
        encodings: label to the ids of ``lead_in + label``.
        lead_in: the lead-in as text, kept and used in messages.

    Returns:
        The longest common id prefix as lead-in, and the one id that each label adds.

    Raises:
        ConfigError: some label adds no id or several; the message names each of them.
    """
    rows = [tuple(ids) for ids in encodings.values()]
    shared = 0
    while all(len(row) > shared for row in rows) and len({row[shared] for row in rows}) == 1:
        shared += 1
    bad = [label for label, ids in encodings.items() if len(ids) - shared != 1]
    last = {label: ids[-1] for label, ids in encodings.items() if label not in bad}
    bad += [label for label, ids in last.items() if list(last.values()).count(ids) > 1]
    if bad or len(rows) < 2:
        raise ConfigError(
            f"labels {bad!r} are not one distinct token after {lead_in or 'the lead-in'!r} here: "
            "use single letters or the digits 0-6, or another tokenizer"
        )
    return LabelTable(lead_in, rows[0][:shared], last)
