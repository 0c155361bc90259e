"""What is written down of an episode's messages: it grows at its end, a rewritten history included.

Judges, files and behavioural metrics read it. A turn is what was sampled, never what has the assistant's
role: an environment's greeting, worked example or summary is marked (``Message.from_environment``).
"""

from dataclasses import dataclass, field

from axiomrm.data.environment import Observation
from axiomrm.data.trajectory import Message


@dataclass
class Transcript:
    """The messages of one episode, in the order they came."""

    messages: list[Message] = field(default_factory=list)
    context: int = 0
    """Index of the first message of the history that the policy has before it."""

    def act(self, action: Message) -> None:
        """Add what was sampled."""
        self.messages.append(action)

    def observe(self, observation: Observation) -> None:
        """Add what the environment said.

        Of a whole prompt that begins with the history as it is, only what is new; one that rewrites it stands
        whole below what was said before.
        """
        told = list(observation.messages)
        if observation.full_prompt:
            history = self.messages[self.context :]
            if len(told) >= len(history) and all(map(_same, told, history)):
                told = told[len(history) :]
            else:
                self.context = len(self.messages)
        self.messages += [message.from_environment() for message in told]


def _same(one: Message, other: Message) -> bool:
    """Whether they say and call the same; ids and marks do not matter."""
    return (one.role, one.content, _calls(one)) == (other.role, other.content, _calls(other))


def _calls(message: Message) -> list[tuple[object, ...]]:
    return [(call.name, call.arguments, call.raw_arguments) for call in message.tool_calls]
