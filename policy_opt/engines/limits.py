"""Bounds and words of vLLM's options, read from the source of its ``config`` package like the options' names.

A bound counts where every class with a field of that name has the same; what is written otherwise is left to
vLLM itself.
"""

import ast
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

Bounds = Mapping[str, float]
COMPARED: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "gt": ("greater than", operator.gt),
    "ge": ("at least", operator.ge),
    "lt": ("less than", operator.lt),
    "le": ("at most", operator.le),
}
"""Pydantic's words, ours, and what they mean."""


class Limits(NamedTuple):
    """What the values of options may be."""

    bounds: Mapping[str, Bounds]
    """By option."""
    words: Mapping[str, tuple[object, ...]]
    """By the name of a type that stands for a few values."""


def read_limits(config: Path) -> Limits:
    """The limits of a ``config`` package; none where there is no such folder."""
    bounds: dict[str, list[Bounds]] = defaultdict(list)
    literals: dict[str, ast.expr] = {}
    for file in sorted(config.glob("*.py")):
        for node in ast.parse(file.read_bytes()).body:
            if isinstance(node, ast.ClassDef):
                for name, found in _fields(node):
                    bounds[name].append(found)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                literals[node.targets[0].id] = node.value
    agreed = {name: found[0] for name, found in bounds.items() if all(other == found[0] for other in found)}
    words = {name: _values(node, literals) for name, node in literals.items() if _is_literal(node)}
    return Limits(agreed, {name: values for name, values in words.items() if values})


def beyond(value: float, bounds: Bounds) -> str | None:
    """What a number is refused for."""
    broken = [
        f"{word} {bounds[name]:g}"
        for name, (word, holds) in COMPARED.items()
        if name in bounds and not holds(value, bounds[name])
    ]
    return f"vLLM takes a number {' and '.join(broken)}" if broken else None


def no_word(value: object, words: tuple[object, ...]) -> str | None:
    """What a value is refused for that is none of a few; vLLM takes some in another spelling."""
    if _spelt(value) in map(_spelt, words):
        return None
    return f"vLLM takes one of {', '.join(map(repr, words))}"


def _spelt(value: object) -> str:
    return str(value).lower().replace("-", "_")


def _fields(found: ast.ClassDef) -> Iterator[tuple[str, Bounds]]:
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            call = node.value
            named = call.keywords if isinstance(call, ast.Call) and ast.unparse(call.func) == "Field" else []
            numbers = {word.arg: _number(word.value) for word in named if word.arg in COMPARED}
            yield node.target.id, {str(name): value for name, value in numbers.items() if value is not None}


def _number(node: ast.expr) -> float | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, int | float) else None


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal"


def _values(node: ast.expr, literals: Mapping[str, ast.expr]) -> tuple[object, ...]:
    """The values of a ``Literal``, those of others that it names included; empty: not all are known."""
    assert isinstance(node, ast.Subscript)
    found: list[object] = []
    for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
        other = literals.get(part.id) if isinstance(part, ast.Name) else None
        inner = (
            (part.value,)
            if isinstance(part, ast.Constant)
            else _values(other, literals)
            if other is not None and _is_literal(other)
            else ()
        )
        if not inner:
            return ()
        found += inner
    return tuple(found)
