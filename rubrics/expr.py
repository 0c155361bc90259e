"""The condition language: own tokenizer and recursive-descent parser to a frozen tree; no eval.

    expr  := or ["implies" expr]            or    := and {"or" and}
    and   := not {"and" not}                not   := "not" not | atom
    atom  := "(" expr ")" | "true" | "false" | test
    test  := name | name cmp const | name ["not"] "in" "{" const {"," const} "}"
    cmp   := "==" | "!=" | "<" | "<=" | ">" | ">="
    const := int | decimal | "true" | "false" | symbol | '"' text '"'

Each test compares one name with constants, which keeps the searches of ``conflicts.py`` exact.
"""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Literal, NamedTuple

from axiomrm.rubrics.expr_tree import (
    TRUE,
    And,
    Compare,
    Const,
    Env,
    Expr,
    ExprError,
    Implies,
    Literally,
    Not,
    Or,
    Span,
    Test,
    Value,
    evaluate,
    names_of,
    tests_of,
)
from axiomrm.rubrics.text_form import nfc

__all__ = [
    "TRUE",
    "And",
    "Compare",
    "Const",
    "Env",
    "Expr",
    "ExprError",
    "Implies",
    "Literally",
    "Not",
    "Or",
    "Span",
    "Test",
    "Value",
    "evaluate",
    "names_of",
    "parse",
    "tests_of",
]

