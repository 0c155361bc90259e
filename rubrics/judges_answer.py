"""Judges that compare a final answer or result table with ``task.reference``.

The answer is ``metrics["answer"]``, else the last assistant message. The reference is ``task.reference``
itself or its field ``answer`` (``result`` for tables); a list of texts means any of them is right.
"""

import math
import re
import unicodedata
from collections import Counter
from typing import Any, Literal

from pydantic import Field

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Verdict
from axiomrm.rubrics.judge_types import Arguments, metrics_of, recorded, scored
from axiomrm.rubrics.probes import words


class AnswerMatch(Arguments):
    """How an answer is compared."""

    mode: Literal["exact", "normalised", "f1", "numeric"] = "normalised"
    tolerance: float = Field(default=1e-6, ge=0)
    """Numeric only: relative, and absolute below 1."""


class ResultMatch(Arguments):
    """How a result table is compared: by name where all rows of both have the same, else by position."""

    ordered: bool = False
    """Whether the order of rows counts."""
    tolerance: float = Field(default=1e-6, ge=0)
    """Relative, and absolute below 1."""


_MONEY = re.compile(r"(?<![\w.+-])([-+])[$£¥\u20a0-\u20cf] ?(?=[.\d])")
_SIGNS = re.compile(r"((?<![\w.+-])(?:-\.?|\.)(?=\d)|(?<=\d)[.-](?=\d))|[.-]")
_NUMBER = re.compile(
    r"(?:(?<![\w.+-])[-+])?(?:\d[\d,]*(?:\.\d+)?|(?<![\w.])\.\d+)(?:[eE][-+]?\d+)?",
)


def normalised(text: str) -> str:
    """Lower case, NFKC, without punctuation, articles and repeated blanks.

    The minus and the point of a number stay: ``-5`` is not ``5``, ``.5`` is not ``5``, and ``+5`` is.
    """
    text = _signed(unicodedata.normalize("NFKC", text)).casefold()
    text = _SIGNS.sub(lambda m: m.group(1) or " ", re.sub(r"[^\w\s.%-]", " ", text))
    return " ".join(w for w in text.split() if w not in ("a", "an", "the"))


def _signed(text: str) -> str:
    """With signs directly before their number: the typographic minus and ``-$5`` too."""
    return _MONEY.sub(r"\1", text.replace("\u2212", "-"))


def _reference(trajectory: Trajectory, field: str) -> Any:
    reference = trajectory.task.reference
    return reference.get(field) if isinstance(reference, dict) else reference


def _answer(trajectory: Trajectory) -> str | None:
    value = metrics_of(trajectory).get("answer")
    if value is not None:
        return str(value)
    last = [m.content for m in trajectory.messages if m.is_action and m.content.strip()]
    return last[-1] if last else None


def token_f1(answer: str, reference: str) -> float:
    """Harmonic mean of precision and recall over words; a signed number is a word."""
    got, want = Counter(_tokens(answer)), Counter(_tokens(reference))
    both = sum((got & want).values())
    if not both:
        return float(not got and not want)
    return 2 * both / (sum(got.values()) + sum(want.values()))


def _tokens(text: str) -> list[str]:
    out: list[str] = []
    for part in normalised(text).split():
        sign = part[: len(part) - len(part.lstrip("-."))]
        found = words(part)
        out += [sign + found[0], *found[1:]] if found else []
    return out


def answer_match(trajectory: Trajectory, turn: int | None, args: AnswerMatch) -> Verdict:
    """The answer against the reference: exact, normalised, token F1 or numeric tolerance."""
    if metrics_of(trajectory).get("runner_error"):
        return Failed(
            kind="infrastructure", detail=f"runner crashed: {metrics_of(trajectory)['runner_error']}"[:300]
        )
    reference, answer = _reference(trajectory, "answer"), _answer(trajectory)
    if reference is None:
        return CannotAssess(reason="task.reference has no answer")
    if answer is None:
        return scored(0.0, "no_answer")
    options = reference if isinstance(reference, list | tuple) else [reference]
    value = max((_compare(answer, option, args) for option in options), default=0.0)
    return scored(value, "match" if value == 1 else "" if value else "no_match")


def _compare(answer: str, reference: Any, args: AnswerMatch) -> float:
    if args.mode == "exact":
        return float(answer == str(reference))
    if args.mode == "normalised":
        return float(normalised(answer) == normalised(str(reference)))
    if args.mode == "f1":
        return token_f1(answer, str(reference))
    got, want = _last_number(answer), _last_number(str(reference))
    return float(got is not None and want is not None and close(got, want, args.tolerance))


def _last_number(text: str) -> float | None:
    found = _NUMBER.findall(_signed(text))
    return float(found[-1].replace(",", "")) if found else None


def close(a: float, b: float, tolerance: float) -> bool:
    """Within ``tolerance`` relative to the larger of the two, or absolute below 1."""
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def result_match(trajectory: Trajectory, turn: int | None, args: ResultMatch) -> Verdict:
    """The result table against the reference table, a list of rows."""
    value, missing = recorded(trajectory, "result")
    if missing:
        return missing
    reference = _reference(trajectory, "result")
    if reference is None:
        return CannotAssess(reason="task.reference has no result")
    by_name = _same_names(value, reference)
    got, want = _rows(value, by_name), _rows(reference, by_name)
    if got is None or want is None:
        return Failed(kind="infrastructure", detail="'result' and its reference must be lists of rows")
    if not args.ordered:
        got, want = sorted(got, key=_key), sorted(want, key=_key)
    same = len(got) == len(want) and all(
        _same_row(a, b, args.tolerance) for a, b in zip(got, want, strict=True)
    )
    return scored(float(same), "match" if same else "no_match")


def _rows(value: Any, by_name: bool) -> list[list[Any]] | None:
    """Each row as a list; by name: its values in the order of the names."""
    if not isinstance(value, list | tuple):
        return None
    return [_row(r, by_name) for r in value]


def _row(row: Any, by_name: bool) -> list[Any]:
    if isinstance(row, dict):
        return [row[name] for name in sorted(row, key=str)] if by_name else list(row.values())
    return list(row) if isinstance(row, list | tuple) else [row]


def _same_names(*tables: Any) -> bool:
    """Whether all rows are mappings with one set of names; a query may name a column otherwise."""
    rows = [row for table in tables if isinstance(table, list | tuple) for row in table]
    return all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows)


def _key(row: list[Any]) -> list[tuple[int, float, str]]:
    return [(0, round(float(v), 6), "") if isinstance(v, int | float) else (1, 0.0, str(v)) for v in row]


def _same_row(a: list[Any], b: list[Any], tolerance: float) -> bool:
    return len(a) == len(b) and all(_same(x, y, tolerance) for x, y in zip(a, b, strict=True))


def _same(x: Any, y: Any, tolerance: float) -> bool:
    numbers = isinstance(x, int | float) and isinstance(y, int | float)
    return close(float(x), float(y), tolerance) if numbers else x == y
