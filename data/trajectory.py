"""Trajectories: messages in the OpenAI chat format plus task, outcome and per-turn rewards.

A *turn* is one assistant message of the agent (with its tool calls) and everything up to the agent's next
one. Turns are numbered from 0 in Python; prompts and reports print ``t1`` for turn 0. What an environment
says in the assistant's name (a greeting, a worked example, a summary) is marked and is no turn.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from axiomrm.data.jsonl import ReadResult

Role = Literal["system", "developer", "user", "assistant", "tool"]
FROM_ENVIRONMENT = "from_environment"
"""Key of ``Message.extra``: true on an assistant message that the agent did not say."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Value):
    """A call of one tool."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    id: str | None = None
    raw_arguments: str | None = None
    """The text as logged, kept only where it is not a JSON object (``arguments`` is then empty)."""


class Message(_Value):
    """One chat message."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None
    extra: dict[str, Any] = Field(default_factory=dict)
    """Keys of the log that we do not interpret (``reasoning_content`` …), written back as they were; and
    ``FROM_ENVIRONMENT``."""

    @property
    def is_action(self) -> bool:
        """Whether the agent said it: an assistant message that is not marked as the environment's."""
        return self.role == "assistant" and self.extra.get(FROM_ENVIRONMENT) is not True

    def from_environment(self) -> "Message":
        """The message as an environment's: marked if it would pass for the agent's, else itself."""
        if not self.is_action:
            return self
        return self.model_copy(update={"extra": {**self.extra, FROM_ENVIRONMENT: True}})


class Task(_Value):
    """What the agent was asked to do."""

    id: str = ""
    type: str = ""
    features: dict[str, Any] = Field(default_factory=dict)
    """Facts known before any reply exists; they decide which criteria apply."""
    reference: Any = None
    payload: dict[str, Any] = Field(default_factory=dict)
    """What the environment needs to rebuild the task; never shown to a judge."""


class Outcome(_Value):
    """The verifier's result."""

    score: float | None = None
    """``None``: the verifier gave no result."""
    metrics: dict[str, Any] = Field(default_factory=dict)
    """What programmatic judges read."""


@dataclass(frozen=True)
class Turn:
    """One assistant message of the agent and what follows it up to the next one."""

    index: int
    start: int
    """Index of the assistant message in ``trajectory.messages``."""
    end: int
    """One past the last message of the turn."""
    messages: tuple[Message, ...]

    @property
    def action(self) -> Message:
        """The assistant message itself."""
        return self.messages[0]


class Trajectory(_Value):
    """One recorded conversation."""

    messages: tuple[Message, ...]
    id: str = ""
    task_id: str = ""
    group_id: str = ""
    task: Task = Field(default_factory=Task)
    outcome: Outcome | None = None
    turn_rewards: tuple[float, ...] | None = None
    """One a turn; NaN = missing."""
    tools: tuple[dict[str, Any], ...] = ()
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def group(self) -> str:
        """What rollouts of one task share: ``group_id``, ``task_id`` or ``task.id``, or else the ``id``."""
        return self.group_id or self.task_id or self.task.id or self.id

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns, in order."""
        starts = [i for i, m in enumerate(self.messages) if m.is_action]
        ends = [*starts[1:], len(self.messages)] if starts else []
        return tuple(
            Turn(t, a, b, self.messages[a:b]) for t, (a, b) in enumerate(zip(starts, ends, strict=True))
        )

    @classmethod
    def read(cls, path: str | Path) -> "ReadResult[Trajectory]":
        """The trajectories of a chat log; bad records stand in ``.rejected`` with file, line and reason.

        See `axiomrm.data.reading` for what is accepted, and for reading a file that does not fit in memory.

        Raises:
            DataError: there is no such file.
        """
        from axiomrm.data.reading import read_trajectories  # it needs the types of this module

        return read_trajectories(path)

    def answered_call(self, message: int) -> ToolCall | None:
        """The call that message ``message`` answers; ``None``: no tool result, or its call is not logged."""
        from axiomrm.data.tool_calls import link_results

        asked = link_results(self.messages).get(message)
        return None if asked is None else self.messages[asked.message].tool_calls[asked.call]

    def unanswered(self, turn: int) -> tuple[ToolCall, ...]:
        """The calls of ``turn`` for which the log holds no result."""
        from axiomrm.data.tool_calls import link_results

        start = self.turns[turn].start
        answered = {asked.call for asked in link_results(self.messages).values() if asked.message == start}
        calls = self.messages[start].tool_calls
        return tuple(call for i, call in enumerate(calls) if i not in answered)

    def until(self, turn: int) -> "Trajectory":
        """History up to the end of ``turn``: what a causal judge of that turn may see."""
        return self._cut(self.turns[turn].end)

    def before(self, turn: int) -> "Trajectory":
        """The prefix before the judged assistant message."""
        return self._cut(self.turns[turn].start)

    def _cut(self, end: int) -> "Trajectory":
        messages = self.messages[:end]
        turns = sum(m.is_action for m in messages)
        rewards = None if self.turn_rewards is None else self.turn_rewards[:turns]
        return self.model_copy(update={"messages": messages, "turn_rewards": rewards})

    @property
    def content_hash(self) -> str:
        """SHA-256 over the canonical JSON of the messages and the reference."""
        payload = {"messages": [m.model_dump() for m in self.messages], "reference": self.task.reference}
        return hashlib.sha256(canonical_json(payload).encode()).hexdigest()


class PreferencePair(_Value):
    """Two continuations of one context with a label."""

    context: tuple[Message, ...]
    a: str
    b: str
    label: Literal["a", "b", "tie"]
    id: str = ""
    group: str = ""
    """The split key: keep a group on one side of any split."""
    metadata: dict[str, Any] = Field(default_factory=dict)


def canonical_json(value: Any) -> str:
    """Strict JSON with sorted keys; NaN becomes ``null``."""
    finite = finite_json(value)
    return json.dumps(finite, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def finite_json(value: Any) -> Any:
    """``value`` as strict JSON can hold it: NaN and infinity are ``None``, keys text, sequences lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): finite_json(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [finite_json(v) for v in value]
    return value
