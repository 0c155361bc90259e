"""The customer database (real SQLite) and the tools that read and write it.

A tool answers in one line. ``error …`` answers are recoverable: a time-out goes away on the second
try, an ambiguous name wants the home town, a badly written order number comes back corrected.
"""

import hashlib
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

SCHEMA = """
CREATE TABLE customers (name TEXT, pin TEXT, home TEXT, channel TEXT);
CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT, item TEXT, status TEXT, city TEXT, amount INTEGER);
CREATE TABLE stock (item TEXT PRIMARY KEY, count INTEGER);
CREATE TABLE tickets (order_id TEXT, kind TEXT);
"""
TOOLS: dict[str, tuple[str, ...]] = {
    "verify": ("name", "pin", "home"),
    "find": ("order",),
    "policy": ("topic", "order"),
    "stock": ("item",),
    "cancel": ("order",),
    "refund": ("order", "amount"),
    "move": ("order", "city"),
    "swap": ("order", "item"),
    "contact": ("name", "channel"),
    "ticket": ("order", "kind"),
    "weather": ("city",),
    "survey": ("name",),
    "promo": ("item",),
}
"""Tool to argument names; the last three are distractors that no task needs."""
OPTIONAL = {("verify", "home")}
WRITES = frozenset({"cancel", "refund", "move", "swap", "contact", "ticket"})
DISTRACTORS = frozenset({"weather", "survey", "promo"})
TOOL_SPECS: tuple[dict[str, Any], ...] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {a: {"type": "string"} for a in args},
                "required": [a for a in args if (name, a) not in OPTIONAL],
            },
        },
    }
    for name, args in TOOLS.items()
)
ALLOWED_STATUS = {
    "cancel": ("packed",),
    "refund": ("arrived", "lost"),
    "address": ("packed",),
    "exchange": ("arrived",),
    "repair": ("arrived",),
    "return": ("arrived",),
}


@dataclass
class World:
    """One episode's database plus what the tools remember."""

    customers: list[tuple[str, str, str, str]]
    orders: list[tuple[str, str, str, str, str, int]]
    stock: list[tuple[str, int]]
    timeout_at: int | None = None
    """The tool call (1-based) that times out once; ``None``: never."""
    calls: int = 0
    db: sqlite3.Connection = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.db = sqlite3.connect(":memory:", check_same_thread=False)
        self.db.executescript(SCHEMA)
        self.db.executemany("INSERT INTO customers VALUES (?,?,?,?)", self.customers)
        self.db.executemany("INSERT INTO orders VALUES (?,?,?,?,?,?)", self.orders)
        self.db.executemany("INSERT INTO stock VALUES (?,?)", self.stock)

    def contents(self) -> tuple[tuple[Any, ...], ...]:
        """Every row, sorted: the state that the verifier compares."""
        rows: list[tuple[Any, ...]] = []
        for table in ("customers", "orders", "stock", "tickets"):
            rows += [(table, *row) for row in self.db.execute(f"SELECT * FROM {table}")]
        return tuple(sorted(rows, key=repr))

    def fingerprint(self) -> str:
        """Content hash of the database."""
        return hashlib.sha256(repr(self.contents()).encode()).hexdigest()[:16]

    def call(self, name: str, args: dict[str, Any]) -> str:
        """Run a tool; never raises for what an agent can get wrong."""
        self.calls += 1
        problem = argument_error(name, args)
        if problem:
            return f"error {problem}"
        if self.calls == self.timeout_at:
            return "error timeout try again"
        return HANDLERS[name](self, {k: str(v) for k, v in args.items()})

    def order(self, order_id: str) -> dict[str, Any] | None:
        """One order as a dictionary."""
        keys = ("id", "customer", "item", "status", "city", "amount")
        row = self.db.execute("SELECT * FROM orders WHERE id = ?", (order_id,)).fetchone()
        return dict(zip(keys, row, strict=True)) if row else None


