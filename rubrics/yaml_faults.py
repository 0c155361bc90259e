"""What is wrong with a text that is no YAML: where it opened, what was found, what was expected, what to do.

The parser stops where it can no longer go on, which is often far behind the fault: an unclosed bracket or
quote runs on through the next lines. So the place named is the opening one wherever the parser knows it, and
the message says where it stopped. Any text is answered; none raises.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import yaml

CLOSING = {"[": "]", "{": "}"}
PURE_CHARACTERS = 100_000
PURE_DEPTH = 200
"""Beyond these the quick parser's own words have to do."""
_WORD = re.compile(r"[\[\]{},]|[^\s\[\]{},]+")


@dataclass(frozen=True)
class Fault:
    """One syntax error; line and column count from 1."""

    message: str
    line: int
    col: int
    hint: str
    length: int = 1


def yaml_fault(error: yaml.YAMLError, text: str) -> Fault:
    """The fault behind ``error``, as the pure parser tells it: it knows more than the quick one.

    Args:
        error: what a loader raised for ``text``.
        text: the whole document.
    """
    found: Any = _again(text) or error
    if getattr(found, "problem_mark", None) is None:
        return _unreadable(found, text)
    context = str(found.context or "")
    problem = str(found.problem or "")
    for applies, explain in _KINDS:
        if applies(context, problem) and (fault := explain(found, text)) is not None:
            return fault
    return _other(found, text)


def _heavy(text: str) -> bool:
    """Whether the pure parser would need seconds: its time grows with the square of the depth."""
    depth = list(accumulate((c in "[{") - (c in "]}") for c in text))
    return len(text) > PURE_CHARACTERS or max(depth, default=0) > PURE_DEPTH


def _again(text: str) -> yaml.YAMLError | None:
    if _heavy(text):
        return None
    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.YAMLError as error:
        return error
    return None


def _unreadable(error: Any, text: str) -> Fault:
    """A character that no YAML holds."""
    at = error.position if isinstance(getattr(error, "position", None), int) else 0
    before = text[:at]
    code = getattr(error, "character", None)
    named = f" U+{ord(code) if isinstance(code, str) else code:04X}" if code is not None else ""
    line, col = before.count("\n") + 1, at - (before.rfind("\n") + 1) + 1
    return Fault(f"a character{named} that YAML does not take", line, col, "delete it, or write it escaped")


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}"


def _found(mark: Any, text: str) -> str:
    """The word at a mark and where it stands."""
    word = _WORD.match(text, mark.index)
    if word is None:
        return (
            "the end of the text" if not text[mark.index :].strip() else f"the line break at {_place(mark)}"
        )
    return f"{word.group()[:30]!r} at {_place(mark)}"


def _at(mark: Any, message: str, hint: str, length: int = 1) -> Fault:
    return Fault(message, mark.line + 1, mark.column + 1, hint, length)


def _bracket(error: Any, text: str) -> Fault | None:
    stop = error.problem_mark
    opening = _open_bracket(text, stop)
    if opening is None:
        return None
    sign = text[opening.index]
    close = CLOSING[sign]
    wanted = f"expected ',' or {close!r}, found {_found(stop, text)}"
    if stop.line == opening.line and text[stop.index : stop.index + 1] not in ("", *CLOSING.values()):
        return _at(stop, f"in the {sign!r} at {_place(opening)}: {wanted}", "add a comma, or quote the text")
    hint = f"add {close!r} or a comma; quote the text if {sign!r} belongs to a text"
    row = text[opening.index :].split("\n", 1)[0].rstrip()
    length = len(row) if stop.line != opening.line else 1
    return _at(opening, f"{sign!r} at {_place(opening)} is not closed: {wanted}", hint, length)


def _quote(error: Any, text: str) -> Fault:
    opening = error.context_mark
    sign = text[opening.index]
    message = f"the quote {sign} at {_place(opening)} is not closed: expected {sign}, found "
    end = "the end of the text" if "end of stream" in error.problem else _found(error.problem_mark, text)
    return _at(opening, message + end, f"add the closing {sign}")


def _escape(error: Any, text: str) -> Fault:
    mark = error.problem_mark
    hint = "double the backslash, or use single quotes, in which it stands for itself"
    escape = text[mark.index - 1 : mark.index + 1]
    return Fault(f"unknown escape {escape} in a text in double quotes", mark.line + 1, mark.column, hint, 2)


def _no_colon(error: Any, text: str) -> Fault:
    key = error.context_mark
    row = text[key.index :].split("\n", 1)[0].strip()
    message = f"{row[:40]!r} has no ':': expected 'key: value'"
    return _at(key, f"{message}, found {_found(error.problem_mark, text)}", "add ': '", len(row))


