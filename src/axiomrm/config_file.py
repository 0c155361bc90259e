"""YAML configuration files: values with the line they stand on, and overrides.

Scalars follow YAML 1.2: only ``true`` and ``false`` are booleans, ``5e-5`` is a number, ``no``, ``12:30`` and
``2026-01-12`` are text. A key that stands twice, an alias and a tag are errors.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from axiomrm.errors import ConfigError
from axiomrm.rubrics.yaml_faults import yaml_fault

KeyPath = tuple[str | int, ...]
MAX_BYTES = 1 << 20
OVERRIDE = "override "


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2, without the guesses of 1.1 and without aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_mark()
            raise yaml.composer.ComposerError(None, None, "an alias is not accepted; repeat the value", mark)
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"true|True|false|False"), list("tTfF"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"null|~|$"), ["n", "~", ""])
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"[-+]?(0|[1-9][0-9]*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"([-+]?(\.[0-9]+|[0-9]+\.[0-9]*([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)|[-+]?\.inf|\.nan)$"),
    list("-+.0123456789"),
)
_Loader.add_constructor("tag:yaml.org,2002:float", lambda loader, node: _float(node.value))


class Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.1 or 1.2 would read as something else."""


Dumper.yaml_implicit_resolvers = {
    first: [
        *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
        *_Loader.yaml_implicit_resolvers.get(first, []),
    ]
    for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
}


@dataclass
class Document:
    """A nested mapping and where each of its values was written."""

    values: dict[str, Any]
    places: dict[KeyPath, str] = field(default_factory=dict)
    """Key path to ``file:line`` or ``override 'a.b=1'``."""
    source: str = ""
    faults: frozenset[Any] = frozenset()
    """``config_findings.fault_key`` of every finding that the file has without overrides."""

    def place(self, path: Sequence[str | int]) -> str:
        """Where ``path`` or its nearest written ancestor stands."""
        for length in range(len(path), 0, -1):
            if (found := self.places.get(tuple(path[:length]))) is not None:
                return found
        return self.source

    def changed(self, path: Sequence[str | int]) -> list[str]:
        """The overrides inside ``path``, and those that say of what kind a section around it is."""
        kinds = {(*path[:length], "kind") for length in range(len(path) + 1)}
        inside = [
            place
            for found, place in self.places.items()
            if place.startswith(OVERRIDE) and (found in kinds or found[: len(path)] == tuple(path))
        ]
        return list(dict.fromkeys(inside))


def read_document(path: Path) -> Document:
    """The mapping in a YAML file.

    Raises:
        ConfigError: no such file, not UTF-8, not YAML, not a mapping, a repeated key, an alias or a tag.
    """
    try:
        raw = path.read_bytes()
        text = raw.decode()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})") from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{path}: {len(raw)} bytes; a configuration has at most {MAX_BYTES}")
    document = Document({}, source=str(path))
    node = _compose(text, str(path))
    value = {} if node is None else _plain(node, (), document, str(path))
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: holds {value!r}; a configuration is a mapping of sections")
    document.values = value
    return document


def apply_override(document: Document, override: str) -> None:
    """Set one ``a.b=value`` in place; the value is read as YAML (``null``, ``[1, 2]``, ``5e-5``).

    Raises:
        ConfigError: no ``=``, an empty key, or a value that is no YAML.
    """
    key, sign, text = override.partition("=")
    parts = tuple(key.strip().split("."))
    place = f"override {override!r}"
    if not sign or not all(parts):
        raise ConfigError(f"{place}: expected key=value with a dotted key, e.g. policy.train.iterations=5")
    node = _compose(text, place)
    scratch = Document({})
    value = None if node is None else _plain(node, parts, scratch, place)
    target: Any = document.values
    for depth, part in enumerate(parts[:-1]):
        if target.get(part) is None:
            target[part] = {}
            document.places[parts[: depth + 1]] = place
        target = target[part]
        if not isinstance(target, dict):
            raise ConfigError(f"{place}: {'.'.join(parts[: depth + 1])} is {target!r}, not a section")
    target[parts[-1]] = value
    for gone in [path for path in document.places if path[: len(parts)] == parts]:
        del document.places[gone]
    document.places |= {path: place for path in [*scratch.places, parts]}


def _compose(text: str, source: str) -> Any:
    loader = None
    try:
        loader = _Loader(text)  # refuses control characters
        return loader.get_single_node()
    except RecursionError as error:
        raise ConfigError(f"{source}: nested too deeply; a configuration has a handful of levels") from error
    except yaml.composer.ComposerError as error:  # our own, of an alias
        mark: Any = error.problem_mark
        place = "" if source.startswith(OVERRIDE) else f":{mark.line + 1}"
        raise ConfigError(f"{source}{place}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        fault = yaml_fault(error, text)
        place = "" if source.startswith(OVERRIDE) else f":{fault.line}:{fault.col}"
        raise ConfigError(f"{source}{place}: not YAML: {fault.message}; {fault.hint}") from error
    finally:
        if loader is not None:
            loader.dispose()


def _plain(node: Any, path: KeyPath, document: Document, source: str) -> Any:
    """A composed node as plain Python values; notes where each stands."""
    place = source if source.startswith(OVERRIDE) else f"{source}:{node.start_mark.line + 1}"
    document.places.setdefault(path, place)
    if len(path) > MAX_DEPTH:
        raise ConfigError(f"{place}: more than {MAX_DEPTH} levels; a configuration has a handful")
    if node.tag not in _PLAIN_TAGS:
        raise ConfigError(f"{place}: tag {node.tag!r} is not accepted; write the plain value")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, i), document, source) for i, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return dict(_entries(node, path, document, source))
    try:
        return _SCALARS[node.tag](node.value)
    except (KeyError, ValueError) as error:
        kind = node.tag.rpartition(":")[2]
        raise ConfigError(
            f"{place}: {node.value[:40]!r} cannot be read as {kind}; write a plain value"
        ) from error


def _entries(
    node: yaml.MappingNode, path: KeyPath, document: Document, source: str
) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for key, value in node.value:
        place = source if source.startswith(OVERRIDE) else f"{source}:{key.start_mark.line + 1}"
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
            raise ConfigError(f"{place}: a key is one word; merge keys and nested keys are not accepted")
        if key.value in seen:
            raise ConfigError(f"{place}: key {key.value!r} stands twice in this section; keep one")
        seen.add(key.value)
        document.places[(*path, key.value)] = place
        yield key.value, _plain(value, (*path, key.value), document, source)


def _float(text: str) -> float:
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_SCALARS: Mapping[str, Any] = {
    "tag:yaml.org,2002:str": str,
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": _float,
    "tag:yaml.org,2002:bool": lambda text: text.lower() == "true",
    "tag:yaml.org,2002:null": lambda text: None,
}
_PLAIN_TAGS = {*_SCALARS, "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}
MAX_DEPTH = 50
"""Levels of keys and list items."""
