"""Foreign files → plain values, and typed access to them with messages that name file, place and value."""

import json
import math
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from axiomrm.data.jsonl import unique_keys
from axiomrm.errors import DataError
from axiomrm.rubrics.convert.doubts import json_key_twice, yaml_doubt
from axiomrm.rubrics.convert.loss import Loss, shown
from axiomrm.rubrics.yaml_faults import yaml_fault

MAX_BYTES = 1 << 28
_YAML_MAX = 1 << 22
_MISSING: Any = object()


@dataclass
class Entry:
    """One mapping of a foreign file; remembers which of its keys were looked at."""

    data: dict[str, Any]
    file: str
    path: str
    losses: list[Loss]
    used: set[str] = field(default_factory=set)

    def has(self, key: str) -> bool:
        """Whether ``key`` is there and not null."""
        return self.data.get(key) is not None

    def error(self, key: str, accepted: str) -> DataError:
        """The error for a value that cannot be used."""
        place = f"{self.file}: {self.path}/{key}" if self.path else f"{self.file}: {key}"
        if key not in self.data:
            return DataError(f"{place} is missing; accepted: {accepted}")
        return DataError(f"{place}: {shown(self.data[key])} is not {accepted}")

    def text(self, key: str, default: str = _MISSING) -> str:
        """A text; an empty one only as the default.

        Raises:
            DataError: missing without default, or no text.
        """
        self.used.add(key)
        if not self.has(key) and default is not _MISSING:
            return default
        value = self.data.get(key)
        if not isinstance(value, str) or (not value.strip() and default is _MISSING):
            raise self.error(key, "a text")
        return value

    def number(self, key: str, default: float = _MISSING) -> float:
        """A finite number.

        Raises:
            DataError: missing without default, or no finite number.
        """
        self.used.add(key)
        if not self.has(key) and default is not _MISSING:
            return default
        value = self.data.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(key, "a finite number")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; empty if missing.

        Raises:
            DataError: no list of texts.
        """
        self.used.add(key)
        value = self.data.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.error(key, "a list of texts")
        return tuple(value)

    def entries(self, key: str) -> list["Entry"]:
        """A list of mappings.

        Raises:
            DataError: no list of mappings.
        """
        self.used.add(key)
        path = f"{self.path}/{key}" if self.path else key
        return entries_of(self.data.get(key), self.file, path, self.losses)

    def lose(self, name: str, kind: str, detail: str = "") -> None:
        """Record a loss at this entry."""
        assert kind in ("dropped", "approximated", "inferred")
        self.losses.append(Loss(self.path, name, kind, detail))  # type: ignore[arg-type]

    def drop(self, key: str, detail: str = "") -> None:
        """Record that ``key``, if it is there, is left out."""
        self.used.add(key)
        if self.has(key):
            self.lose(key, "dropped", detail or shown(self.data[key]))

    def drop_rest(self, ignore: Iterable[str] = ()) -> None:
        """Record every key that nothing has looked at."""
        for key in self.data:
            if key not in self.used and key not in ignore:
                self.drop(key)


def entries_of(value: Any, file: str, path: str, losses: list[Loss]) -> list[Entry]:
    """The mappings of a list.

    Raises:
        DataError: it is no list, or one of its elements is no mapping.
    """
    if not isinstance(value, list):
        raise DataError(f"{file}: {path or 'the file'}: a list is needed, found {shown(value)}")
    return [entry_of(v, file, f"{path}/{i}" if path else str(i), losses) for i, v in enumerate(value)]


def entry_of(value: Any, file: str, path: str, losses: list[Loss]) -> Entry:
    """One mapping.

    Raises:
        DataError: it is none.
    """
    if not isinstance(value, dict) or not all(isinstance(k, str) for k in value):
        raise DataError(f"{file}: {path or 'the file'}: a mapping is needed, found {shown(value)}")
    return Entry(value, file, path, losses)


def load(text: str, file: str) -> Any:
    """JSON, else YAML without aliases and tags.

    Raises:
        DataError: neither.
    """
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _json(text, file, 1)
        except DataError:
            if not file.endswith((".yaml", ".yml")):
                raise
    return load_yaml(text, file)


def load_yaml(text: str, file: str) -> Any:
    """YAML through the safe loader; aliases are refused, as they can blow up a small file.

    Raises:
        DataError: no YAML, an alias, a key that stands twice, a number in base 8 or 60, or more than 4 MiB.
    """
    if len(text) > _YAML_MAX:
        raise DataError(f"{file}: {len(text)} characters of YAML, at most {_YAML_MAX} are read; write JSON")
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.AliasEvent):
                mark: Any = event.start_mark
                raise DataError(
                    f"{file}:{mark.line + 1}:{mark.column + 1}: aliases are not read; repeat the value"
                )
        if (doubt := yaml_doubt(text)) is not None:
            raise DataError(f"{file}:{doubt.line}:{doubt.col}: {doubt.message}; {doubt.hint}")
        value = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        json.dumps(value, ensure_ascii=False, default=str).encode()  # half an emoji cannot be written again
        return value
    except yaml.YAMLError as error:
        fault = yaml_fault(error, text)
        raise DataError(
            f"{file}:{fault.line}:{fault.col}: not YAML: {fault.message}; {fault.hint}"
        ) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file}: not readable as YAML: {' '.join(str(error).split())}") from error


def load_toml(text: str, file: str) -> Any:
    """TOML.

    Raises:
        DataError: no TOML.
    """
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise DataError(f"{file}: not readable as TOML: {error}") from error


def rows(text: str, file: str) -> Iterator[tuple[str, Any]]:
    """Place and value of each record: the lines of JSONL, or the one JSON or YAML value of the file.

    Raises:
        DataError: a line is no JSON.
    """
    # A line ends in a line feed and nothing else: U+2028 is text.
    lines = [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if len(lines) > 1 and all(line.lstrip().startswith("{") for _, line in lines):
        for number, line in lines:
            yield f"line {number}", _json(line, file, number)
        return
    yield "", load(text, file)


def _json(text: str, file: str, line: int) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant, object_pairs_hook=unique_keys)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # half an emoji cannot be written again
        return value
    except DataError as error:
        key, offset = json_key_twice(text) or ("", 0)
        raise DataError(
            f"{file}:{line + text.count(chr(10), 0, offset)}: key {key!r} stands twice in one mapping; "
            "keep one of the two"
        ) from error
    except (ValueError, RecursionError) as error:
        at = line + getattr(error, "lineno", 1) - 1
        reason = getattr(error, "msg", "") or getattr(error, "reason", error)
        raise DataError(f"{file}:{at}: not readable as JSON: {reason}") from error


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
