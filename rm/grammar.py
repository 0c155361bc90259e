"""The answer grammar: writing it for training rows, and parsing what a judge generated.

    answer  = [ "notes: " text LF quotes ] verdict
    quotes  = "quote none" LF / 1*3( "quote t" 1*DIGIT ": " DQUOTE text DQUOTE LF )
    verdict = "verdict[" nonce [ "." 1*DIGIT ] "]=" label

The parser sees generated text only, never the prompt and never the graded text. The *last* whole line
with this request's nonce decides; an illegal label there is a failure, with no retreat to an earlier line.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from axiomrm.data.verdict import Failed
from axiomrm.rm.neutral import hidden_characters, strip_hidden

GRAMMAR_VERSION = "1"
StopReason = Literal["stop", "length"]
_THINK = "think|thinking|reasoning"
_CLOSE_THINK = re.compile(rf"</(?:{_THINK})>", re.IGNORECASE)
_OPEN_THINK = re.compile(rf"(?im)^\s*<(?:{_THINK})>")
_FENCE = re.compile(r"(`{3,}|~{3,})(.*)")
_VERDICT = re.compile(r"verdict\[(?P<nonce>[^\].\s]+)(?:\.(?P<item>\d+))?\]\s*=(?P<label>.*)", re.IGNORECASE)
_QUOTE = re.compile(r'quote t(\d+): "(.*)"')


class Quote(NamedTuple):
    """Words that a critique says it copied."""

    turn: int
    """0-based; ``t1`` in the text is turn 0."""
    text: str


@dataclass(frozen=True)
class Answer:
    """A legal verdict line and what stood before it."""

    label: str
    notes: str = ""
    quotes: tuple[Quote, ...] = ()
    flags: tuple[str, ...] = ()
    at: int | None = None
    """Offset, in the generated text, at which the deciding line starts."""


class Cleaned(NamedTuple):
    """Normalised text and, for each of its characters, the offset in the original."""

    text: str
    offsets: Sequence[int]


class Line(NamedTuple):
    """One line outside code fences and quotations, without blanks and stars at its ends."""

    text: str
    last: bool
    """No line break follows it."""
    start: int
    """Offset of the line in the text that was split."""


def lead_in(nonce: str, item: int | None = None) -> str:
    """What stands before the label."""
    return f"verdict[{nonce}{'' if item is None else f'.{item}'}]="


def notes_text(notes: str, quotes: Sequence[Quote] = ()) -> str:
    """The lines before the verdict line, each on one line, ending in a line break."""
    lines = [f"notes: {_one_line(notes)}"]
    lines += [f'quote t{quote.turn + 1}: "{_one_line(quote.text)}"' for quote in quotes[:3]] or ["quote none"]
    return "\n".join(lines) + "\n"


def answer_text(label: str, nonce: str, notes: str | None = None, quotes: Sequence[Quote] = ()) -> str:
    """A whole answer: the verdict line alone for ``notes=None``."""
    before = "" if notes is None else notes_text(notes, quotes)
    return before + lead_in(nonce) + label


def clean(text: str) -> Cleaned:
    """Without thinking block and hidden characters, NFKC, LF line ends.

    Normalised character by character, so that each offset still names a place in ``text``.
    """
    closings = list(_CLOSE_THINK.finditer(text))
    start = closings[-1].end() if closings else 0
    if text.isascii() and "\r" not in text and not hidden_characters(text):
        return Cleaned(text[start:], range(start, len(text)))
    out: list[str] = []
    offsets: list[int] = []
    for at, character in enumerate(text[start:], start):
        kept = "" if character == "\r" else strip_hidden(unicodedata.normalize("NFKC", character))
        out.append(kept)
        offsets += [at] * len(kept)
    return Cleaned("".join(out), offsets)


def visible_lines(text: str) -> list[Line]:
    """The lines that can carry a verdict: neither in a code fence nor quoted with ``>``."""
    kept: list[Line] = []
    fence, start = "", 0
    for raw in text.split("\n"):
        line, at, start = raw.strip(), start, start + len(raw) + 1
        mark = _FENCE.match(line)
        if mark and fence:
            if mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark and not (mark[1][0] == "`" and "`" in mark[2]):
            fence = mark[1]
        elif not fence and not line.startswith(">"):
            kept.append(Line(line.strip("* \t"), start > len(text), at))
    return kept


def parse(text: str, labels: Sequence[str], nonce: str, stop: StopReason = "stop") -> Answer | Failed:
    """The verdict that a judge wrote.

    Args:
        text: the generated text alone.
        labels: the legal labels, cannot-assess included.
        nonce: this request's nonce; lines with another one are somebody else's.
        stop: whether generation ended by itself or ran out of budget.
    """
    body = _body(text)
    if isinstance(body, Failed):
        return body
    lines = visible_lines(body.text)
    found = [(m, line) for line in lines if (m := _verdict(line.text, nonce)) and not m["item"]]
    if not found:
        return _missing(f"no line {lead_in(nonce)}… in {text[:200]!r}", stop)
    last, line = found[-1]
    if line.last and stop == "length":
        return Failed(kind="truncated", detail=f"cut inside the verdict line {last[0][:80]!r}")
    label = _label(last)
    if label not in labels:
        return _illegal(label, labels)
    seen = {other for m, _ in found if (other := _label(m)) in labels}
    notes, quotes = critique_of(body.text)
    return Answer(label, notes, quotes, ("revised",) if len(seen) > 1 else (), body.offsets[line.start])


class _ItemLine(NamedTuple):
    label: str
    at: int
    cut: bool


def parse_items(
    text: str,
    labels: Sequence[str] | Mapping[int, Sequence[str]],
    nonce: str,
    items: Sequence[int],
    stop: StopReason = "stop",
) -> tuple[dict[int, Answer | Failed], int]:
    """Joint mode: one outcome for each asked item, and how many lines named items never asked.

    An item that is missing, stands twice or was cut by the budget is ``incomplete``, alone.

    Args:
        text: the generated text alone.
        labels: the legal labels of all items, or of each.
        nonce: this request's nonce.
        items: the numbers that were asked.
        stop: as in :func:`parse`.
    """
    legal = labels if isinstance(labels, Mapping) else dict.fromkeys(items, labels)
    body = _body(text)
    if isinstance(body, Failed):
        return dict.fromkeys(items, body), 0
    found: dict[int, list[_ItemLine]] = {}
    for line in visible_lines(body.text):
        m = _verdict(line.text, nonce)
        if m and m["item"]:
            number = int(m["item"]) if len(m["item"]) < 10 else -1
            written = _ItemLine(_label(m), body.offsets[line.start], line.last and stop == "length")
            found.setdefault(number, []).append(written)
    notes, quotes = critique_of(body.text)
    outcomes = {item: _item(item, found.get(item, []), legal[item], (notes, quotes)) for item in items}
    return outcomes, sum(len(found[item]) for item in found if item not in outcomes)


def _item(
    item: int, lines: Sequence[_ItemLine], labels: Sequence[str], critique: tuple[str, tuple[Quote, ...]]
) -> Answer | Failed:
    if len(lines) != 1 or lines[0].cut:
        how_often = f"{len(lines)} times, not once" if len(lines) != 1 else "once, cut by the budget"
        return Failed(kind="incomplete", detail=f"item {item} stands {how_often}")
    if lines[0].label not in labels:
        return _illegal(lines[0].label, labels, f"item {item}: ")
    return Answer(lines[0].label, *critique, at=lines[0].at)


def _illegal(label: str, labels: Sequence[str], place: str = "") -> Failed:
    return Failed(kind="illegal_label", detail=f"{place}label {label[:80]!r} is none of {list(labels)}")


def missing_verdict(detail: str, stop: StopReason) -> Failed:
    """``truncated`` if the budget ran out, else ``no_verdict``."""
    return _missing(detail, stop)


def _missing(detail: str, stop: StopReason) -> Failed:
    return Failed(kind="truncated" if stop == "length" else "no_verdict", detail=detail)


def _body(text: str) -> Cleaned | Failed:
    body = clean(text)
    if _OPEN_THINK.search(body.text):
        return Failed(kind="truncated", detail="the thinking block was never closed")
    return body


def _verdict(line: str, nonce: str) -> re.Match[str] | None:
    m = _VERDICT.fullmatch(line)
    return m if m and m["nonce"] == nonce else None


def _label(match: re.Match[str]) -> str:
    return match["label"].strip("* \t")


def critique_of(body: str) -> tuple[str, tuple[Quote, ...]]:
    """Notes and quotes of a well-formed critique; empty where the form was not kept."""
    notes: list[str] = []
    quotes: list[Quote] = []
    for line in visible_lines(body):
        quote = _QUOTE.fullmatch(line.text)
        if quote and len(quote[1]) < 10:
            quotes.append(Quote(int(quote[1]) - 1, quote[2]))
        elif not quotes and line.text != "quote none" and not _VERDICT.fullmatch(line.text):
            notes.append(line.text)
    return "\n".join(notes).removeprefix("notes:").strip(), tuple(quotes)


def _one_line(text: str) -> str:
    return " ".join(text.split())