MAX_LENGTH = 500
MAX_DEPTH = 32

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<number>[+-]?(?:\d+\.\d+|\.\d+|\d+)(?![\w.]))
      | (?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
      | (?P<text>"(?:[^"\\]|\\["\\])*")
      | (?P<op>==|!=|<=|>=|<|>|\(|\)|\{|\}|,)""",
    re.VERBOSE,
)
_KEYWORDS = {"and", "or", "not", "in", "implies", "true", "false"}


class _Token(NamedTuple):
    kind: Literal["number", "name", "keyword", "text", "op", "end"]
    text: str
    at: int


def _tokens(source: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None or match.lastgroup is None:
            raise _bad_character(source, at)
        text = match.group()
        if match.lastgroup == "name":
            found.append(_Token("keyword" if text in _KEYWORDS else "name", text, at))
        elif match.lastgroup != "space":
            found.append(_Token(match.lastgroup, text, at))  # type: ignore[arg-type]  # the kinds
        at = match.end()
    return [*found, _Token("end", "", len(source))]


def _bad_character(source: str, at: int) -> ExprError:
    rest = source[at:]
    word = re.match(r"[\w.+-]+", rest)
    if word:
        return ExprError(f"{word.group()!r} is not a number or name", at, len(word.group()))
    hints = {
        "=": "write == to compare",
        "&": "write and",
        "|": "write or",
        "!": "write not",
        "'": 'use "…" for text',
    }
    hint = hints.get(rest[0], "a test compares one name with constants; there is no arithmetic and no call")
    return ExprError(f"unexpected {rest[0]!r}", at, 1, hint)


@lru_cache(maxsize=8192)
def parse(source: str) -> Expr:
    """Read one condition.

    Args:
        source: at most 500 characters, nested at most 32 deep.

    Returns:
        The frozen tree; names and types are not checked yet (see ``check``).

    Raises:
        ExprError: with offset, length and hint.
    """
    if len(source) > MAX_LENGTH:
        raise ExprError(
            f"condition of {len(source)} characters, at most {MAX_LENGTH}", 0, 1, "split the criterion"
        )
    parser = _Parser(_tokens(nfc(source)))
    tree = parser.expr(0)
    rest = parser.peek()
    if rest.kind != "end":
        raise ExprError(
            f"unexpected {rest.text!r} after the end of the condition", rest.at, len(rest.text), _hint(rest)
        )
    return tree


def _hint(token: _Token) -> str:
    if token.kind in ("name", "text", "number"):
        return "join tests with and, or, implies"
    return "close every bracket once" if token.text in ")}" else "a test compares one name with constants"


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> _Token:
        return self.tokens[self.at]

    def take(self) -> _Token:
        token = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def accept(self, text: str) -> bool:
        token = self.peek()
        if token.kind in ("op", "keyword") and token.text == text:
            self.take()
            return True
        return False

    def expect(self, text: str) -> None:
        token = self.peek()
        if not self.accept(text):
            found = repr(token.text) if token.text else "the end"
            raise ExprError(f"expected {text!r}, found {found}", token.at, len(token.text))

    def deeper(self, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise ExprError(f"nested deeper than {MAX_DEPTH}", self.peek().at, 1, "simplify the condition")
        return depth + 1

    def expr(self, depth: int) -> Expr:
        depth = self.deeper(depth)
        left = self.chain(depth, "or")
        return Implies(left, self.expr(depth)) if self.accept("implies") else left

    def chain(self, depth: int, word: Literal["or", "and"]) -> Expr:
        parts = [self.operand(depth, word)]
        while self.accept(word):
            parts.append(self.operand(depth, word))
        if len(parts) == 1:
            return parts[0]
        return Or(tuple(parts)) if word == "or" else And(tuple(parts))

    def operand(self, depth: int, word: Literal["or", "and"]) -> Expr:
        return self.chain(depth, "and") if word == "or" else self.negation(depth)

    def negation(self, depth: int) -> Expr:
        if self.accept("not"):
            return Not(self.negation(self.deeper(depth)))
        return self.atom(depth)

    def atom(self, depth: int) -> Expr:
        if self.accept("("):
            inner = self.expr(depth)
            self.expect(")")
            return inner
        token = self.peek()
        if token.kind == "keyword" and token.text in ("true", "false"):
            self.take()
            return Literally(token.text == "true")
        if token.kind == "name":
            return self.test()
        found = repr(token.text) if token.text else "the end"
        raise ExprError(
            f"expected a test, found {found}", token.at, len(token.text), "e.g. domain == billing"
        )

    def test(self) -> Expr:
        name = self.take()
        token = self.peek()
        if token.kind == "op" and token.text in ("==", "!=", "<", "<=", ">", ">="):
            self.take()
            value, span = self.const()
            op: Compare = token.text  # type: ignore[assignment]  # one of the six, checked above
            return Test(name.text, op, (value,), False, Span(name.at, len(name.text)), (span,))
        negated = token.kind == "keyword" and token.text == "not" and self.tokens[self.at + 1].text == "in"
        if negated:
            self.take()
        if self.accept("in"):
            values, spans = self.constants()
            where = Span(name.at, len(name.text))
            return Test(name.text, "not in" if negated else "in", values, False, where, spans)
        if token.kind == "op" and token.text == "(":
            raise ExprError(
                f"{name.text!r} is called like a function", name.at, len(name.text), "there are no calls"
            )
        return Test(
            name.text, "==", (True,), True, Span(name.at, len(name.text)), (Span(name.at, len(name.text)),)
        )

    def constants(self) -> tuple[tuple[Const, ...], tuple[Span, ...]]:
        self.expect("{")
        pairs = [self.const()]
        while self.accept(","):
            pairs.append(self.const())
        self.expect("}")
        return tuple(v for v, _ in pairs), tuple(s for _, s in pairs)

    def const(self) -> tuple[Const, Span]:
        token = self.take()
        span = Span(token.at, max(1, len(token.text)))
        if token.kind == "number":
            return Decimal(token.text), span
        if token.kind == "keyword" and token.text in ("true", "false"):
            return token.text == "true", span
        if token.kind == "name":
            return token.text, span
        if token.kind == "text":
            return re.sub(r"\\(.)", r"\1", token.text[1:-1]), span
        found = repr(token.text) if token.text else "the end"
        raise ExprError(f"expected a constant, found {found}", token.at, len(token.text))
