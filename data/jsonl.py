"""JSON records from files: a bad one is rejected with file, line and reason, the rest load.

A line is what ends in a line feed, nothing else: U+2028, U+0085 and form feeds are text. Beyond Python's
``json`` a record is refused for what would only hurt later: a key that stands twice, a number beyond the
range of a float, a lone surrogate (half an emoji, cannot be encoded), nesting deeper than `MAX_DEPTH`.
``NaN`` is read (missing), ``Infinity`` is not.
"""

import codecs
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from axiomrm.errors import DataError

T = TypeVar("T")

MAX_DEPTH = 100
"""Levels of lists and objects in a record: far above any log, far below the writers' recursion limit."""


GZIP = b"\x1f\x8b"
OPENINGS = (b"{", b"[", b"[{")
"""First lines of a value that is printed over several."""


class Rejected(NamedTuple):
    """A record that was not loaded."""

    file: str
    line: int
    """1-based; in a ``.json`` document, the line on which the record starts."""
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass
class ReadResult(Generic[T]):
    """What a file held: iterate over it for the loaded records, look at ``rejected`` for the others."""

    records: list[T] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)

    def __iter__(self) -> Iterator[T]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> T:
        return self.records[index]


class Record(NamedTuple):
    """One JSON object and the line it starts on."""

    line: int
    value: dict[str, Any]


def read_records(path: str | Path) -> Iterator[Record | Rejected]:
    """The records of a JSONL file, lazily; or of a ``.json`` document (an array of records, or one record).

    Empty lines are skipped.

    Raises:
        DataError: there is no such file, it cannot be opened, or it is of another form as a whole.
    """
    path = Path(path)
    try:
        handle = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; expected a JSONL file") from error
    with handle:
        refuse_other_forms(handle, path)
        if path.suffix == ".json":
            document = _document(handle.read(), str(path))
            if document is not None:
                yield from document
                return
            handle.seek(0)  # JSON lines are often saved as .json
        yield from _lines(handle, str(path))


def refuse_other_forms(handle: BufferedReader, path: Path) -> None:
    """Refuse what is no JSONL file as a whole, so that not each of its lines is rejected.

    Args:
        handle: at the beginning of the file, and left there.
        path: for messages; a ``.json`` document may have several lines.

    Raises:
        DataError: compressed by gzip, or one JSON value over several lines.
    """
    head = handle.peek(64)
    if head.startswith(GZIP):
        raise DataError(f"{path}: gzip-compressed; unpack it (gunzip) and give the unpacked file")
    first, line_end, _ = head.removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")
    if path.suffix == ".json" or not line_end or first.strip() not in OPENINGS or not handle.seekable():
        return
    whole = _document(handle.read(), str(path)) is not None
    handle.seek(0)
    if whole:
        raise DataError(
            f"{path}: holds one JSON value over several lines; name it {path.with_suffix('.json').name}, "
            "or write one record a line"
        )


def parse_object(text: str) -> dict[str, Any]:
    """One JSON object.

    Raises:
        DataError: ``text`` is not JSON, not an object, or refused by the rules in the module's docstring.
    """
    value = _parse(text)
    if not isinstance(value, dict):
        raise DataError(f"expected a JSON object with 'messages', found {_kind(value)}")
    check_value(value)
    return value


