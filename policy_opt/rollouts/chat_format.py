"""How a policy's tokenizer and chat template meet the rollout; ids only ever grow at the end."""

from collections.abc import Sequence
from typing import Any, Protocol

from axiomrm.data.environment import Action
from axiomrm.data.trajectory import Message


class ChatFormat(Protocol):
    """Messages to ids and back."""

    end_ids: frozenset[int]
    """Ids that end an assistant turn."""

    def prompt_ids(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], first: bool
    ) -> list[int]:
        """Ids of the NEW messages plus the assistant header; ``first`` = from the conversation's start."""
        ...

    def parse(self, token_ids: Sequence[int]) -> Action:
        """A decoded copy of a sampled turn; the raw ids stay authoritative."""
        ...
