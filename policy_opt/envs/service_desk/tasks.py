"""Seeded tasks: who calls, what they want, what they reveal, which tool error will happen.

A task is rebuilt from ``(split, seed, kind)`` alone. Splits are disjoint by construction: the
generator is keyed by the split's name, and the held-out split draws its wordings from another bank
and holds a task kind (``return``) that no other split has.
"""

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from axiomrm.data.trajectory import Task
from axiomrm.policy_opt.envs.service_desk import words
from axiomrm.policy_opt.envs.service_desk.world import ALLOWED_STATUS, World

Split = Literal["train", "dev", "heldout"]
SPLITS: tuple[str, ...] = get_args(Split)
KINDS = ("stock_check", "status", "cancel", "refund", "address", "exchange", "channel", "repair")
HELDOUT_KIND = "return"
COMPOUND = "compound"
SLOTS: dict[str, tuple[str, ...]] = {
    "stock_check": (),
    "status": ("name", "pin", "order"),
    "cancel": ("name", "pin", "order"),
    "refund": ("name", "pin", "order"),
    "address": ("name", "pin", "order", "city"),
    "exchange": ("name", "pin", "order", "item"),
    "channel": ("name", "pin", "channel"),
    "repair": ("name", "pin", "order"),
    "return": ("name", "pin", "order"),
}
"""What the agent must know before it can act."""
TURN_LIMIT = 20


@dataclass(frozen=True)
class Profile:
    """What the user likes; it never changes what the right final state is."""

    verbosity: int
    """1 (few words) to 3 (many)."""
    tone: Literal["formal", "casual"]
    use_name: bool
    next_steps: bool
    """Wants to be told what happens next."""
    batched: bool
    """Prefers one question for everything over one question at a time."""


@dataclass(frozen=True)
class Request:
    """One thing the user wants."""

    kind: str
    values: dict[str, str]
    """Slot to value: what the user would answer."""
    says: dict[str, str]
    """Slot to the text the user gives, where that differs (``k-42``)."""


@dataclass(frozen=True)
class Spec:
    """Everything about one episode that is fixed before it starts."""

    split: Split
    seed: int
    requests: tuple[Request, ...]
    profile: Profile
    bank: str
    upfront: tuple[str, ...]
    """Slots the user gives in the first message."""
    changes_mind: bool
    home: str
    ambiguous: bool
    customers: list[tuple[str, str, str, str]] = field(repr=False)
    orders: list[tuple[str, str, str, str, str, int]] = field(repr=False)
    stock: list[tuple[str, int]] = field(repr=False)
    timeout_at: int | None = None

    def world(self) -> World:
        """A fresh database."""
        return World(self.customers, self.orders, self.stock, self.timeout_at)

    def goal(self) -> tuple[tuple[Any, ...], ...]:
        """The database rows a perfect agent leaves behind."""
        world = World(self.customers, self.orders, self.stock)
        for request in self.requests:
            for name, args in final_calls(request, world):
                world.call(name, args)
        return world.contents()


def sample_task(split: Split, seed: int, kind: str | None = None) -> Task:
    """A task with its features; ``kind`` ``None`` draws one (held-out may draw the unseen kind).

    Raises:
        ValueError: there is no such split, or the kind does not exist in it.
    """
    _check_split(split)
    rng = _rng(split, seed, "kind")
    kinds = [*KINDS, COMPOUND] + ([HELDOUT_KIND] if split == "heldout" else [])
    if kind is not None and kind not in kinds:
        raise ValueError(f"task kind {kind!r} is not one of {', '.join(kinds)} in split {split!r}")
    chosen = kind or rng.choice(kinds)
    return Task(
        id=f"{split}-{chosen}-{seed}",
        type=chosen,
        features={"domain": "orders", "identity_needed": chosen != "stock_check"},
        payload={"split": split, "seed": seed, "kind": chosen},
    )


def _check_split(split: object) -> None:
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is not one of {', '.join(SPLITS)}")


def spec_of(task: Task) -> Spec:
    """The full specification behind a task."""
    return build_spec(task.payload["split"], task.payload["seed"], task.payload["kind"])


