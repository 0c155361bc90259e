"""What a perfect agent may do next, and what a given action was worth.

The oracle sees the whole state; it labels turns for training data and for evaluation and is never a
reward source of a run that claims a learned judge.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from axiomrm.data.environment import Action
from axiomrm.policy_opt.envs.service_desk import words
from axiomrm.policy_opt.envs.service_desk.tasks import SLOTS, Request, final_calls
from axiomrm.policy_opt.envs.service_desk.user import asked_slots
from axiomrm.policy_opt.envs.service_desk.world import (
    ALLOWED_STATUS,
    DISTRACTORS,
    TOOLS,
    World,
    argument_error,
)

Call = tuple[str, tuple[tuple[str, str], ...]]
ACCOUNT_TOOLS = frozenset(TOOLS) - DISTRACTORS - {"verify", "stock"}


@dataclass
class Progress:
    """What has been established so far for the current request."""

    request: Request
    known: dict[str, str] = field(default_factory=dict)
    """Slot to value: said by the user, or corrected by a tool."""
    verified: bool = False
    needs_home: bool = False
    results: dict[Call, str] = field(default_factory=dict)
    """Successful calls of the episode and their results."""
    written: int = 0
    """How many of the current request's writing calls are done."""

    def result(self, name: str, **args: str) -> str | None:
        """The stored result of a successful call."""
        return self.results.get(call_key(name, args))


@dataclass(frozen=True)
class Expected:
    """Every action that is right now."""

    asks: frozenset[str] = frozenset()
    calls: tuple[Call, ...] = ()
    close: bool = False


@dataclass(frozen=True)
class Assessment:
    """An action's worth: +1 completes a needed step, 0 neutral, -1 harms; and why."""

    value: int
    kind: str
    """``ok`` or the fault: ``wrong_argument, wrong_tool, redundant, unverified, breach, asks_again, unneeded,
    premature, false_report, bad_call``."""


def call_key(name: str, args: dict[str, Any]) -> Call:
    """Tool and canonical arguments."""
    return name, tuple(sorted((k, str(v)) for k, v in args.items()))


def expected(p: Progress, world: World) -> Expected:
    """The right next actions in this state."""
    r = p.request
    if r.kind == "stock_check":
        if p.result("stock", item=r.values["item"]) is None:
            return Expected(calls=(call_key("stock", {"item": r.values["item"]}),))
        return Expected(close=True)
    missing = frozenset(s for s in SLOTS[r.kind] if s not in p.known)
    if not p.verified:
        return _identify(p, missing)
    if missing & {"name", "pin", "order"}:
        return Expected(asks=missing)
    if "order" in SLOTS[r.kind]:
        step = _look_up(p, missing)
        if step is not None:
            return step
    return _finish(p, world, missing)


def _identify(p: Progress, missing: frozenset[str]) -> Expected:
    if missing & {"name", "pin"}:
        return Expected(asks=missing)
    args = {"name": p.known["name"], "pin": p.known["pin"]}
    if p.needs_home:
        if "home" not in p.known:
            return Expected(asks=frozenset({"home"}))
        args["home"] = p.known["home"]
    return Expected(asks=missing, calls=(call_key("verify", args),))


def _look_up(p: Progress, missing: frozenset[str]) -> Expected | None:
    order = p.known["order"]
    if p.result("find", order=order) is None:
        calls = [call_key("find", {"order": order})]
        if order != p.request.values["order"]:  # an agent may normalise k-42 by itself
            calls.append(call_key("find", {"order": p.request.values["order"]}))
        return Expected(asks=missing, calls=tuple(calls))
    if p.request.kind in ALLOWED_STATUS and p.result("policy", topic=p.request.kind, order=order) is None:
        return Expected(asks=missing, calls=(call_key("policy", {"topic": p.request.kind, "order": order}),))
    return None


def _finish(p: Progress, world: World, missing: frozenset[str]) -> Expected:
    if refused(p) or p.request.kind == "status":
        return Expected(close=True)
    if missing:
        return Expected(asks=missing)
    if p.request.kind == "exchange" and p.result("stock", item=p.known["item"]) is None:
        return Expected(calls=(call_key("stock", {"item": p.known["item"]}),))
    todo = final_calls(p.request, world)[p.written :] if not p.written else remaining_calls(p)
    return Expected(calls=(call_key(*todo[0]),)) if todo else Expected(close=True)


