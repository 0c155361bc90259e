"""Finding the label's token among generated tokens, by offsets; a digit is never searched for."""

import math
import re
from collections.abc import Sequence

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import LabelReading, TokenLogprobs
from axiomrm.rm.grammar import Answer, parse
from axiomrm.rm.labels import LabelSet

_BEFORE_LABEL = re.compile(r"\][^\S\n]*[=＝]")
_OVER_ONE = 1.01
"""Sum of probabilities beyond which they are none."""


def reading_at_label(tokens: Sequence[TokenLogprobs], labels: LabelSet, nonce: str) -> LabelReading | Failed:
    """The label log-probabilities at the token that follows the lead-in of the deciding verdict line.

    Args:
        tokens: the generated tokens with their top log-probabilities, in order.
        labels: the legal labels.
        nonce: this request's nonce.
    """
    text = "".join(token.text for token in tokens)
    answer = parse(text, labels.tokens, nonce)
    return answer if isinstance(answer, Failed) else reading_at(tokens, labels, answer)


def reading_at(tokens: Sequence[TokenLogprobs], labels: LabelSet, answer: Answer) -> LabelReading | Failed:
    """The same for an answer that was parsed from these tokens: at its own line and nowhere else."""
    text, at = "".join(token.text for token in tokens), answer.at or 0
    found = _BEFORE_LABEL.search(text, at, text.find("\n", at) if "\n" in text[at:] else len(text))
    start, at = found.end() if found else -1, 0
    for token in tokens:
        if at == start and token.text.strip() == answer.label:
            return top_reading(token, labels.tokens)
        at += len(token.text)
    detail = f"no token is {answer.label!r} right after the lead-in, so it has no probability of its own"
    return Failed(kind="no_logprobs", detail=detail)


def top_reading(token: TokenLogprobs, labels: Sequence[str]) -> LabelReading | Failed:
    """What the top log-probabilities say; a label not among them is at most as probable as the last.

    Servers append the sampled token to the list when it is none of the most probable: as the least probable
    entry it says nothing about the tokens that are not shown.

    Args:
        token: the token at the label's position; blanks before its text stand before every label.
        labels: the legal label tokens.
    """
    if not token.top:
        return Failed(
            kind="no_logprobs", detail="the server returned no log-probabilities for the label token"
        )
    blanks = token.text[: len(token.text) - len(token.text.lstrip())] if token.text.strip() in labels else ""
    known = {label: token.top[blanks + label] for label in labels if blanks + label in token.top}
    total = math.fsum(math.exp(x) for x in token.top.values())
    if total > _OVER_ONE:
        return Failed(kind="no_logprobs", detail=f"the server's probabilities add up to {total:.3g}")
    if len(known) == len(labels):
        return LabelReading(known)
    if len(token.top) < 2:
        return Failed(kind="no_logprobs", detail="the server returned one alternative for the label token")
    ranked = sorted(token.top, key=lambda name: token.top[name])
    last = ranked[1] if ranked[0] == token.text else ranked[0]
    return LabelReading(known, min(math.exp(token.top[last]), max(0.0, 1.0 - total)))