def build_spec(split: Split, seed: int, kind: str) -> Spec:
    """Deterministic in its arguments.

    Raises:
        ValueError: there is no such split.
    """
    _check_split(split)
    rng = _rng(split, seed, kind)
    name, home = rng.choice(words.NAMES), rng.choice(words.CITIES)
    ambiguous = kind != "stock_check" and rng.random() < 0.15
    kinds = rng.sample([k for k in KINDS if k != "stock_check"], 2) if kind == COMPOUND else [kind]
    customers = _customers(rng, name, home, ambiguous)
    orders = _orders(rng, name, kinds)
    stock = [(item, rng.randint(1, 9)) for item in words.ITEMS]
    requests = tuple(_request(rng, k, customers[0], orders[i]) for i, k in enumerate(kinds))
    needed = [s for s in SLOTS[kinds[0]] if s in ("name", "order", "pin")]
    upfront = tuple(s for s in needed if rng.random() < {"name": 0.4, "order": 0.5, "pin": 0.15}[s])
    return Spec(
        split=split,
        seed=seed,
        requests=requests,
        profile=sample_profile(rng),
        bank="heldout" if split == "heldout" else "train",
        upfront=upfront,
        changes_mind=rng.random() < 0.2,
        home=home,
        ambiguous=ambiguous,
        customers=customers,
        orders=orders,
        stock=stock,
        timeout_at=rng.randint(1, 4) if rng.random() < 0.2 else None,
    )


def sample_profile(rng: random.Random) -> Profile:
    """A user drawn from independent tastes."""
    return Profile(
        verbosity=rng.randint(1, 3),
        tone=rng.choice(("formal", "casual")),
        use_name=rng.random() < 0.5,
        next_steps=rng.random() < 0.5,
        batched=rng.random() < 0.5,
    )


def final_calls(request: Request, world: World) -> list[tuple[str, dict[str, str]]]:
    """The writing calls that complete ``request`` in ``world``; none where policy refuses."""
    values = request.values
    if request.kind in ALLOWED_STATUS:
        order = world.order(values["order"])
        if order is None or order["status"] not in ALLOWED_STATUS[request.kind]:
            return []
        amount = str(order["amount"])
    order_id = values.get("order", "")
    match request.kind:
        case "cancel":
            return [("cancel", {"order": order_id})]
        case "refund":
            return [("refund", {"order": order_id, "amount": amount})]
        case "address":
            return [("move", {"order": order_id, "city": values["city"]})]
        case "exchange":
            return [("swap", {"order": order_id, "item": values["item"]})]
        case "channel":
            return [("contact", {"name": values["name"], "channel": values["channel"]})]
        case "repair":
            return [("ticket", {"order": order_id, "kind": "repair"})]
        case "return":
            pickup = {"order": order_id, "kind": "pickup"}
            return [("ticket", pickup), ("refund", {"order": order_id, "amount": amount})]
    return []


def _rng(*key: object) -> random.Random:
    return random.Random(hashlib.sha256(repr(key).encode()).digest())


def _customers(rng: random.Random, name: str, home: str, ambiguous: bool) -> list[tuple[str, str, str, str]]:
    others = rng.sample([n for n in words.NAMES if n != name], 3)
    rows = [(name, _pin(rng), home, rng.choice(words.CHANNELS))]
    rows += [(n, _pin(rng), rng.choice(words.CITIES), rng.choice(words.CHANNELS)) for n in others]
    if ambiguous:
        town = rng.choice([c for c in words.CITIES if c != home])
        rows.append((name, _pin(rng), town, "mail"))
    return rows


def _pin(rng: random.Random) -> str:
    return str(rng.randint(100, 999))


def _orders(rng: random.Random, name: str, kinds: list[str]) -> list[tuple[str, str, str, str, str, int]]:
    letters = rng.sample(words.ORDER_LETTERS, 6)
    ids = [f"{letter}{rng.randint(10, 99)}" for letter in letters]
    rows = []
    for i, order_id in enumerate(ids):
        status = rng.choice(words.STATUSES)
        if i < len(kinds) and kinds[i] in ALLOWED_STATUS and rng.random() < 0.75:
            status = rng.choice(ALLOWED_STATUS[kinds[i]])
        amount = rng.randint(11, 99)
        rows.append((order_id, name, rng.choice(words.ITEMS), status, rng.choice(words.CITIES), amount))
    return rows


def _request(
    rng: random.Random,
    kind: str,
    customer: tuple[str, str, str, str],
    order: tuple[str, str, str, str, str, int],
) -> Request:
    values = {"name": customer[0], "pin": customer[1], "order": order[0]}
    values["city"] = rng.choice([c for c in words.CITIES if c != order[4]])
    values["item"] = rng.choice([i for i in words.ITEMS if i != order[2]])
    values["channel"] = rng.choice([c for c in words.CHANNELS if c != customer[3]])
    wanted = {s: values[s] for s in SLOTS[kind]} | ({"item": values["item"]} if kind == "stock_check" else {})
    says = {}
    if "order" in wanted and rng.random() < 0.15:
        says["order"] = f"{order[0][0].lower()}-{order[0][1:]}"
    return Request(kind, wanted, says)
