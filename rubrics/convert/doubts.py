"""What a foreign file says in two ways at once, so that any reading would be a guess.

A key that stands twice in one mapping; in YAML also an unquoted number that the parser reads in base 8 or 60
(``010`` is 8, ``1:30`` is 90), where a person reads something else.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from axiomrm.rubrics.yaml_faults import Fault

_JSON = re.compile(r'("(?:[^"\\]|\\.)*")(\s*:)?|[{}]', re.DOTALL)
_BASE_8 = re.compile(r"[-+]?0[0-7_]+")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


def json_key_twice(text: str) -> tuple[str, int] | None:
    """The first key of valid JSON that stands twice in one mapping, and the offset of the second.

    Args:
        text: valid JSON; of other text it may see nothing.
    """
    opened: list[set[str]] = []
    for match in _JSON.finditer(text):
        if match.group() == "{":
            opened.append(set())
        elif match.group() == "}":
            opened[-1:] = []
        elif match.group(2) and opened:
            key = json.loads(match.group(1), strict=False)
            if key in opened[-1]:
                return key, match.start()
            opened[-1].add(key)
    return None


def yaml_doubt(text: str) -> Fault | None:
    """The first of them in a YAML document without aliases.

    Raises:
        yaml.YAMLError: no YAML.
    """
    found: list[Fault] = []
    waiting: list[Any] = [yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            found += _twice(node)
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.ScalarNode) and not node.style and node.tag in _NUMBERS:
            found += _odd_number(node)
    return min(found, key=lambda fault: (fault.line, fault.col), default=None)


def _twice(node: yaml.MappingNode) -> Iterator[Fault]:
    first: dict[tuple[str, str], int] = {}
    for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
        name = (key.tag, key.value)
        if name in first:
            message = f"key {key.value!r} stands twice, first at line {first[name]}"
            yield _at(key, message, "keep one of the two")
        first.setdefault(name, key.start_mark.line + 1)


def _odd_number(node: yaml.ScalarNode) -> Iterator[Fault]:
    base = 60 if ":" in node.value else 8 if _BASE_8.fullmatch(node.value) else 10
    if base != 10:
        message = f"unquoted {node.value!r} is a number in base {base} in YAML"
        yield _at(node, message, "write it in base 10, or quote it if it is a text")


def _at(node: yaml.ScalarNode, message: str, hint: str) -> Fault:
    mark: Any = node.start_mark
    return Fault(message, mark.line + 1, mark.column + 1, hint, len(node.value))
