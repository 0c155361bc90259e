"""What a refused, broken or late HTTP exchange stands for.

A ``detail`` may end in files and reports, so it holds neither keys nor graded text: a server's own words are
kept only where they quote nothing of the prompt.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from axiomrm.data.verdict import Failed, FailureKind

_LONGEST = 300
_QUOTED_RUN = 8
_TIMEOUTS = frozenset({408, 504, 522, 524})
_AWAY = frozenset({502, 503, 521, 523})
_TOO_MUCH = frozenset({429, 529})
_ITEM = frozenset({400, 413, 422})
"""Codes that can be the fault of one prompt; other 4xx are the fault of the set-up."""
_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size|overflow)|context_length|maximum (context|model) length"
    r"|too long|too many tokens|max_tokens_exceeded|longer than the (model|maximum)",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"insufficient_quota|billing", re.IGNORECASE)
_FILTERED = re.compile(r"content_filter|content.management.policy", re.IGNORECASE)
_NUMBERS = re.compile(r"\d+(\s*,\s*\d+){3}")


@dataclass(frozen=True)
class Fault:
    """One failed send and what to do about it."""

    failure: Failed
    again: bool = False
    """Whether another send may heal it."""
    broken: bool = False
    """Whether it speaks against the endpoint (the circuit breaker counts it)."""
    odd: bool = False
    """An answer that makes no sense; sent again only a few times."""
    retry_after_s: float = 0.0
    """What the server asked us to wait."""
    code: int = 0
    """HTTP status, where there was one."""


def fault(kind: FailureKind, detail: str, **what: Any) -> Fault:
    """A fault with its failure."""
    return Fault(Failed(kind=kind, detail=detail[:_LONGEST]), **what)


def status_fault(
    code: int, headers: Mapping[str, str], body: bytes, quotes_prompt: Callable[[str], bool]
) -> Fault:
    """The fault that a status code other than 2xx stands for.

    Codes of a wrong set-up (401, 404 …) are ``engine_error`` and not ``bad_input``: they are no fault of the
    record and must count as failures of the judge.

    Args:
        code: HTTP status.
        headers: of the reply, lower-case names.
        body: of the reply, or its beginning.
        quotes_prompt: whether a text repeats something of the prompt (or the key).
    """
    words = _words(body)
    shown = "its message quotes the prompt and is not shown" if quotes_prompt(words) else words
    detail = f"HTTP {code}: {shown}" if words else f"HTTP {code}"
    return replace(_of_code(code, words, detail, retry_after(headers)), code=code)


def _of_code(code: int, words: str, detail: str, wait: float) -> Fault:
    if (code in _ITEM or code >= 500) and _TOO_LONG.search(words):
        return fault("context_overflow", detail)
    if code in _TOO_MUCH:
        return fault("rate_limited", detail, again=not _NO_CREDIT.search(words), retry_after_s=wait)
    if code in _TIMEOUTS:
        return fault("timeout", detail, again=True, broken=code != 408, retry_after_s=wait)
    if code in _AWAY:
        return fault("unreachable", detail, again=True, broken=True, retry_after_s=wait)
    if code >= 500:
        return fault("engine_error", detail, again=True, broken=True, retry_after_s=wait)
    if code == 413:
        return fault("context_overflow", detail)
    if code in _ITEM:
        return fault("refused" if _FILTERED.search(words) else "bad_input", detail)
    return fault("engine_error", detail)


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that ``Retry-After`` asks for (a number or an HTTP date); 0 where it says nothing usable."""
    value = headers.get("retry-after", "").strip()
    try:
        seconds = float(value)
    except ValueError:
        when, now = _date(value), _date(headers.get("date", "")) or datetime.now(UTC)
        seconds = (when - now).total_seconds() if when is not None else 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


def quoting(texts: Sequence[str], secrets: Sequence[str] = ()) -> Callable[[str], bool]:
    """A test whether a message repeats eight characters of a text in a row, a secret, or a list of ids.

    Case, blanks and the escapes of JSON make no difference. The texts are escaped as well as the message
    unescaped: a backslash before a quoted piece would take its first letter for an escape.
    """
    hidden = [secret for secret in secrets if secret]

    def quotes(message: str) -> bool:
        if any(secret in message for secret in hidden) or _NUMBERS.search(message) is not None:
            return True
        known = [form for text in texts for form in _forms(text)]
        runs = {run for reading in (_flat(message), _plain(message)) for run in _runs(reading)}
        return any(run in form for run in runs for form in known)

    return quotes


def _forms(text: str) -> set[str]:
    """A text as it is, and as programs write it inside other texts."""
    strict = json.dumps(text, ensure_ascii=False)[1:-1]
    written = (text, strict, strict.replace('\\"', '"'), json.dumps(text)[1:-1], json.dumps(strict)[1:-1])
    return {_flat(text), *map(_plain, written)}


def _runs(text: str) -> Iterator[str]:
    return (text[i : i + _QUOTED_RUN] for i in range(len(text) - _QUOTED_RUN + 1))


def _words(body: bytes) -> str:
    """The server's message, without the rest of its reply where that is JSON."""
    text = body.decode("utf-8", "replace")
    try:
        reply = json.loads(text)
    except ValueError:
        return " ".join(text.split())[:_LONGEST]
    told = reply.get("error", reply) if isinstance(reply, dict) else reply
    if isinstance(told, dict):
        parts = [told.get(name) for name in ("message", "detail", "type", "code")]
        told = "; ".join(str(part) for part in parts if part is not None)
    return " ".join(str(told).split())[:_LONGEST]


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).casefold()


def _flat(text: str) -> str:
    return re.sub(r"(\\[nrt\"']|\s)+", " ", text.replace("\\\\", "\\")).casefold()


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
