"""The text-environment protocol (Gymnasium-shaped) and what flows through it.

It lives here because synthesis rolls agents in environments that higher rooms provide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from axiomrm.data.trajectory import Message, Task, ToolCall


@dataclass(frozen=True)
class Action:
    """One assistant turn. ``token_ids`` are authoritative where a model sampled it."""

    text: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    token_ids: tuple[int, ...] = ()
    error: str | None = None
    """Why a tool call in the text could not be parsed; the environment answers with an error observation."""

    def message(self) -> Message:
        """The action as an assistant message."""
        return Message(role="assistant", content=self.text, tool_calls=self.tool_calls)


@dataclass(frozen=True)
class Observation:
    """Only the NEW messages since the last action, plus the tool specifications."""

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    full_prompt: bool = False
    """True: the history was rewritten, ``messages`` is the whole new prompt (a fork)."""


class TurnEnv(Protocol):
    """``info`` may hold ``state_key, outcome, parts, oracle_turn, progress, error_kind, metrics, assessment,
    labels`` (docs/policy.md says what they mean). An optional method ``outcome() -> float | None`` is asked
    where an episode ends without ``info["outcome"]``."""

    def reset(
        self, *, seed: int | None = None, task: Task | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode of ``task`` (drawn from ``seed`` when ``None``)."""
        ...

    def step(self, action: Action) -> tuple[Observation, float | None, bool, bool, dict[str, Any]]:
        """``(observation, reward, terminated, truncated, info)``; reward ``None`` = ask the judge."""
        ...

    def close(self) -> None:
        """Release what the episode holds."""
        ...


class Agent(Protocol):
    """Something that acts: scripted or a model."""

    def act(self, history: Sequence[Message], info: dict[str, Any]) -> Action:
        """The next assistant turn for ``history``; ``info`` is the environment's last info."""
        ...


@dataclass
class Step:
    """One turn of a rolled-out episode."""

    action: Action
    reward: float | None
    info: dict[str, Any] = field(default_factory=dict)
