"""A recording as the judge sees it: one line a piece, each with its turn number and role.

Turns are printed from ``t1``. Agent messages, calls and results carry the number of their turn; a user
message carries the number of the turn that answers it, so ``[t2 user]`` opens turn 2. What an environment
said in the agent's name, and results of such calls, carry no number: they are no turn's.
Reasoning that the user never saw (``reasoning_content`` and the like) is left out.
"""

import json
import re
from typing import NamedTuple

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.rm.neutral import GENERIC, elision, neutralise


class Piece(NamedTuple):
    """One line of the recording."""

    kind: str
    """``system``, ``developer``, ``user``, ``assistant``, ``call`` or ``result``."""
    turn: int
    """0-based turn number shown to the judge; -1 where none is shown (instructions, examples)."""
    name: str
    """Tool name of a call or result, neutralised."""
    neutral_text: str
    """Content, neutralised; the arguments of a call as JSON."""
    message: int
    """Index into ``trajectory.messages``."""

    @property
    def line(self) -> str:
        """The line as printed, with its line break."""
        where = self.kind if self.turn < 0 else f"t{self.turn + 1} {self.kind}"
        if self.kind == "call":
            return f"[{where} {self.name} {self.neutral_text}]\n"
        head = f"[{where} {self.name}]" if self.name else f"[{where}]"
        return f"{head} {self.neutral_text}\n" if self.neutral_text else f"{head}\n"


def no_unit(trajectory: Trajectory, turn: int | None) -> Failed | None:
    """``bad_input`` where there is no turn ``turn``, or no turn at all, to judge."""
    turns = len(trajectory.turns)
    if turns and (turn is None or 0 <= turn < turns):
        return None
    where = "an agent message" if turn is None else f"turn t{turn + 1}"
    return Failed(kind="bad_input", detail=f"no {where} to judge: the recording has {turns} turns")


def pieces(
    trajectory: Trajectory, control: re.Pattern[str] = GENERIC, elided: frozenset[int] = frozenset()
) -> list[Piece]:
    """The whole recording, neutralised; a mark stands for the content of the messages in ``elided``."""
    shown: list[Piece] = []
    calls: dict[str, str] = {}
    turn, given = -1, False
    for index, message in enumerate(trajectory.messages):
        turn += message.is_action
        if message.role != "tool":  # a result belongs to its call
            given = message.role == "assistant" and not message.is_action
        calls |= {call.id: call.name for call in message.tool_calls if call.id}
        made = _message(message, index, turn, calls, control)
        if given:
            made = [piece._replace(turn=-1) for piece in made]
        if index in elided:
            made = [piece._replace(neutral_text=elision(len(message.content))) for piece in made]
        shown += made
    return shown


def _message(
    message: Message, index: int, turn: int, calls: dict[str, str], control: re.Pattern[str]
) -> list[Piece]:
    text = neutralise(message.content, control)
    if message.role in ("system", "developer"):
        return [Piece(message.role, -1, "", text, index)]
    if message.role == "user":
        return [Piece("user", turn + 1, "", text, index)]
    if message.role == "tool":
        name = message.name or calls.get(message.tool_call_id or "", "")
        return [Piece("result", max(turn, 0), neutralise(name, control), text, index)]
    said = [Piece("assistant", turn, "", text, index)] if text or not message.tool_calls else []
    return said + [
        Piece("call", turn, neutralise(call.name, control), neutralise(arguments(call), control), index)
        for call in message.tool_calls
    ]


def arguments(call: ToolCall) -> str:
    """The arguments as JSON written once, or the logged text where it was no JSON object."""
    if call.raw_arguments is not None:
        return call.raw_arguments
    return json.dumps(call.arguments, ensure_ascii=False)
