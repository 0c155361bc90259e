"""Parsers for judges that do not speak our grammar.

Each takes generated text alone, reads the *last* verdict, and returns a failure for anything it cannot
read in full: no first number, no substring, no clipping, no default.
"""

import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from axiomrm.data.verdict import Failed, Scored
from axiomrm.rm.grammar import StopReason, clean, missing_verdict, visible_lines

_BRACKETS = re.compile(r"\[\[([^\[\]\n]{0,40})\]\]")
_RESULT = re.compile(r"\[RESULT\]([^\n]*)")
_NUMBER = re.compile(r"[+-]?\d{1,9}(?:\.\d{1,9})?")
_OBJECT_START = re.compile(r"\{\s*[\"}]")


def bracket_pair(text: str, labels: Sequence[str], stop: StopReason = "stop") -> Scored | Failed:
    """The last ``[[A]]``; the value is 1 for the first label, 0 for the second, 0.5 for any other."""
    body = "\n".join(line.text for line in visible_lines(clean(text).text))
    found = list(_BRACKETS.finditer(body))
    if not found or (stop == "length" and body[found[-1].end() :].strip()):
        return missing_verdict(f"no closing [[label]] in {text[:200]!r}", stop)
    label = found[-1][1].strip()
    if label not in labels:
        return Failed(kind="illegal_label", detail=f"[[{label}]] is none of {list(labels)}")
    return _sampled({0: 1.0, 1: 0.0}.get(list(labels).index(label), 0.5), label)


def result_line(text: str, bounds: tuple[float, float], stop: StopReason = "stop") -> Scored | Failed:
    """The last ``[RESULT] n``, which ends its line, mapped from ``bounds`` to [0, 1]."""
    lines = visible_lines(clean(text).text)
    found = [(m, line.last) for line in lines for m in _RESULT.finditer(line.text)]
    if not found or (stop == "length" and found[-1][1]):
        return missing_verdict(f"no [RESULT] in {text[:200]!r}", stop)
    written = found[-1][0][1].strip(" *\t").removesuffix(".")
    if not _NUMBER.fullmatch(written):
        return Failed(kind="illegal_label", detail=f"[RESULT] {written!r} is not one number")
    return _in_range(float(written), bounds)


def json_score(text: str, bounds: tuple[float, float], stop: StopReason = "stop") -> Scored | Failed:
    """Field ``score`` of the last top-level JSON object, mapped from ``bounds`` to [0, 1]."""
    last = _last_object(clean(text).text)
    if last is None or (isinstance(last, dict) and "score" not in last):
        return missing_verdict(f"no JSON object with a score in {text[:200]!r}", stop)
    score = last["score"] if isinstance(last, dict) else last
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return Failed(kind="illegal_label", detail=f"score {str(score)[:80]!r} is not a finite number")
    return _in_range(float(score), bounds)


FOREIGN: dict[str, Callable[..., Scored | Failed]] = {
    "bracket_pair": bracket_pair,
    "result_line": result_line,
    "json_score": json_score,
}
"""Parser by name; ``own`` is :func:`axiomrm.rm.grammar.parse`."""


def _in_range(number: float, bounds: tuple[float, float]) -> Scored | Failed:
    low, high = bounds
    if not low <= number <= high:
        return Failed(kind="illegal_label", detail=f"score {number:g} lies outside {low:g} to {high:g}")
    return _sampled((number - low) / (high - low), f"{number:g}")


def _sampled(value: float, label: str) -> Scored:
    return Scored(value=value, label=label, mode="critique", readout="sampled")


def _last_object(text: str) -> dict[str, Any] | str | None:
    """The last top-level object; a string where its ``score`` cannot be trusted; ``None``: there is none."""
    last: dict[str, Any] | str | None = None
    at = 0
    while (at := text.find("{", at)) >= 0:
        end = _closing(text, at)
        looks_like_object = _OBJECT_START.match(text, at)
        if end is None:
            # An object that never closes must not let one of its inner objects decide.
            if looks_like_object:
                return None
            at += 1
            continue
        if looks_like_object:
            last = _load(text[at : end + 1])
        at = end + 1 if looks_like_object else at + 1
    return last


def _load(source: str) -> dict[str, Any] | str:
    try:
        loaded = json.loads(source, object_pairs_hook=_no_doubles, strict=False)
    except (ValueError, RecursionError):
        return f"malformed: {source[:60]}"
    return loaded if isinstance(loaded, dict) else str(loaded)


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("doubled key")
    return dict(pairs)


def _closing(text: str, start: int) -> int | None:
    """Index of the brace that closes the one at ``start``; braces inside JSON strings do not count."""
    depth, quoted, at = 0, False, start
    while at < len(text):
        c = text[at]
        if quoted:
            at += c == "\\"
            quoted = c != '"'
        elif c == '"':
            quoted = True
        elif c in "{}":
            depth += 1 if c == "{" else -1
            if depth == 0:
                return at
        at += 1
    return None
