"""Scripted agents: the expert, and flawed ones that slip at a given rate."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from axiomrm.data.environment import Action
from axiomrm.data.trajectory import Message, ToolCall
from axiomrm.policy_opt.envs.service_desk import phrases, words
from axiomrm.policy_opt.envs.service_desk.oracle import Call, Expected, Progress, refused
from axiomrm.policy_opt.envs.service_desk.phrases import Closing, Style


@dataclass
class Expert:
    """Does a right step, in its style; reads the oracle's view from ``info["desk"]``."""

    rng: random.Random
    style: Style = field(default_factory=Style)

    def act(self, history: Sequence[Message], info: dict[str, Any]) -> Action:
        """The next right action."""
        p, wanted = info["desk"]
        return self.right_action(p, wanted)

    def right_action(self, p: Progress, wanted: Expected) -> Action:
        """One of the expected actions; extra slots are asked early only by a batching style."""
        name = p.known.get("name")
        if wanted.close:
            return Action(text=phrases.close(closing_of(p), self.style, self.rng, name))
        if wanted.calls:
            return call_action(self.rng.choice(wanted.calls[:1]))
        slots = tuple(s for s in words.SLOT_WORDS if s in wanted.asks)
        if not self.style.batched:
            slots = slots[:1]
        return Action(text=phrases.ask(slots, self.style, self.rng, name))


@dataclass
class Flawed(Expert):
    """An expert that makes a mistake with probability ``rate`` at each turn."""

    rate: float = 0.3
    kinds: tuple[str, ...] = ()
    """Restrict to these faults; empty: all."""
    extra: float = 0.0
    """Probability that a text also carries a fault sentence, for each kind of them, and that a user who is
    called by name is called by another's."""

    def act(self, history: Sequence[Message], info: dict[str, Any]) -> Action:
        """A right action or a faulty variant of it, either with further faults in its text."""
        p, wanted = info["desk"]
        action = self._choose(p, wanted)
        return Action(text=self._worse(action.text, p)) if action.text and self.extra else action

    def _worse(self, text: str, p: Progress) -> str:
        name = p.known.get("name")
        if name and self.rng.random() < self.extra:
            text = text.replace(name, _other(self.rng, words.NAMES, name))
        kinds = [kind for kind in phrases.FAULTS if self.rng.random() < self.extra]
        self.rng.shuffle(kinds)
        return " ".join([text, *(self.rng.choice(phrases.FAULTS[kind]) for kind in kinds)])

    def _choose(self, p: Progress, wanted: Expected) -> Action:
        right = self.right_action(p, wanted)
        if self.rng.random() >= self.rate:
            return right
        makers = TEXT_FAULTS if right.text else CALL_FAULTS
        names = [k for k in makers if not self.kinds or k in self.kinds]
        self.rng.shuffle(names)
        for name in names:
            faulty = makers[name](self, right, p, wanted)
            if faulty is not None:
                return faulty
        return right


def call_action(call: Call) -> Action:
    """A tool call as an action."""
    name, args = call
    return Action(tool_calls=(ToolCall(name=name, arguments=dict(args)),))


def closing_of(p: Progress) -> Closing:
    """The facts with which the current request is closed."""
    values = {k: v for k, v in p.known.items() if k in ("order", "city", "item", "channel")}
    found = p.result("find", order=p.known.get("order", ""))
    if found:
        item, status, _, city, _, amount = found.split()
        values = {"status": status, "amount": amount, "item": item, "city": city} | values
    if p.request.kind == "stock_check":
        values["item"] = p.request.values["item"]
        values["count"] = (p.result("stock", item=values["item"]) or "0").split()[0]
    return Closing(p.request.kind, refused(p), values)


def _other(rng: random.Random, pool: Sequence[str], value: str) -> str:
    return rng.choice([v for v in pool if v != value])