def _second_colon(error: Any, text: str) -> Fault | None:
    before, mark = _last_scalar(text), error.problem_mark
    if before is not None and before.plain and before.start_mark.line < before.end_mark.line == mark.line:
        row = text.split("\n")[mark.line]
        col = len(row) - len(row.lstrip()) + 1
        above = f"{_place(before.start_mark)}"
        message = f"indented deeper than what it belongs beside, so read as more of the text at {above}"
        return Fault(message, mark.line + 1, col, "give it the column of the key above")
    return _at(mark, "': ' inside an unquoted text starts a new mapping", "quote the whole text")


def _block(error: Any, text: str) -> Fault:
    """A mapping or list by indentation that neither goes on nor ends where the parser stopped."""
    begun, stop = error.context_mark, error.problem_mark
    if text[stop.index : stop.index + 1] in CLOSING.values():
        return _at(stop, f"{_found(stop, text)} closes nothing", "delete it, or quote the text it belongs to")
    before = _last_scalar(text, stop.index)
    if before is not None and not before.plain and before.end_mark.line == stop.line:
        return _after_quote(before, stop, text)
    if (opened := _bracket_before(text, stop)) is not None:
        message = f"text after the {CLOSING[text[opened.index]]!r} that closes {text[opened.index]!r}: found "
        hint = "quote the text: an unquoted brace or bracket opens a mapping or list"
        return _at(opened, message + _found(stop, text), hint, stop.index - opened.index)
    if "collection" in str(error.context):
        message = f"the list of {_place(begun)} goes on with '- ': found {_found(stop, text)}"
        return _at(stop, message, "indent it deeper than its '-', or begin the line with '- '")
    message = f"expected a key of the mapping of {_place(begun)}, or less indentation: found "
    return _at(stop, message + _found(stop, text), "check the indentation and what stands before it")


def _after_quote(scalar: Any, stop: Any, text: str) -> Fault:
    sign, opening = text[scalar.start_mark.index], scalar.start_mark
    if opening.line != stop.line:
        message = f"the quote {sign} at {_place(opening)} is closed only at {_place(scalar.end_mark)}"
        return _at(opening, f"{message}, before {_found(stop, text)}", f"is its own closing {sign} missing?")
    message = f"text after a closing quote {sign}: found {_found(stop, text)}"
    inner = "double a ' inside" if sign == "'" else 'write \\" for a " inside'
    return _at(opening, message, f"put the whole text in quotes and {inner}", stop.index - opening.index)


def _no_start(error: Any, text: str) -> Fault:
    return _at(
        error.problem_mark, f"a text cannot start with {_found(error.problem_mark, text)}", "quote the text"
    )


def _other(error: Any, text: str) -> Fault:
    where = "" if error.context_mark is None else f", {error.context} of {_place(error.context_mark)}"
    found = "" if "found" in error.problem else f": found {_found(error.problem_mark, text)}"
    return _at(error.problem_mark, f"{error.problem}{where}{found}", "check quotes, brackets and indentation")


def _tokens(text: str) -> list[Any]:
    """The tokens up to the fault."""
    tokens: list[Any] = []
    if _heavy(text):
        return tokens
    try:
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            tokens.append(token)
    except yaml.YAMLError:
        pass
    return tokens


def _last_scalar(text: str, until: int | None = None) -> Any | None:
    """The last scalar that ends before index ``until``."""
    before = [t for t in _tokens(text) if until is None or t.end_mark.index <= until]
    return next((t for t in reversed(before) if isinstance(t, yaml.ScalarToken)), None)


def _brackets(text: str, stop: Any) -> tuple[list[Any], Any | None]:
    """Openings not closed before ``stop``, and the one that was closed right before it on its line."""
    opened: list[Any] = []
    closed = None
    for token in _tokens(text):
        if token.start_mark.index >= stop.index:
            break
        if isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken):
            opened.append(token.start_mark)
        elif isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken) and opened:
            last = opened.pop()
            closed = last if token.end_mark.line == stop.line else None
        else:
            closed = None
    return opened, closed


def _open_bracket(text: str, stop: Any) -> Any | None:
    opened, _ = _brackets(text, stop)
    return opened[-1] if opened else None


def _bracket_before(text: str, stop: Any) -> Any | None:
    return _brackets(text, stop)[1]


_KINDS: tuple[tuple[Callable[[str, str], bool], Callable[[Any, str], Fault | None]], ...] = (
    (lambda context, problem: "flow" in context and "parsing" in context, _bracket),
    (lambda context, problem: "quoted scalar" in context and "unexpected" in problem, _quote),
    (lambda context, problem: "unknown escape" in problem, _escape),
    (lambda context, problem: "could not find expected ':'" in problem, _no_colon),
    (lambda context, problem: "mapping values are not allowed" in problem, _second_colon),
    (lambda context, problem: "cannot start any token" in problem, _no_start),
    (lambda context, problem: "parsing a block" in context and "<block end>" in problem, _block),
)
