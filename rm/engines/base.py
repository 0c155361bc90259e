"""The engine protocol: the only thing that touches a language model, batch-first.

Each row comes back as a result *or* a ``Failed``, so one bad row never sinks a batch. An engine that has
no token ids (chat HTTP) reads ``Prompt.messages``; the others read ``prefix_ids + suffix_ids``.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from axiomrm.data.verdict import Failed, FailureKind
from axiomrm.errors import ConfigError
from axiomrm.rm.labels import LabelTable


@dataclass(frozen=True)
class Prompt:
    """One judge prompt. ``prefix_ids + suffix_ids`` *is* the prompt, for training, scoring and serving."""

    prefix_ids: tuple[int, ...]
    """Rules, guidelines, reference, conversation: equal for all criteria of a unit, and the prefix for
    turn t begins the prefix for turn t + 1. Empty for engines without ids, like ``suffix_ids``."""
    suffix_ids: tuple[int, ...]
    """Closing fence, turn, criterion, labels, mode, and the chat template's answer opening."""
    messages: tuple[Mapping[str, str], ...]
    nonce: str
    answer: str = ""
    """How the answer begins, before a lead-in forced through a chat; engines with ids do not read it."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The whole prompt."""
        return self.prefix_ids + self.suffix_ids


@dataclass(frozen=True)
class Sampling:
    """How to generate. A row draws from ``(seed, its prompt, how often the prompt stood before it)``, so the
    rest of the batch does not matter and two copies of a prompt are two samples.

    Raises:
        ConfigError: there is no token to write, or the temperature is negative or no number.
    """

    max_new_tokens: int = 128
    """At least 1."""
    temperature: float = 0.7
    """0 = greedy."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no engine can do."""
        if self.max_new_tokens < 1:
            raise ConfigError(f"max_new_tokens {self.max_new_tokens!r}: at least 1")
        if not 0 <= self.temperature < math.inf:
            raise ConfigError(f"temperature {self.temperature!r}: a number from 0 up")


class TokenLogprobs(NamedTuple):
    """One generated token as an HTTP engine reports it."""

    text: str
    top: Mapping[str, float]
    """Token text to log-probability, the most probable ones only."""


@dataclass(frozen=True)
class Generation:
    """What a model wrote."""

    text: str
    token_ids: tuple[int, ...]
    """Without the end token; empty where the engine has no ids."""
    stop: Literal["stop", "length"]
    tokens: tuple[TokenLogprobs, ...] = ()
    """Filled by engines without ids that report log-probabilities."""


@dataclass(frozen=True)
class LabelReading:
    """Full-vocabulary log-probabilities of the labels right after the lead-in."""

    logprobs: Mapping[str, float]
    bound: float | None = None
    """Upper bound on the probability of a label missing from ``logprobs``; ``None``: all are known."""


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do; settled when it starts, never renegotiated for one request."""

    token_ids: bool
    logprobs: Literal["exact", "topk", "none"]
    prefix_reuse: bool
    seeds: bool
    max_tokens: int | None = None
    """Longest prompt plus completion; ``None``: unknown."""
    prefill: bool = False
    """No ids, but ``label_logprobs`` works all the same: the server goes on where a begun answer ends."""


class Engine(Protocol):
    """A language model behind two calls. Results stand in the order of the prompts."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""
        ...

    @property
    def identity(self) -> Mapping[str, str]:
        """What makes two engines give different numbers: kind, version, weights, precision; never a key."""
        ...

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        """One completion a prompt."""
        ...

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        """Label log-probabilities after ``prompt + lead-in``, one table a prompt."""
        ...


UNREAD = Failed(kind="engine_error", detail="the engine returned nothing for this row")
"""Stands for a row until its result is there."""
_KINDS: tuple[tuple[str, FailureKind], ...] = (
    (r"\b429\b|rate.?limit|too many requests", "rate_limited"),
    (r"time[d]?.?out|\b408\b|\b504\b|deadline", "timeout"),
    (
        r"context.{0,20}(length|window|overflow)|maximum context|too long|max_tokens_exceeded",
        "context_overflow",
    ),
    (r"refused|unreachable|reset by peer|name or service|\b503\b|\b502\b|disconnect", "unreachable"),
    (r"cancel", "cancelled"),
)


def failure_of(error: BaseException | str) -> Failed:
    """The failure that an engine's error stands for; what is not recognised is ``engine_error``."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    for pattern, kind in _KINDS:
        if re.search(pattern, text, re.IGNORECASE):
            return Failed(kind=kind, detail=text[:300])
    return Failed(kind="engine_error", detail=text[:300])


def too_long(prompt: int, more: int, most: int | None) -> Failed | None:
    """The failure of a prompt of so many tokens, and ``more`` to come, where a model takes ``most``."""
    if most is None or prompt + more <= most:
        return None
    detail = f"prompt of {prompt} tokens + {more} exceeds the model's {most}"
    return Failed(kind="context_overflow", detail=detail)
