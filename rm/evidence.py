"""Quotes of a critique, checked against the recording without a model (as in Rulers, arXiv:2601.08654)."""

import re
import unicodedata
from collections.abc import Sequence

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Evidence
from axiomrm.rm.conversation import Piece, pieces
from axiomrm.rm.grammar import Quote
from axiomrm.rm.neutral import GENERIC, neutralise

MIN_QUOTE = 12
"""Characters, after collapsing blanks: a shorter quote proves nothing."""


def verify_quotes(
    trajectory: Trajectory,
    quotes: Sequence[Quote],
    elided: frozenset[int] = frozenset(),
    control: re.Pattern[str] = GENERIC,
) -> tuple[Evidence, ...]:
    """Whether each quote stands in the turn it names, in another one, or nowhere.

    Compared with what the judge saw: in neutralised form, of a call its name with its arguments, blanks
    collapsed and characters normalised as in the judge's answer.

    Args:
        trajectory: what the judge saw of the recording.
        quotes: from its critique.
        elided: messages whose content it did not see.
        control: of the prompter that showed it, see :func:`~axiomrm.rm.neutral.control_pattern`.
    """
    shown = [(piece.turn, _collapsed(_content(piece))) for piece in pieces(trajectory, control, elided)]
    return tuple(_check(quote, shown, control) for quote in quotes)


def evidence_flags(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """A flag for each kind of quote that did not verify."""
    return tuple(sorted({f"quote_{e.status}" for e in evidence if e.status != "verified"}))


def _check(quote: Quote, shown: Sequence[tuple[int, str]], control: re.Pattern[str]) -> Evidence:
    needle = _collapsed(quote.text)
    alternatives = {needle, _collapsed(neutralise(quote.text, control))}
    hits = {turn for turn, text in shown if any(n in text for n in alternatives)}
    if len(needle) < MIN_QUOTE or not hits:
        return Evidence(turn=quote.turn, quote=quote.text, status="absent")
    return Evidence(
        turn=quote.turn, quote=quote.text, status="verified" if quote.turn in hits else "wrong_turn"
    )


def _content(piece: Piece) -> str:
    return f"{piece.name} {piece.neutral_text}" if piece.kind == "call" else piece.neutral_text


def _collapsed(text: str) -> str:
    if not text.isascii():  # character by character, as the answer was
        text = "".join(unicodedata.normalize("NFKC", character) for character in text)
    return " ".join(text.split())
