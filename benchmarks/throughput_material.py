"""What judge_throughput judges: dialogues of a given length, criteria, and the prompt order of the comparison."""

import random
from dataclasses import replace
from typing import Any

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.rm import Criterion
from axiomrm.rm.engines.base import Prompt
from axiomrm.rm.prompt import JudgePrompter

OPENERS = ("Hello,", "Thanks,", "I see,", "One moment,", "Good question,", "Sorry about that,", "Right,")
CLAUSES = (
    "the order {n} left our warehouse on day {d}",
    "your refund of {n} euros needs {d} working days",
    "I could not find a booking under the number {n}",
    "please tell me the last {d} digits of the invoice {n}",
    "the parcel {n} waits at the post office until day {d}",
    "the fee of {d} euros applies when a ticket is changed twice",
    "my colleague wrote a note about case {n} for me",
    "the new delivery would arrive {d} days after the first one",
    "the contract {n} ends with the month and is not renewed",
    "the camera came with a scratch and without its charger",
)
ASKS = (
    "The agent asks for the order number before it looks anything up.",
    "The agent states the fee before it changes a booking.",
    "The agent makes no promise that the policy does not allow.",
    "The agent apologises when the customer reports a fault.",
    "The agent answers the question that the customer asked last.",
    "The agent names the number of days that the customer has to wait.",
    "The agent repeats the details of the order before it acts on them.",
    "The agent does not ask for information that the customer has given before.",
    "The agent confirms the identity of the customer before it tells account details.",
    "The agent explains why it cannot do what the customer asks for.",
    "The agent offers an alternative when the first request is refused.",
    "The agent keeps the same figures in all of its messages.",
    "The agent says what happens next at the end of the conversation.",
    "The agent uses no words that only employees of the company would know.",
    "The agent does not blame the customer for the delay.",
    "The agent mentions where the parcel is now.",
    "The agent tells the customer how to reach a person.",
    "The agent gives the reason for the refund in its own words.",
    "The agent writes in the language that the customer writes in.",
    "The agent does not mention other customers.",
    "The agent states the amount of the refund.",
    "The agent asks at most one question in each message.",
    "The agent does not repeat a whole message that it sent before.",
    "The agent thanks the customer for the information.",
    "The agent does not change a booking without a clear yes.",
    "The agent names the document that it quotes from.",
    "The agent keeps each of its messages under sixty words.",
    "The agent admits that it does not know when it does not know.",
    "The agent does not ask for a password.",
    "The agent offers to send the summary by mail.",
    "The agent does not end the conversation before the customer does.",
    "The agent corrects a mistake of its own as soon as it sees it.",
)


def criteria(count: int) -> list[Criterion]:
    """The first ``count`` of the 32."""
    if not 1 <= count <= len(ASKS):
        raise SystemExit(f"--criteria {count}: 1 to {len(ASKS)}")
    return [Criterion(f"c{i}", ask) for i, ask in enumerate(ASKS[:count])]


def conversation(tokenizer: Any, number: int, tokens: int) -> Trajectory:
    """Dialogue ``number``: alternating messages until their contents take ``tokens`` tokens."""
    rng = random.Random(number)
    messages: list[Message] = []
    spent = 0
    while spent < tokens or len(messages) % 2:
        clauses = [
            rng.choice(CLAUSES).format(n=rng.randint(1000, 9999), d=rng.randint(2, 9)) for _ in range(3)
        ]
        text = f"{rng.choice(OPENERS)} {', '.join(clauses)}."
        messages.append(Message(role="assistant" if len(messages) % 2 else "user", content=text))
        spent += len(tokenizer.encode(text, add_special_tokens=False))
    return Trajectory(messages=tuple(messages), id=f"dialogue-{number}")


def as_text(trajectory: Trajectory) -> str:
    """The dialogue as one text, for a grader that takes no messages."""
    return "\n".join(f"{message.role}: {message.content}" for message in trajectory.messages)


class CriterionFirst(JudgePrompter):
    """Our prompts with the same tokens in the usual order: rules, criterion, conversation, answer.

    What stands before the conversation differs from criterion to criterion, so nothing after the rules can
    be shared. Only the order changes; the numbers that come out are not looked at.
    """

    def render(self, *args: Any, **options: Any) -> Prompt | Failed:
        prompt = super().render(*args, **options)
        if isinstance(prompt, Failed):
            return prompt
        rules = len(self._around.head + self._encode(self._blocks.system("")) + self._around.middle)
        tail = len(self._around.tail)
        body, rest = prompt.suffix_ids[:-tail], prompt.suffix_ids[-tail:]
        ids = prompt.prefix_ids[:rules] + body + prompt.prefix_ids[rules:] + rest
        return replace(prompt, prefix_ids=(), suffix_ids=ids)
