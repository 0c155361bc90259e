"""Finding the label's token among generated tokens, by offsets; a digit is never searched for."""

import math
from collections.abc import Sequence

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import LabelReading, TokenLogprobs
from axiomrm.rm.grammar import lead_in, parse
from axiomrm.rm.labels import LabelSet


def reading_at_label(tokens: Sequence[TokenLogprobs], labels: LabelSet, nonce: str) -> LabelReading | Failed:
    """The label log-probabilities at the token that follows the lead-in of the deciding verdict line.

    Args:
        tokens: the generated tokens with their top log-probabilities, in order.
        labels: the legal labels.
        nonce: this request's nonce.
    """
    text = "".join(token.text for token in tokens)
    answer = parse(text, labels.tokens, nonce)
    if isinstance(answer, Failed):
        return answer
    start = text.find("]=", answer.at) + len("]=")
    at = 0
    for token in tokens:
        if at == start and token.text.strip() in labels.tokens:
            return top_reading(token, labels)
        at += len(token.text)
    detail = f"no token starts right after {lead_in(nonce)!r}, so the label has no probability of its own"
    return Failed(kind="no_logprobs", detail=detail)


def top_reading(token: TokenLogprobs, labels: LabelSet) -> LabelReading | Failed:
    """What the top log-probabilities say; a label not among them is at most as probable as the last."""
    if not token.top:
        return Failed(
            kind="no_logprobs", detail="the server returned no log-probabilities for the label token"
        )
    known = {label: token.top[label] for label in labels.tokens if label in token.top}
    rest = max(0.0, 1.0 - math.fsum(math.exp(x) for x in token.top.values()))
    bound = min(math.exp(min(token.top.values())), rest)
    return LabelReading(known, None if len(known) == len(labels.tokens) else bound)
