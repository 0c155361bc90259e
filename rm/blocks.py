"""The texts of a prompt template's blocks, filled in and neutralised."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from axiomrm.rm.labels import BINARY, LabelSet
from axiomrm.rm.neutral import neutralise
from axiomrm.rm.templating import PromptTemplate

Mode = Literal["direct", "critique"]
_STANDARD = {"yes", "no", "the recording does not tell"}
_CACHED = 32768


@dataclass(frozen=True)
class Criterion:
    """One question for the judge."""

    id: str
    ask: str
    labels: LabelSet = BINARY


class Blocks:
    """One template with the control tokens of one tokenizer; whatever it prints is neutralised."""

    def __init__(self, template: PromptTemplate, control: re.Pattern[str]) -> None:
        """Nothing is rendered yet."""
        self.template = template
        self.neutral = lru_cache(_CACHED)(lambda text: neutralise(text, control))
        self._block = lru_cache(_CACHED)(template.block)
        self._once = lru_cache(_CACHED)(self._question)

    def system(self, guidelines: str) -> str:
        """Rules and guidelines."""
        return self._block("system", guidelines=self.neutral(guidelines).strip()).rstrip("\n")

    def opening(self, nonce: str, reference: str) -> str:
        """From the start of the user message up to the recording."""
        return self._block("open", nonce=nonce, reference=self.neutral(reference).strip())

    def closing(self, nonce: str, turn: int) -> list[str]:
        """What follows the recording, a piece for each block; ``turn`` from 1, 0 for all turns."""
        return [self._block("close", nonce=nonce), self._block("look", turn=turn)]

    def question(self, criteria: Sequence[Criterion], mode: Mode, nonce: str) -> str:
        """One criterion alone, or several numbered from 1."""
        return self._once(tuple(criteria), mode, nonce)

    def _question(self, criteria: tuple[Criterion, ...], mode: Mode, nonce: str) -> str:
        asked = [{"ask": self.neutral(c.ask).strip(), "labels": self._labels(c.labels)} for c in criteria]
        values: dict[str, Any] = {"nonce": nonce, "mode": "notes" if mode == "critique" else "direct"}
        if len(asked) == 1:
            return self.template.block("question", **values, **asked[0]).rstrip("\n")
        return self.template.block("joint", **values, items=asked).rstrip("\n")

    def _labels(self, labels: LabelSet) -> list[dict[str, Any]]:
        return [
            {"token": label.token, "text": self.neutral(label.text), "standard": label.text in _STANDARD}
            for label in labels.labels
        ]
