"""JSON text → the same tree of nodes as YAML's, with the places of the file.

YAML 1.1 does not take all of JSON (``"\\ud83d\\ude00"``, a raw U+007F), so JSON is read as JSON: a file named
``.json``, and any text that starts with a brace and is JSON. What is no JSON goes to the YAML reader.
"""

import json
import re
from bisect import bisect_right
from itertools import accumulate

from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.text_form import nfc
from axiomrm.rubrics.yaml_nodes import MAX_DEPTH, Node, Reader, ReadError

_BLANK = re.compile(r"[ \t\n\r]*")
_PLAIN = re.compile(r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null)(?![\w.+-])")
_WORD = re.compile(r"\"[^\"\n]*\"?|[\[\]{},:]|[^\s\[\]{},:\"]+")


def read_nodes(text: str, file: str) -> tuple[Node | None, list[Finding]]:
    """The root of a rubric's text (``None``: empty), and the findings that do not stop the reading.

    Raises:
        ReadError: the text cannot be read to the end.
    """
    named = file.endswith(".json")
    fault: _NoJson | None = None
    if named or text.lstrip().startswith("{"):
        reader = Reader(text, file)
        try:
            return _Json(reader).root(), reader.findings
        except _NoJson as error:
            fault = error
    reader = Reader(text, file)
    try:
        return reader.read(), reader.findings
    except ReadError as error:
        if fault is not None and named:
            raise ReadError(fault.finding) from error
        raise


class _NoJson(Exception):
    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class _Json:
    """One pass over a text; ``reader`` keeps the findings and knows plain scalars."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.text = reader.text
        self.at = 0
        rows = self.text.splitlines(keepends=True)
        self.starts = list(accumulate(map(len, rows), initial=0))

    def root(self) -> Node:
        node = self.value(1)
        self.blank()
        if self.at < len(self.text):
            raise self.fault("the end of the text")
        return node

    def blank(self) -> str:
        """Skip blanks; the character that follows."""
        match = _BLANK.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return self.text[self.at : self.at + 1]

    def place(self, at: int) -> tuple[int, int]:
        row = max(0, bisect_right(self.starts, at) - 1)
        return row + 1, at - self.starts[row] + 1

    def fault(self, expected: str, at: int | None = None) -> _NoJson:
        at = self.at if at is None else at
        word = _WORD.match(self.text, at)
        found = repr(word.group()[:30]) if word else "the end of the text"
        message = f"not JSON: expected {expected}, found {found}"
        return _NoJson(self.reader.finding(message, *self.place(at), 1, "check commas, quotes and brackets"))

    def value(self, depth: int) -> Node:
        sign = self.blank()
        line, col = self.place(self.at)
        if sign == '"':
            return self.string()
        if sign in ("{", "["):
            if depth > MAX_DEPTH:
                raise ReadError(self.reader.finding(f"nested deeper than {MAX_DEPTH}", line, col))
            self.at += 1
            return Node(self.mapping(depth) if sign == "{" else self.items(depth), line, col)
        match = _PLAIN.match(self.text, self.at)
        if match is None:
            raise self.fault("a value")
        self.at = match.end()
        written = match.group()
        return Node(self.reader.plain(written, line, col), line, col, len(written), text=written)

    def string(self) -> Node:
        start = self.at
        line, col = self.place(start)
        try:
            value, self.at = json.JSONDecoder().raw_decode(self.text, start)
        except json.JSONDecodeError as error:
            message = f"the text in quotes is not JSON: {error.msg[:1].lower()}{error.msg[1:]}"
            hint = "close the quotes, and escape line breaks, quotes and backslashes"
            raise _NoJson(self.reader.finding(message, line, col, 1, hint)) from error
        length = self.at - start
        if any("\ud800" <= sign <= "\udfff" for sign in value):
            message = "half of a surrogate pair, which is no character"
            raise ReadError(
                self.reader.finding(message, line, col, length, r"write both, as in \ud83d\ude00")
            )
        return Node(nfc(value), line, col, length, text=value, quoted=True)

    def more(self, first: bool, close: str) -> bool:
        """Whether another entry follows; the sign before it is skipped."""
        sign = self.blank()
        if sign == close:
            self.at += 1
            return False
        if not first:
            if sign != ",":
                raise self.fault(f"',' or {close!r}")
            self.at += 1
        return True

    def items(self, depth: int) -> list[Node]:
        found: list[Node] = []
        while self.more(not found, "]"):
            found.append(self.value(depth + 1))
        return found

    def mapping(self, depth: int) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        while self.more(not entries, "}"):
            if self.blank() != '"':
                raise self.fault("a key in quotes")
            key = self.string()
            if self.blank() != ":":
                raise self.fault("':'")
            self.at += 1
            self.reader.enter(entries, key, self.value(depth + 1))
        return entries