def argument_error(name: str, args: dict[str, Any]) -> str | None:
    """What is wrong with the call's shape, or ``None``."""
    if name not in TOOLS:
        return f"no tool {name}"
    unknown = [a for a in args if a not in TOOLS[name]]
    missing = [a for a in TOOLS[name] if a not in args and (name, a) not in OPTIONAL]
    if unknown or missing:
        return f"{name} wants {' '.join(TOOLS[name])}"
    return None


def canonical_order(text: str) -> str:
    """``k-42`` as ``K42``."""
    return re.sub(r"[^A-Za-z0-9]", "", text).upper()


def _with_order(
    run: Callable[[World, dict[str, Any], dict[str, str]], str],
) -> Callable[[World, dict[str, str]], str]:
    def handler(world: World, args: dict[str, str]) -> str:
        wanted = args["order"]
        order = world.order(wanted)
        if order is not None:
            return run(world, order, args)
        fixed = canonical_order(wanted)
        if fixed != wanted and world.order(fixed):
            return f"error format use {fixed}"
        return f"error no order {wanted}"

    return handler


def _verify(world: World, args: dict[str, str]) -> str:
    rows = world.db.execute("SELECT pin, home FROM customers WHERE name = ?", (args["name"],)).fetchall()
    if len(rows) > 1 and "home" not in args:
        return "error two match give home"
    return "ok" if any(p == args["pin"] and args.get("home", h) == h for p, h in rows) else "error wrong pin"


def _find(world: World, order: dict[str, Any], _: dict[str, str]) -> str:
    return f"{order['item']} {order['status']} to {order['city']} paid {order['amount']}"


def _policy(world: World, order: dict[str, Any], args: dict[str, str]) -> str:
    topic, status = args["topic"], order["status"]
    if topic not in ALLOWED_STATUS:
        return f"error no topic {topic}"
    if status not in ALLOWED_STATUS[topic]:
        return f"refused {status}"
    steps = {
        "cancel": "cancel",
        "refund": f"refund {order['amount']}",
        "address": "move",
        "exchange": "stock then swap",
        "repair": "ticket repair",
        "return": f"ticket pickup then refund {order['amount']}",
    }
    return f"allowed {steps[topic]}"


def _stock(world: World, args: dict[str, str]) -> str:
    row = world.db.execute("SELECT count FROM stock WHERE item = ?", (args["item"],)).fetchone()
    return f"{row[0]} left" if row else f"error no item {args['item']}"


def _write(sql: str, *columns: str) -> Callable[[World, dict[str, Any], dict[str, str]], str]:
    def run(world: World, _: dict[str, Any], args: dict[str, str]) -> str:
        world.db.execute(sql, tuple(args[c] for c in columns))
        return "ok"

    return run


def _refund(world: World, order: dict[str, Any], args: dict[str, str]) -> str:
    amount = args["amount"]
    world.db.execute("INSERT INTO tickets VALUES (?, ?)", (order["id"], f"refund {amount}"))
    return "ok"


def _contact(world: World, args: dict[str, str]) -> str:
    world.db.execute("UPDATE customers SET channel = ? WHERE name = ?", (args["channel"], args["name"]))
    return "ok"


HANDLERS: dict[str, Callable[[World, dict[str, str]], str]] = {
    "verify": _verify,
    "find": _with_order(_find),
    "policy": _with_order(_policy),
    "stock": _stock,
    "cancel": _with_order(_write("UPDATE orders SET status = 'cancelled' WHERE id = ?", "order")),
    "refund": _with_order(_refund),
    "move": _with_order(_write("UPDATE orders SET city = ? WHERE id = ?", "city", "order")),
    "swap": _with_order(_write("UPDATE orders SET item = ? WHERE id = ?", "item", "order")),
    "contact": _contact,
    "ticket": _with_order(_write("INSERT INTO tickets VALUES (?, ?)", "order", "kind")),
    "weather": lambda world, args: "sunny",
    "survey": lambda world, args: "sent",
    "promo": lambda world, args: "none",
}
