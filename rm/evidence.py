"""Quotes of a critique, checked against the recording without a model (as in Rulers, arXiv:2601.08654)."""

from collections.abc import Sequence

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Evidence
from axiomrm.rm.conversation import Piece, pieces
from axiomrm.rm.grammar import Quote
from axiomrm.rm.neutral import neutralise

MIN_QUOTE = 12
"""Characters, after collapsing blanks: a shorter quote proves nothing."""


def verify_quotes(
    trajectory: Trajectory, quotes: Sequence[Quote], elided: frozenset[int] = frozenset()
) -> tuple[Evidence, ...]:
    """Whether each quote stands in the turn it names, in another one, or nowhere.

    Compared in neutralised form with blanks collapsed, since that is what the judge saw.

    Args:
        trajectory: what the judge saw of the recording.
        quotes: from its critique.
        elided: messages whose content it did not see.
    """
    shown = pieces(trajectory, elided=elided)
    return tuple(_check(quote, shown) for quote in quotes)


def evidence_flags(evidence: Sequence[Evidence]) -> tuple[str, ...]:
    """A flag for each kind of quote that did not verify."""
    return tuple(sorted({f"quote_{e.status}" for e in evidence if e.status != "verified"}))


def _check(quote: Quote, shown: Sequence[Piece]) -> Evidence:
    needle = _collapsed(quote.text)
    alternatives = {needle, _collapsed(neutralise(quote.text))}
    hits = {p.turn for p in shown if any(n in _collapsed(p.neutral_text) for n in alternatives)}
    if len(needle) < MIN_QUOTE or not hits:
        return Evidence(turn=quote.turn, quote=quote.text, status="absent")
    return Evidence(
        turn=quote.turn, quote=quote.text, status="verified" if quote.turn in hits else "wrong_turn"
    )


def _collapsed(text: str) -> str:
    return " ".join(text.split())
