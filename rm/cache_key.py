"""The key of a reading: everything its value depends on, and not the nonce.

The nonce of a conversation follows from a secret of the run, so it stands in the prompt and in what the judge
writes, but says nothing about the conversation. It is taken out where the grammar puts it, in the data marks
and in verdict lines, and nowhere else: the same letters as a word of graded text stay, and data marks or
verdict lines in graded text were broken up before (``neutral``).
"""

import hashlib
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

from axiomrm.data.trajectory import canonical_json
from axiomrm.rm.engines.base import Generation, Prompt, TokenLogprobs

SCHEMA = 1
"""Version of the key and of what is stored under it; another version is never read."""
MARK = "\0"
"""Stands for the nonce; NUL is neutralised in graded text."""
Ids = tuple[int, ...]
Spell = Callable[[int], str]
"""The text of one token."""


def content_hash(prompt: Prompt, spell: Spell | None) -> str:
    """SHA-256 of what the model is given, without the nonce.

    Args:
        prompt: as rendered, forced critique included.
        spell: for engines with ids; ``None``: the engine reads messages.
    """
    if spell is None:
        parts: Any = [{k: without_nonce(v, prompt.nonce) for k, v in m.items()} for m in prompt.messages]
        parts += [without_nonce(prompt.answer, prompt.nonce)] if prompt.answer else []
    else:
        parts = [_part_hash(ids, prompt.nonce, spell) for ids in (prompt.prefix_ids, prompt.suffix_ids)]
    return key_of({"content": parts})


def key_of(parts: Mapping[str, Any]) -> str:
    """SHA-256 of canonical JSON, so that no two sets of parts run into each other."""
    return hashlib.sha256(canonical_json(parts).encode("utf-8", "surrogatepass")).hexdigest()


def without_nonce(text: str, nonce: str) -> str:
    """``text`` with ``MARK`` where the grammar puts the nonce."""
    return _with_nonce(text, nonce, MARK)


def written_under(
    written: Generation, old: str, new: str, spell: Spell, encode: Callable[[str], Ids]
) -> Generation:
    """What a judge wrote under one nonce, as it reads under another.

    Args:
        written: the stored generation.
        old: its nonce.
        new: the nonce of the request at hand, of equal length.
        spell: text of one token.
        encode: ids of a text without control tokens.
    """
    if old == new:
        return written
    ids: list[int] = []
    for piece in _pieces(written.token_ids, old, spell):
        ids += encode(piece.replace(MARK, new)) if isinstance(piece, str) else [piece]
    whole = _with_nonce("".join(token.text for token in written.tokens), old, new)
    ends = accumulate((len(token.text) for token in written.tokens), initial=0)
    tokens = tuple(
        TokenLogprobs(whole[at : at + len(t.text)], t.top)
        for at, t in zip(ends, written.tokens, strict=False)
    )
    return replace(written, text=_with_nonce(written.text, old, new), token_ids=tuple(ids), tokens=tokens)


@lru_cache(64)
def _place(nonce: str) -> re.Pattern[str]:
    # Some tokenizers spell a token without its leading blank, hence the optional blanks.
    return re.compile(rf"((?i:</?\s*data\s*|verdict\s*\[\s*)){re.escape(nonce)}(?=\s*[>\].])")


def _with_nonce(text: str, old: str, new: str) -> str:
    return _place(old).sub(lambda m: m[1] + new, text)


@lru_cache(256)
def _part_hash(ids: Ids, nonce: str, spell: Spell) -> str:
    return hashlib.sha256(json.dumps(_pieces(ids, nonce, spell)).encode()).hexdigest()


def _pieces(ids: Sequence[int], nonce: str, spell: Spell) -> list[int | str]:
    """The ids, but a line with the nonce as text with ``MARK``: how many tokens a nonce takes differs."""
    texts = [spell(i) for i in ids]
    text = "".join(texts)
    starts = list(accumulate(map(len, texts), initial=0))
    out: list[int | str] = []
    done = 0
    for match in _place(nonce).finditer(text):
        line = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.end()) + 1 or len(text)
        first, last = bisect_left(starts, line), bisect_left(starts, end)
        first -= starts[first] > line
        if last <= done:
            continue
        first = max(first, done)
        out += ids[done:first]
        out.append(without_nonce("".join(texts[first:last]), nonce))
        done = last
    return out + list(ids[done:])