def remaining_calls(p: Progress) -> list[tuple[str, dict[str, str]]]:
    """Writing calls still to do once the first has changed the database (only ``return`` has two)."""
    if p.request.kind != "return" or p.written >= 2:
        return []
    steps = p.result("policy", topic="return", order=p.known["order"]) or ""
    return [("refund", {"order": p.known["order"], "amount": steps.split()[-1]})]


def refused(p: Progress) -> bool:
    """Whether the policy said no."""
    if p.request.kind not in ALLOWED_STATUS:
        return False
    answer = p.result("policy", topic=p.request.kind, order=p.known.get("order", ""))
    return bool(answer and answer.startswith("refused"))


def assess(action: Action, p: Progress, exp: Expected) -> Assessment:
    """Worth of ``action``; with several calls the worst decides."""
    if action.error:
        return Assessment(-1, "bad_call")
    if action.tool_calls:
        verdicts = [_assess_call(c.name, c.arguments, p, exp) for c in action.tool_calls]
        return min(verdicts, key=lambda a: a.value)
    return _assess_text(action.text, p, exp)


def _assess_call(name: str, args: dict[str, Any], p: Progress, exp: Expected) -> Assessment:
    key = call_key(name, args)
    if key in exp.calls:
        return Assessment(1, "ok")
    if name not in TOOLS or argument_error(name, args):
        return Assessment(-1, "bad_call")
    if key in p.results:
        return Assessment(-1, "redundant")
    if name in ACCOUNT_TOOLS and not p.verified:
        return Assessment(-1, "unverified")
    if any(name == n for n, _ in exp.calls):
        return Assessment(-1, "wrong_argument")
    if name in DISTRACTORS or name in ("verify", "find", "policy", "stock"):
        return Assessment(-1, "wrong_tool")
    return Assessment(-1, "breach")


def _assess_text(text: str, p: Progress, exp: Expected) -> Assessment:
    if "?" in text:
        asked = set(asked_slots(text))
        if not asked:
            return Assessment(0, "unclear")
        if asked & set(p.known):
            return Assessment(-1, "asks_again")
        return Assessment(1, "ok") if asked & exp.asks else Assessment(-1, "unneeded")
    if not exp.close:
        return Assessment(-1, "premature")
    return Assessment(1, "ok") if report_is_true(text, p) else Assessment(-1, "false_report")


_PATTERNS = {
    "order": re.compile(r"\b[A-Z]\d\d\b"),
    "number": re.compile(r"(?<![A-Z\d])\d+\b"),
    "status": re.compile(r"\b(?:packed|shipped|arrived|lost)\b"),
    "city": re.compile(r"\b(?:" + "|".join(words.CITIES) + r")\b"),
    "item": re.compile(r"\b(?:" + "|".join(words.ITEMS) + r")\b"),
    "name": re.compile(r"\b(?:" + "|".join(words.NAMES) + r")\b"),
}


def claims(text: str) -> dict[str, set[str]]:
    """Values that a text states, by kind."""
    return {kind: set(pattern.findall(text)) for kind, pattern in _PATTERNS.items()}


def facts(p: Progress) -> dict[str, set[str]]:
    """Values that the user gave or a tool returned for the current request, by kind."""
    order = p.known.get("order", "")
    item = p.known.get("item") or p.request.values.get("item", "")
    texts = [" ".join(p.known.values()), p.result("find", order=order) or ""]
    texts += [p.result("policy", topic=p.request.kind, order=order) or "", p.result("stock", item=item) or ""]
    if p.request.kind == "stock_check":
        texts.append(item)
    return claims(" ".join(texts))


def unsupported(text: str, p: Progress) -> set[str]:
    """Claims of the text (names aside) that nothing in the conversation supports."""
    have = facts(p)
    return {v for kind, values in claims(text).items() if kind != "name" for v in values - have[kind]}


def report_is_true(text: str, p: Progress) -> bool:
    """A closing text states nothing unsupported and names what had to be reported."""
    stated = claims(text)
    if unsupported(text, p) or ("cannot" in text) != refused(p):
        return False
    if p.request.kind == "status":
        return bool(stated["status"])
    if p.request.kind == "stock_check":
        return bool(stated["number"])
    return True
