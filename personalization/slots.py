"""The slot registry: typed, allow-listed facts that a profile may hold (PRIVACY.md section 2).

Covers: refusing unknown and forbidden keys, types and ranges of values, which template may read which slot,
messages that do not repeat what a person said.
Does not cover: consent, encryption of sensitive values, free text (there is no slot of type text).
"""

import difflib
import re
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from axiomrm.errors import ConfigError, DataError

SlotType = Literal["bool", "int", "enum", "set"]
Sensitivity = Literal["public", "personal", "sensitive"]
SlotScalar = bool | int | str | tuple[str, ...]
READABLE: frozenset[Sensitivity] = frozenset({"public", "personal"})
"""Levels that templates may read; ``sensitive`` never reaches a criterion."""


class SlotError(DataError):
    """A slot cannot be set or read."""


class UnknownSlotError(SlotError):
    """No such slot in the registry."""


class ForbiddenSlotError(SlotError):
    """The key names a cause or an identity, which no profile may hold, with consent or without."""

    def __init__(self, message: str, category: str) -> None:
        super().__init__(message)
        self.category = category
        """For the user's own counter; the value is kept nowhere."""


class SensitiveSlotError(SlotError):
    """A slot that may be stored but that no criterion may read."""


class SlotValueError(SlotError):
    """The value does not fit the slot."""


class Slot(BaseModel):
    """One entry of the registry."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: SlotType
    range: tuple[int, int] | None = None
    """Int only, both ends included."""
    values: tuple[str, ...] = ()
    """Enum and set only."""
    sensitivity: Sensitivity
    dimension: Literal["form", "content"]
    """``value`` may never be personal."""
    readers: tuple[str, ...] = ()
    """Ids of the templates that may read it."""
    ttl_days: Annotated[float, Field(gt=0)] | None = None
    """Lifetime of a value; ``None``: no end."""
    half_life_days: Annotated[float, Field(gt=0)] | None = None
    summary: str = ""

    @model_validator(mode="after")
    def _domain(self) -> "Slot":
        if (self.type == "int") != (self.range is not None):
            raise ValueError("a slot of type int, and no other, needs 'range'")
        if (self.type in ("enum", "set")) != bool(self.values):
            raise ValueError("a slot of type enum or set, and no other, needs 'values'")
        if self.sensitivity == "sensitive" and self.readers:
            raise ValueError("a sensitive slot has no readers")
        return self

    @property
    def readable(self) -> bool:
        """Whether any criterion may depend on it."""
        return self.sensitivity in READABLE and bool(self.readers)

    @property
    def accepts(self) -> str:
        """The domain in words."""
        if self.type == "bool":
            return "true or false"
        if self.range is not None:
            return f"a whole number from {self.range[0]} to {self.range[1]}"
        return ("one of " if self.type == "enum" else "a list out of ") + ", ".join(self.values)


class SlotRegistry(BaseModel):
    """A file of schema ``slots/1``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["slots/1"] = Field(alias="schema")
    slots: dict[str, Slot]
    forbidden: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Category → words; a key with such a word is refused."""

    @model_validator(mode="after")
    def _keys(self) -> "SlotRegistry":
        for key in self.slots:
            category = self.category_of(key)
            if category:
                raise ValueError(f"slot {key!r} is of the forbidden category {category!r}")
        return self

    @classmethod
    def load(cls, path: str | Path | None = None) -> "SlotRegistry":
        """The registry of a file; without a path the shipped one.

        Raises:
            ConfigError: the file is not there or not of schema ``slots/1``.
        """
        return _shipped() if path is None else _read(Path(path).name, _text(Path(path)))

    def category_of(self, key: str) -> str | None:
        """The forbidden category that a key names."""
        words = set(re.split(r"[^a-z0-9]+", key.casefold()))
        return next((name for name, listed in self.forbidden.items() if words & {name, *listed}), None)

    def get(self, key: str) -> Slot:
        """The slot behind a key.

        Raises:
            ForbiddenSlotError: the key names a category that no profile may hold.
            UnknownSlotError: no such slot.
        """
        if key in self.slots:
            return self.slots[key]
        category = self.category_of(key)
        if category:
            raise ForbiddenSlotError(
                f"a slot about {category} is refused: no profile holds causes or identities; "
                f"state the preference itself instead (known slots: {', '.join(self.slots)})",
                category,
            )
        raise UnknownSlotError(self._unknown(key))

    def _unknown(self, key: str) -> str:
        """Repeats a key only if it is a slip of the pen: anything else could be about a person."""
        near = difflib.get_close_matches(key, self.slots, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known slots: {', '.join(self.slots)}"
        slip = difflib.get_close_matches(key, self.slots, n=1, cutoff=0.9)
        return f"no slot {repr(key) if slip else 'of that name'} in the registry; {hint}"

    def checked(self, key: str, value: Any) -> SlotScalar:
        """``value`` in the form in which it is kept; a set becomes a sorted tuple without repeats.

        Raises:
            SlotError: forbidden or unknown key, or a value outside the slot's domain. The message names the
                value's type; the value could be anything that a person said.
        """
        slot = self.get(key)
        good = _fit(slot, value)
        if good is None:
            found = f"a value of type {type(value).__name__}"
            raise SlotValueError(f"slot {key!r}: {found} is not accepted; accepted: {slot.accepts}")
        return good

    def readable_by(self, key: str, template: str) -> bool:
        """Whether a template may read a slot."""
        slot = self.slots.get(key)
        return slot is not None and slot.readable and template in slot.readers


def _fit(slot: Slot, value: Any) -> SlotScalar | None:
    if slot.type == "bool":
        return value if isinstance(value, bool) else None
    if slot.type == "int":
        inside = isinstance(value, int) and not isinstance(value, bool) and slot.range is not None
        return value if inside and slot.range[0] <= value <= slot.range[1] else None  # type: ignore[index]  # inside says so
    if slot.type == "enum":
        return value if isinstance(value, str) and value in slot.values else None
    if not isinstance(value, list | tuple | set | frozenset) or not all(v in slot.values for v in value):
        return None
    return tuple(sorted(set(value)))


@lru_cache(maxsize=1)
def _shipped() -> SlotRegistry:
    text = resources.files("axiomrm.data").joinpath("bundled/slots.yaml").read_text(encoding="utf-8")
    return _read("slots.yaml", text)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the slot registry cannot be read: {error}") from error


def _read(name: str, text: str) -> SlotRegistry:
    try:
        return SlotRegistry.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "file"
        raise ConfigError(f"{name}: {where}: {first['msg']}, found {str(first['input'])[:80]!r}") from error
