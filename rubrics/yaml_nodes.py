"""YAML events → a tree of nodes with positions, with the traps of YAML 1.1 refused instead of guessed.

Keys and values are in NFC; ``Node.text`` is as written.

Refused: aliases and anchors, tags, merge keys, duplicate keys, a second document, nesting deeper than 20,
larger than 1 MiB, other encodings than UTF-8, and every unquoted text that YAML would silently turn into
something else (``no``, ``2026-01-12``, ``12:30``, ``010``, ``1_000``).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.text_form import nfc
from axiomrm.rubrics.yaml_faults import yaml_fault

MAX_BYTES = 1 << 20
MAX_DEPTH = 20
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = {".nan": "nan", ".inf": "inf", "+.inf": "inf", "-.inf": "-inf"}
WORDS = {"yes": "true", "no": "false", "on": "true", "off": "false"}
"""Unquoted words that are truth values in YAML 1.1."""
_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}(?:[Tt ].*)?")
_ODD_NUMBER = re.compile(
    r"[-+]?0[0-7_]+|[-+]?0[xXbBoO][0-9a-fA-F_]+|[-+]?\d[\d_]*(?::[0-5]?\d)+(?:\.\d*)?|[-+]?\d[\d_]*_[\d_]*"
)


@dataclass
class Node:
    """One value of the document."""

    value: Any
    """Plain scalar, ``dict[str, Node]`` or ``list[Node]``."""
    line: int
    col: int
    length: int = 1
    key_line: int = 0
    key_col: int = 0
    text: str = ""
    """A scalar as written, without quotes (escapes resolved)."""
    quoted: bool = False
    block: bool = False
    """A ``|`` or ``>`` text: columns inside it are not those of the file."""


class ReadError(Exception):
    """The text is no YAML that we take; carries the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class Reader:
    """Composes one document and collects the findings that do not stop the reading."""

    def __init__(self, text: str, file: str) -> None:
        self.text = text
        self.file = file
        self.rows = text.splitlines()
        self.findings: list[Finding] = []
        self._ends: list[tuple[int, int]] = []

    def finding(
        self, message: str, line: int, col: int, length: int = 1, hint: str = "", fix: str | None = None
    ) -> Finding:
        """An E100 at a place of this file."""
        return Finding("E100", message, self.file, line, col, length, hint, fix=fix)

    def read(self) -> Node | None:
        """The root, or ``None`` for an empty document.

        Raises:
            ReadError: the text cannot be read to the end.
        """
        # A JSON string cannot hold a raw tab, so blanks in their place change nothing there.
        source = self.text.replace("\t", " ") if self.file.endswith(".json") else self.text
        events = self._events(source)
        root = None
        try:
            for event in events:
                if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                    mark: Any = event.start_mark
                    raise ReadError(
                        self.finding("a second document", mark.line + 1, 1, 3, "one rubric a file")
                    )
                if isinstance(event, yaml.NodeEvent):
                    root = self._compose(event, events, 1)
        except yaml.YAMLError as error:
            raise ReadError(self._syntax(error)) from error
        except RecursionError as error:
            raise ReadError(self.finding("nested too deeply", 1, 1)) from error
        self._tabs()
        return root

    def _events(self, source: str) -> Iterator[Any]:
        events: Iterator[Any] = yaml.parse(source, Loader=_Loader)
        for event in events:
            mark = event.start_mark
            if isinstance(event, yaml.AliasEvent):
                raise ReadError(self._alias(mark, f"alias *{event.anchor}"))
            if getattr(event, "anchor", None):
                raise ReadError(self._alias(mark, f"anchor &{event.anchor}"))
            if getattr(event, "tag", None) is not None:
                message = f"tag {event.tag!r} is not allowed"
                raise ReadError(
                    self.finding(message, mark.line + 1, mark.column + 1, 1, "write the plain value")
                )
            yield event

    def _alias(self, mark: Any, what: str) -> Finding:
        hint = "repeat the value, or use 'defaults'"
        return self.finding(f"{what} is not allowed in a rubric", mark.line + 1, mark.column + 1, 1, hint)

    def _compose(self, event: Any, events: Iterator[Any], depth: int) -> Node:
        line, col = event.start_mark.line + 1, event.start_mark.column + 1
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, line, col)
        if depth > MAX_DEPTH:
            raise ReadError(self.finding(f"nested deeper than {MAX_DEPTH}", line, col))
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Node] = []
            for inner in events:
                if isinstance(inner, yaml.SequenceEndEvent):
                    break
                items.append(self._compose(inner, events, depth + 1))
            return Node(items, line, col)
        return self._mapping(events, depth, line, col)

    def _mapping(self, events: Iterator[Any], depth: int, line: int, col: int) -> Node:
        entries: dict[str, Node] = {}
        for event in events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            at = (event.start_mark.line + 1, event.start_mark.column + 1)
            if not isinstance(event, yaml.ScalarEvent):
                hint = "quote a text that starts with a bracket or brace"
                raise ReadError(self.finding("a key must be a plain word", *at, 1, hint))
            key = self._scalar(event, *at)
            if key.text == "<<" and not key.quoted:
                raise ReadError(self.finding("merge key '<<' is not allowed", *at, 2, "repeat the fields"))
            self.enter(entries, key, self._compose(next(events), events, depth + 1))
        return Node(entries, line, col)

    def enter(self, entries: dict[str, Node], key: Node, value: Node) -> None:
        """Put one entry into a mapping; a key that stands twice is a finding."""
        name = nfc(key.text)
        value.key_line, value.key_col = key.line, key.col
        if name in entries:
            message = f"key {name!r} stands twice, first at line {entries[name].key_line}"
            self.findings.append(self.finding(message, key.line, key.col, len(key.text)))
        entries[name] = value

    def _scalar(self, event: Any, line: int, col: int) -> Node:
        end = event.end_mark
        length = end.column - col + 1 if end.line + 1 == line else 1
        quoted = event.style in ("'", '"')
        block = event.style in ("|", ">")
        if quoted or block:
            self._ends.append((line, end.line + 1))
            value = nfc(event.value)
            return Node(value, line, col, max(1, length), text=event.value, quoted=quoted, block=block)
        value = nfc(self.plain(event.value, line, col))
        return Node(value, line, col, max(1, length), text=event.value)

    def plain(self, text: str, line: int, col: int) -> Any:
        """The value of an unquoted scalar; one that YAML turns into something else is a finding."""
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text.lower() == "true"
        if _INT.fullmatch(text):
            return int(text) if len(text) <= 18 else self._trap(text, "a number of that size", line, col)
        if text.lower() in _SPECIAL:
            return float(_SPECIAL[text.lower()])
        if text.lower() in WORDS:
            hint = "quote it if it is a text, write true or false if it is a truth value"
            self.findings.append(
                self.finding(
                    f"unquoted {text!r} is a boolean in YAML", line, col, len(text), hint, f'"{text}"'
                )
            )
            return text
        if _DATE.fullmatch(text):
            return self._trap(text, "a date object in YAML", line, col)
        if _ODD_NUMBER.fullmatch(text):
            return self._trap(text, "a number in base 8, 16 or 60, or with '_', in YAML", line, col)
        return float(text) if _FLOAT.fullmatch(text) else text

    def _trap(self, text: str, what: str, line: int, col: int) -> str:
        message = f"unquoted {text[:40]!r} is {what}"
        self.findings.append(
            self.finding(message, line, col, len(text), f'quote it: "{text[:40]}"', f'"{text}"')
        )
        return text

    def _tabs(self) -> None:
        if self.file.endswith(".json"):
            return
        inside = {line for first, last in self._ends for line in range(first + 1, last + 1)}
        for number, row in enumerate(self.rows, 1):
            blank = row[: len(row) - len(row.lstrip())]
            if "\t" in blank and number not in inside and row.strip():
                self.findings.append(self._tab(number))

    def _tab(self, line: int) -> Finding:
        col = self.rows[line - 1].index("\t") + 1
        return self.finding("a tab in the indentation", line, col, 1, "indent with spaces")

    def _syntax(self, error: yaml.YAMLError) -> Finding:
        fault = yaml_fault(error, self.text)
        line = min(fault.line, max(1, len(self.rows)))
        for number in (line, line - 1):
            row = self.rows[number - 1] if 0 < number <= len(self.rows) else ""
            if "\t" in row[: len(row) - len(row.lstrip())]:
                return self._tab(number)
        return self.finding(fault.message, line, fault.col, fault.length, fault.hint)


def decode(raw: bytes, file: str) -> str:
    """Text of a rubric file; a byte-order mark is dropped and line ends become LF.

    Raises:
        ReadError: larger than 1 MiB, or not UTF-8.
    """
    if len(raw) > MAX_BYTES:
        message = f"{len(raw) / MAX_BYTES:.1f} MiB, a rubric has at most 1 MiB"
        raise ReadError(Finding("E100", message, file, 1, 1, 1, "split it and use imports"))
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ReadError(Finding("E100", "encoded as UTF-16", file, 1, 1, 1, "save it as UTF-8"))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        col = error.start - (raw.rfind(b"\n", 0, error.start) + 1) + 1
        message = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        raise ReadError(Finding("E100", message, file, line, col, 1, "save it as UTF-8")) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
