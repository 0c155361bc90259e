"""Scripted user: answers only what is asked, may change their mind once, moves on when told it is done."""

import random
from dataclasses import dataclass, field

from axiomrm.policy_opt.envs.service_desk import words
from axiomrm.policy_opt.envs.service_desk.tasks import Request, Spec


def asked_slots(text: str) -> tuple[str, ...]:
    """The slots a text asks for; a text without a question mark asks for none."""
    if "?" not in text:
        return ()
    lower = text.lower()
    return tuple(slot for slot, phrase in words.ASKED_BY.items() if phrase in lower)


@dataclass
class User:
    """One user in one episode."""

    spec: Spec
    rng: random.Random
    current: int = 0
    told: dict[str, str] = field(default_factory=dict)
    """Slot to the value as the user last said it, for the current request."""
    changed: bool = False

    @property
    def request(self) -> Request:
        """What the user wants now."""
        return self.spec.requests[self.current]

    def opening(self) -> str:
        """The first message."""
        intro = ""
        if "name" in self.spec.upfront:
            intro = self.rng.choice(words.INTRO[self.spec.bank]).format(name=self._say("name"))
        text = intro + self._ask_for_help("order" in self.spec.upfront)
        if "pin" in self.spec.upfront:
            text += " " + self._answer("pin")
        return text

    def reply(self, text: str) -> str | None:
        """The answer to an agent's text; ``None``: the user is gone (all requests were closed)."""
        slots = asked_slots(text)
        if slots:
            return " ".join(self._answer(s) for s in slots)
        if "?" in text:
            return words.UNCLEAR[self.spec.bank]
        self.current += 1
        if self.current >= len(self.spec.requests):
            return None
        self.told = {s: v for s, v in self.told.items() if s in ("name", "pin", "home")}
        lead = self.rng.choice(words.NEXT[self.spec.bank])
        return lead.format(x=self._ask_for_help(self.rng.random() < 0.5))

    def goodbye(self) -> str:
        """The last message."""
        return self.rng.choice(words.GOODBYE[self.spec.bank])

    def _ask_for_help(self, with_order: bool) -> str:
        request = self.request
        mention = ""
        if with_order and "order" in request.values:
            mention = self.rng.choice(words.ORDER_MENTION).format(order=self._say("order"))
        template = self.rng.choice(words.OPENINGS[self.spec.bank][request.kind])
        if request.kind == "stock_check":
            self._say("item")
        return template.format(order=mention, item=request.values.get("item", ""))

    def _say(self, slot: str) -> str:
        value = self.request.values.get(slot) or (self.spec.home if slot == "home" else "")
        self.told[slot] = self.request.says.get(slot, value)
        return self.told[slot]

    def _answer(self, slot: str) -> str:
        if slot != "home" and slot not in self.request.values:
            return words.NO_SUCH[self.spec.bank]
        bank, template = self.spec.bank, self.rng.choice(words.ANSWERS[self.spec.bank][slot])
        if slot in ("city", "item") and self.spec.changes_mind and not self.changed:
            self.changed = True
            pool = words.CITIES if slot == "city" else words.ITEMS
            first = self.rng.choice([v for v in pool if v != self.request.values[slot]])
            rather = self.rng.choice(words.CHANGED_MIND[bank])
            return template.format(v=first) + " " + rather.format(v=self._say(slot))
        return template.format(v=self._say(slot))