def _twist(rng: random.Random, key: str, value: str) -> str | None:
    pools: dict[str, Sequence[str]] = {
        "city": words.CITIES,
        "home": words.CITIES,
        "item": words.ITEMS,
        "name": words.NAMES,
        "channel": words.CHANNELS,
    }
    if key in pools:
        return _other(rng, pools[key], value)
    if key == "order":
        return rng.choice(
            [f"{rng.choice(words.ORDER_LETTERS)}{value[-2:]}", f"{value[0].upper()}{rng.randint(10, 99)}"]
        )
    if key in ("pin", "amount"):
        return str(rng.randint(10 ** (len(value) - 1), 10 ** len(value) - 1))
    return None


def _wrong_value(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
    call = right.tool_calls[0]
    key = agent.rng.choice(sorted(call.arguments))
    other = _twist(agent.rng, key, call.arguments[key])
    if other is None or other == call.arguments[key]:
        return None
    return call_action((call.name, tuple(sorted((call.arguments | {key: other}).items()))))


def _repeat(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
    return call_action(agent.rng.choice(sorted(p.results))) if p.results else None


def _distractor(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
    name = agent.rng.choice(("weather", "survey", "promo"))
    key, pool = {
        "weather": ("city", words.CITIES),
        "survey": ("name", words.NAMES),
        "promo": ("item", words.ITEMS),
    }[name]
    return call_action((name, ((key, agent.rng.choice(pool)),)))


def _skip_verify(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
    if p.verified or "order" not in p.known:
        return None
    return call_action(("find", (("order", p.known["order"]),)))


def _early_close(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
    known = {"order": "A11", "status": "packed", "amount": "20", "count": "3"} | closing_of(p).values
    values = {"city": "Rome", "item": "lamp", "channel": "mail"} | known
    closing = Closing(p.request.kind, False, values)
    return Action(text=phrases.close(closing, agent.style, agent.rng, p.known.get("name")))


def _add_sentence(kind: str) -> Any:
    def make(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
        return Action(text=f"{right.text} {agent.rng.choice(phrases.FAULTS[kind])}")

    return make


def _ask_again(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
    told = tuple(s for s in words.SLOT_WORDS if s in p.known)
    if not told:
        return None
    return Action(text=phrases.ask((agent.rng.choice(told),), agent.style, agent.rng, p.known.get("name")))


def _misreport(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
    if not wanted.close:
        return None
    closing = closing_of(p)
    pools: dict[str, Sequence[str]] = {
        "status": words.STATUSES,
        "city": words.CITIES,
        "item": words.ITEMS,
        "channel": words.CHANNELS,
    }
    text = right.text
    keys = [
        k
        for k in ("order", "status", "amount", "city", "item", "channel", "count")
        if closing.values.get(k, "\0") in text
    ]
    agent.rng.shuffle(keys)
    for key in keys:
        value = closing.values[key]
        other = (
            _other(agent.rng, pools[key], value)
            if key in pools
            else _twist(agent.rng, "amount" if key != "order" else key, value)
        )
        if other and other != value:
            return Action(text=text.replace(value, other))
    return None


def _wrong_name(agent: Flawed, right: Action, p: Progress, wanted: Expected) -> Action | None:
    if "name" not in p.known or not agent.style.use_name:
        return None
    return Action(text=right.text.replace(p.known["name"], _other(agent.rng, words.NAMES, p.known["name"])))


CALL_FAULTS = {
    "wrong_value": _wrong_value,
    "repeat": _repeat,
    "distractor": _distractor,
    "skip_verify": _skip_verify,
    "early_close": _early_close,
    "ask_again": _ask_again,
}
TEXT_FAULTS = {
    "rude": _add_sentence("rude"),
    "promise": _add_sentence("promise"),
    "flattery": _add_sentence("flattery"),
    "ask_again": _ask_again,
    "misreport": _misreport,
    "wrong_name": _wrong_name,
    "early_close": _early_close,
    "repeat": _repeat,
    "distractor": _distractor,
}