def check_value(value: Any) -> None:
    """Refuse lone surrogates and too deep nesting anywhere in ``value``.

    Raises:
        DataError: names the place, like ``messages[2].content``.
    """
    stack: list[tuple[Any, str, int]] = [(value, "", 0)]
    while stack:
        node, place, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise DataError(f"{place[:80]}…: nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, str):
            _check_text(node, place)
        elif isinstance(node, dict):
            for key, child in node.items():
                _check_text(key, f"a key of {place or 'the record'}")
                stack.append((child, f"{place}.{key}" if place else key, depth + 1))
        elif isinstance(node, list):
            stack.extend((child, f"{place}[{i}]", depth + 1) for i, child in enumerate(node))


def _check_text(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = f"\\u{ord(text[error.start]):04x}"
        raise DataError(
            f"{place}: lone surrogate {found} at character {error.start} (a cut emoji?)"
        ) from error


def _lines(handle: Any, file: str) -> Iterator[Record | Rejected]:
    for number, raw in enumerate(handle, start=1):
        raw = raw.removeprefix(codecs.BOM_UTF8)  # not only on line 1: files are joined with cat
        if not raw.strip():
            continue
        try:
            yield Record(number, parse_object(_decode(raw)))
        except DataError as error:
            # Only the last line can lack its line feed: the mark of a writer that was killed.
            cut = "" if raw.endswith(b"\n") else " (last line without a line end: half-written?)"
            yield Rejected(file, number, f"{error}{cut}")


def _document(raw: bytes, file: str) -> list[Record | Rejected] | None:
    """The records of one JSON document; ``None``: it is not a single document."""
    try:
        text = _decode(raw.removeprefix(codecs.BOM_UTF8))
        value = _parse(text)
    except DataError:
        return None
    if isinstance(value, dict):
        return [_checked(Record(1, value), file)]
    if not isinstance(value, list):
        return None
    if value and all(isinstance(item, dict) and "role" in item for item in value):
        return [_checked(Record(1, {"messages": value}), file)]  # the bare messages of one conversation
    return [_checked(Record(line, item), file) for line, item in zip(_starts(text), value, strict=True)]


def _starts(text: str) -> Iterator[int]:
    """The line on which each element of the JSON array ``text`` starts."""
    decoder = json.JSONDecoder()
    at = text.index("[") + 1
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return
        yield text.count("\n", 0, at) + 1
        _, at = decoder.raw_decode(text, at)


def _checked(record: Record, file: str) -> Record | Rejected:
    try:
        if not isinstance(record.value, dict):
            raise DataError(f"expected a JSON object with 'messages', found {_kind(record.value)}")
        check_value(record.value)
    except DataError as error:
        return Rejected(file, record.line, str(error))
    return record


def _decode(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        hint = "UTF-16?" if raw[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "Latin-1?"
        where = f"byte 0x{raw[error.start]:02x} at position {error.start}"
        raise DataError(f"not UTF-8: {where} ({hint}); save the file as UTF-8") from error


def _parse(text: str) -> Any:
    try:
        return json.loads(
            text, object_pairs_hook=unique_keys, parse_float=finite_float, parse_constant=_constant
        )
    except RecursionError as error:
        raise DataError(f"not readable JSON: nested deeper than {MAX_DEPTH} levels") from error
    except json.JSONDecodeError as error:
        raise DataError(f"not valid JSON: {error.msg} at column {error.colno}") from error
    except DataError:
        raise
    except ValueError as error:  # an integer of more than 4300 digits
        raise DataError(f"not readable JSON: {error}") from error


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """``object_pairs_hook`` for ``json.loads``.

    Raises:
        DataError: a key stands twice; which value counts would be a guess.
    """
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DataError(f"ambiguous JSON: key {twice!r} stands twice in one object")
    return value


def finite_float(text: str) -> float:
    """``parse_float`` for ``json.loads``.

    Raises:
        DataError: the number would become infinity.
    """
    number = float(text)
    if math.isinf(number):
        raise DataError(f"JSON number {text[:40]} is beyond the range of a float")
    return number


def _constant(name: str) -> float:
    if name != "NaN":
        raise DataError(f"{name} is not a JSON number; write null (or NaN) for a missing one")
    return math.nan


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def found_instead(found: object, expected: str) -> str:
    """``found … (its type), expected …``, also of a value whose repr raises."""
    try:
        shown = shorten(found)
    except (Exception, SystemExit, GeneratorExit):  # a stranger's code; an interrupt still stops
        shown = "something without a repr"
    return f"found {shown} ({type(found).__name__}), expected {expected}"


def shorten(value: Any) -> str:
    """``value`` for a message: its repr, cut after 80 characters."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
