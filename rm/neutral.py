"""Neutralising graded text: visible, reversible, and inert as fence, control token or verdict line.

Every character that could act is written as ``‹U+XXXX›``; :func:`restore` gives the original back.

Covers: control and role tokens (of the tokenizer at hand and the usual ones of others), our data marks,
lines that start like our verdict line or like a turn marker, NUL and other control characters,
zero-width, bidi, tag and variation-supplement characters, lone surrogates.
Does not cover: instructions in plain words; they are what the judge is told to treat as evidence.
"""

import re
import unicodedata
from collections.abc import Iterable

_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160"
    "\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|\r(?!\n)"
)
_ESCAPE = re.compile("‹U\\+([0-9A-F]{4,6})›")
_OWN_MARK = re.compile("‹(?=U\\+|elided:)")
_FENCE = re.compile(r"<(?=\s*/?\s*data\s+[a-z]{1,12}\s*>)", re.IGNORECASE)
_VERDICT = re.compile(r"(?im)^[^\w\n\[]*verdict\s*(\[)")
_MARKER = re.compile(
    r"(?im)^[^\w\n\[]*(\[)(?=\s*(?:t\d+\s+)?(?:system|developer|user|assistant|call|result)\b)"
)
_FOREIGN = (
    r"<\|[^|\s<>]{1,40}\|>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>"
    r"|</?(?:think|thinking|reasoning)>|<\uff5c[^<>\n]{1,40}\uff5c>"
)


def control_pattern(tokens: Iterable[str] = ()) -> re.Pattern[str]:
    """Control-token strings to neutralise: the usual ones plus ``tokens`` of the tokenizer at hand.

    Tokens that are only letters, digits or blanks are left out: they carry no control (some vocabularies
    add runs of blanks), and the encoder keeps special ones out of data anyway.
    """
    own = [re.escape(t) for t in sorted(tokens, key=len, reverse=True) if re.search(r"[^\w\s]", t)]
    return re.compile("|".join([*own, _FOREIGN]))


GENERIC = control_pattern()


def hidden_characters(text: str) -> bool:
    """Whether ``text`` holds a character that a reader cannot see or an engine may choke on."""
    return _HIDDEN.search(text) is not None


def strip_hidden(text: str) -> str:
    """``text`` without such characters."""
    return _HIDDEN.sub("", text)


def neutralise(text: str, control: re.Pattern[str] = GENERIC) -> str:
    """``text`` with every acting character written as ``‹U+XXXX›``."""
    text = _OWN_MARK.sub("‹U+2039›", text)
    text = _HIDDEN.sub(lambda m: _mark(m.group()), text)
    text = control.sub(lambda m: _mark(m.group()[0]) + m.group()[1:], text)
    text = _FENCE.sub(_mark("<"), text)
    for pattern in (_VERDICT, _MARKER):
        text = pattern.sub(lambda m: m.group()[:-1] + _mark("["), text)
    return text if text.isascii() else "\n".join(_neutral_line(line) for line in text.split("\n"))


def elision(characters: int) -> str:
    """What stands for a tool output that was left out; no graded text reads like it once neutralised."""
    return f"‹elided: {characters} characters›"


def restore(text: str) -> str:
    """The original of a neutralised text."""
    return _ESCAPE.sub(lambda m: chr(int(m.group(1), 16)), text)


def _mark(character: str) -> str:
    return f"‹U+{ord(character):04X}›"


def _neutral_line(line: str) -> str:
    """Full-width look-alikes of our verdict line, markers and data marks: the parser normalises, so do we.

    What is marked is the bracket that acts, wherever it stands.
    """
    normal = [unicodedata.normalize("NFKC", character) for character in line]
    plain = "".join(normal)
    if plain == line:
        return line
    origin = [index for index, form in enumerate(normal) for _ in form]
    acting = {origin[m.start(1)] for pattern in (_VERDICT, _MARKER) for m in pattern.finditer(plain)}
    acting |= {origin[m.start()] for m in _FENCE.finditer(plain)}
    return "".join(_mark(c) if index in acting else c for index, c in enumerate(line))
