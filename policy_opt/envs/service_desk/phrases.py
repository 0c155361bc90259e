"""How an agent of a given style says things, and the faults that flawed agents slip in."""

import random
from dataclasses import dataclass
from typing import Literal

from axiomrm.policy_opt.envs.service_desk import words


@dataclass(frozen=True)
class Style:
    """How an agent writes."""

    verbosity: int = 2
    tone: Literal["formal", "casual"] = "formal"
    use_name: bool = False
    next_steps: bool = False
    batched: bool = True


@dataclass(frozen=True)
class Closing:
    """The facts of the request that a text closes."""

    kind: str
    refused: bool
    values: dict[str, str]
    """``order, status, amount, city, item, channel, count`` where known."""


FAULTS: dict[str, tuple[str, ...]] = {
    "rude": (
        "That is your own fault.",
        "Stop wasting my time.",
        "I really do not care.",
        "You should read more carefully.",
    ),
    "promise": (
        "I will send you a free gift.",
        "You get a discount from me.",
        "I promise you a present next week.",
        "We will pay you something extra.",
    ),
    "flattery": (
        "You are so clever.",
        "What a brilliant question.",
        "You are our very best customer.",
        "You have wonderful taste.",
    ),
}
LEADS = {
    "formal": ("Thank you for your message.", "I am glad to help you with this.", "Thank you, I understand."),
    "casual": ("Hey, no problem.", "Sure thing.", "Okay, got it."),
}
ASKS = {
    "formal": ("could you please tell me {x}?", "may I have {x}, please?", "would you please give me {x}?"),
    "casual": ("what is {x}?", "can you give me {x}?", "just tell me {x}, okay?"),
}
ASK_NEXT = ("Then I will look it up.", "With that I can go on.")
CLOSE_NEXT = ("You will get a message from us soon.", "Next you will hear from our team.")
CLOSE_TAIL = {
    "formal": ("I wish you a pleasant day.", "Thank you for your patience."),
    "casual": ("Have a good one.", "All set then."),
}
CLOSINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "formal": {
        "stock_check": ("we have {count} {item} pieces in stock.", "there are {count} {item} pieces left."),
        "status": ("your order {order} is {status}.", "order {order} is currently {status}."),
        "cancel": ("your order {order} has been cancelled.", "I have cancelled order {order} for you."),
        "refund": (
            "your refund of {amount} for order {order} is on its way.",
            "I have refunded {amount} for order {order}.",
        ),
        "address": (
            "your order {order} will now go to {city}.",
            "I have sent order {order} to {city} instead.",
        ),
        "exchange": ("your order {order} is now a {item}.", "I have exchanged order {order} for the {item}."),
        "channel": ("we will contact you by {channel}.", "your contact channel is now {channel}."),
        "repair": (
            "the repair of order {order} has been booked.",
            "I have opened a repair for order {order}.",
        ),
        "return": (
            "order {order} will be picked up and {amount} refunded.",
            "I have booked the return of order {order}.",
        ),
        "refused": (
            "I am afraid this cannot be done, order {order} is {status}.",
            "order {order} cannot be changed like this since it is {status}.",
        ),
    },
    "casual": {
        "stock_check": ("yep, {count} {item} pieces here.", "got {count} {item} pieces left."),
        "status": ("order {order} is {status}.", "looks like {order} is {status}."),
        "cancel": ("done, order {order} is cancelled.", "okay, {order} is off."),
        "refund": ("done, {amount} for {order} comes back.", "okay, you get {amount} back for {order}."),
        "address": ("done, {order} goes to {city}.", "okay, {city} it is for {order}."),
        "exchange": ("done, {order} is a {item} now.", "okay, you get the {item} for {order}."),
        "channel": ("done, we use {channel} now.", "okay, {channel} from now on."),
        "repair": ("done, repair for {order} is booked.", "okay, we fix {order}."),
        "return": ("done, we pick up {order} and pay {amount}.", "okay, return of {order} is booked."),
        "refused": (
            "sorry, that cannot work, {order} is {status}.",
            "nope, {order} is {status}, so we cannot.",
        ),
    },
}


def ask(slots: tuple[str, ...], style: Style, rng: random.Random, name: str | None) -> str:
    """A question for ``slots``."""
    parts = [words.SLOT_WORDS[s] for s in slots]
    listed = parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]
    core = rng.choice(ASKS[style.tone]).format(x=listed)
    return _dress(core, style, rng, name, rng.choice(ASK_NEXT) if style.next_steps else "", "")


def close(closing: Closing, style: Style, rng: random.Random, name: str | None) -> str:
    """The text that ends a request."""
    kind = "refused" if closing.refused else closing.kind
    core = rng.choice(CLOSINGS[style.tone][kind]).format(**closing.values)
    tail = rng.choice(CLOSE_TAIL[style.tone]) if style.verbosity >= 3 else ""
    return _dress(core, style, rng, name, rng.choice(CLOSE_NEXT) if style.next_steps else "", tail)


def _dress(core: str, style: Style, rng: random.Random, name: str | None, after: str, tail: str) -> str:
    core = f"{name}, {core}" if name and style.use_name else core[0].upper() + core[1:]
    lead = rng.choice(LEADS[style.tone]) if style.verbosity >= 2 else ""
    return " ".join(part for part in (lead, core, after, tail) if part)


def fault_in(text: str, kind: str) -> str | None:
    """The fault sentence of that kind in the text, if any."""
    return next((f for f in FAULTS[kind] if f in text), None)
