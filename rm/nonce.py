"""Nonces: the code on the data marks and verdict lines of one conversation.

Letters of HMAC(secret, opening): equal for all criteria, turns and continuations of a conversation, so that
prefixes are shared, and unknown to a graded agent that does not know the secret.
"""

import hashlib
import hmac

from axiomrm.data.trajectory import Trajectory, canonical_json

DEFAULT_SECRET = "axiomrm"
"""Nonce secret of a run that sets none: repeatable, but known to whoever reads this file. Set your own where
the graded agent is trained against the judge."""
_CONSONANTS, _VOWELS = "bdfghjklmnprstvwz", "aeiou"
_LETTERS = {"compact": 4}


def nonce_letters(template: str) -> int:
    """Letters of a nonce by template name. Syllables, because they cost a small vocabulary few tokens."""
    return _LETTERS.get(template, 6)


def nonce_of(secret: str, root: str, letters: int) -> str:
    """``letters`` letters of HMAC(secret, root)."""
    digest = hmac.new(secret.encode(), root.encode("utf-8", "surrogatepass"), hashlib.sha256).digest()
    return "".join(_syllable(digest[i], i) for i in range(letters))


def opening_of(trajectory: Trajectory) -> str:
    """What a nonce is drawn from: the messages before the first one of the agent, as canonical JSON."""
    opening = []
    for message in trajectory.messages:
        if message.is_action:
            break
        opening.append(message.model_dump(mode="json"))
    return canonical_json(opening)


def _syllable(byte: int, place: int) -> str:
    letters = _VOWELS if place % 2 else _CONSONANTS
    return letters[byte % len(letters)]
