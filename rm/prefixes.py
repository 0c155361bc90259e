"""A recording's shared prefixes: up to the end of each turn and of the whole, as ids and as text."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from axiomrm.data.trajectory import Trajectory
from axiomrm.rm.blocks import Blocks
from axiomrm.rm.chat import FrameIds
from axiomrm.rm.conversation import pieces

Ids = tuple[int, ...]
Elided = frozenset[int]
"""Messages whose tool output gave way to a mark."""


class Shared(NamedTuple):
    """One entry a turn, then one for the whole recording."""

    ids: list[Ids]
    texts: list[str]

    @property
    def turns(self) -> int:
        """Turns of the recording."""
        return len(self.ids) - 1


class Prefixes:
    """Makes prefixes and remembers the last recording's: callers walk one after the other."""

    def __init__(
        self, encode: Callable[[str], Ids], blocks: Blocks, around: FrameIds, control: re.Pattern[str]
    ) -> None:
        """Nothing is rendered yet."""
        self._encode, self._blocks, self._around, self._control = encode, blocks, around, control
        self._last: tuple[tuple[Any, ...], Shared] | None = None

    def of(
        self, trajectory: Trajectory, nonce: str, *, guidelines: str = "", elided: Elided = frozenset()
    ) -> Shared:
        """The prefixes; that of turn t begins that of turn t + 1."""
        key = (trajectory, nonce, guidelines, elided)
        if self._last and self._last[0][0] is trajectory and self._last[0][1:] == key[1:]:
            return self._last[1]
        shared = self._made(trajectory, nonce, guidelines, elided)
        self._last = key, shared
        return shared

    def _made(self, trajectory: Trajectory, nonce: str, guidelines: str, elided: Elided) -> Shared:
        reference = trajectory.task.reference
        text = self._blocks.opening(nonce, reference if isinstance(reference, str) else "")
        system = self._encode(self._blocks.system(guidelines))
        ids = self._around.head + system + self._around.middle + self._encode(text)
        cuts = [turn.end for turn in trajectory.turns]
        all_ids: list[Ids] = []
        all_texts: list[str] = []
        for piece in pieces(trajectory, self._control, elided):
            while len(all_ids) < len(cuts) and piece.message >= cuts[len(all_ids)]:
                all_ids.append(ids)
                all_texts.append(text)
            ids += self._encode(piece.line)
            text += piece.line
        missing = len(cuts) + 1 - len(all_ids)
        return Shared(all_ids + [ids] * missing, all_texts + [text] * missing)
