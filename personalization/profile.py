"""A profile, and the view of it that the criteria compiler gets.

Covers: typed values with source, scope and lifetime; the rule which of several values wins; a view without
anything that no template may read. Does not cover: consent, storage, encryption, erasure (their own modules).
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from axiomrm.errors import DataError
from axiomrm.personalization.slots import SensitiveSlotError, SlotRegistry, SlotScalar

Source = Literal["stated", "inferred"]
Purpose = Literal[
    "criteria_generation", "judging", "rm_training", "policy_training", "cohort_prototype", "research_export"
]
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


class SlotValue(BaseModel):
    """One value of one slot."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str
    value: bool | int | str | tuple[str, ...]
    source: Source = "stated"
    confirmed: bool = True
    """Whether the user said yes to it; an inferred value counts only then."""
    confidence: float = Field(default=1.0, ge=0, le=1)
    scope: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Task feature → values (as text) where it holds; empty: everywhere."""
    version: int = Field(default=1, ge=1)
    created_at: datetime = _NEVER
    expires_at: datetime | None = None
    purposes: tuple[Purpose, ...] = ("criteria_generation", "judging")

    def __repr__(self) -> str:
        """Without the value: a log must not show it."""
        return f"SlotValue({self.key!r}, version={self.version})"

    __str__ = __repr__

    def holds_in(self, features: Mapping[str, Any]) -> bool:
        """Whether the scope contains a scenario; a feature that the task lacks is outside."""
        scope = self.scope.items()
        return all(name in features and _text(features[name]) in values for name, values in scope)


class FeedbackEvent(BaseModel):
    """One choice of the user between two shown replies."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    shown: tuple[str, str]
    """Ids of the two."""
    choice: Literal["a", "b", "tie"]
    created_at: datetime = _NEVER


class Profile(BaseModel):
    """What one person allowed us to keep."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    subject: str
    """Random id; never the caller's user id."""
    values: tuple[SlotValue, ...] = ()
    events: tuple[FeedbackEvent, ...] = ()

    def __repr__(self) -> str:
        """Slot names only."""
        keys = sorted({v.key for v in self.values})
        return f"Profile({self.subject!r}, slots={keys}, events={len(self.events)})"

    __str__ = __repr__

    def with_value(
        self, key: str, value: Any, *, registry: SlotRegistry | None = None, **fields: Any
    ) -> "Profile":
        """A new profile with this value in place of the old one of the same slot, scope and source.

        Args:
            key: a slot of the registry.
            value: checked against the slot's domain.
            registry: the shipped one by default.
            **fields: further fields of ``SlotValue`` (``source``, ``scope``, ``created_at`` …).

        Raises:
            SlotError: forbidden or unknown key, or a value outside the slot's domain.
        """
        known = registry or SlotRegistry.load()
        slot = known.get(key)
        made = SlotValue(key=key, value=known.checked(key, value), **fields)
        if made.expires_at is None and slot.ttl_days is not None and made.created_at != _NEVER:
            made = made.model_copy(update={"expires_at": made.created_at + timedelta(days=slot.ttl_days)})
        same = [v for v in self.values if (v.key, v.scope, v.source) == (key, made.scope, made.source)]
        if same:
            made = made.model_copy(update={"version": max(v.version for v in same) + 1})
        kept = tuple(v for v in self.values if v not in same)
        return self.model_copy(update={"values": (*kept, made)})

    def without(self, key: str) -> "Profile":
        """A new profile without any value of ``key``."""
        return self.model_copy(update={"values": tuple(v for v in self.values if v.key != key)})

    def view(
        self,
        purpose: Purpose = "criteria_generation",
        *,
        registry: SlotRegistry | None = None,
        now: datetime | None = None,
    ) -> "ProfileView":
        """What may be read for a purpose: allow-listed, readable, unexpired, confirmed values.

        Args:
            purpose: a value without it is left out.
            registry: the shipped one by default.
            now: the clock; ``None``: values do not expire.
        """
        known = registry or SlotRegistry.load()
        kept = []
        for value in self.values:
            slot = known.slots.get(value.key)
            expired = now is not None and value.expires_at is not None and value.expires_at <= now
            allowed = value.confirmed and purpose in value.purposes
            if slot is not None and slot.readable and allowed and not expired:
                kept.append(value)
        return ProfileView(tuple(kept), purpose=purpose, registry=known)


class ProfileView:
    """The only thing that the compiler sees of a profile: no subject, no events, no unreadable slot."""

    __slots__ = ("_values", "purpose", "registry")

    def __init__(self, values: tuple[SlotValue, ...], *, purpose: Purpose, registry: SlotRegistry) -> None:
        """Opened by ``Profile.view``.

        Raises:
            SensitiveSlotError: a value that no template may read.
        """
        for value in values:
            if not registry.get(value.key).readable:
                raise SensitiveSlotError(_UNREADABLE.format(key=value.key))
        self._values, self.purpose, self.registry = values, purpose, registry

    def __repr__(self) -> str:
        return f"ProfileView({sorted(self.keys)}, purpose={self.purpose!r})"

    @property
    def keys(self) -> frozenset[str]:
        """Slots with a value."""
        return frozenset(v.key for v in self._values)

    def value(self, key: str, features: Mapping[str, Any]) -> SlotValue | None:
        """The value of a slot in a scenario; ``None``: there is none.

        Stated wins over inferred, then the narrower scope, then the newer; the losers stay in the profile.

        Raises:
            SensitiveSlotError: no template may read this slot.
            SlotError: unknown or forbidden key.
        """
        if not self.registry.get(key).readable:
            raise SensitiveSlotError(_UNREADABLE.format(key=key))
        held = [v for v in self._values if v.key == key and v.holds_in(features)]
        return max(held, key=_rank, default=None)

    def read(self, features: Mapping[str, Any]) -> Mapping[str, SlotScalar]:
        """Slot → value in a scenario, sorted by slot."""
        found = {key: self.value(key, features) for key in sorted(self.keys)}
        return MappingProxyType({k: v.value for k, v in found.items() if v is not None})


_UNREADABLE = "slot {key!r} may be stored but no criterion may read it; it has no readers in the registry"


def _rank(value: SlotValue) -> tuple[bool, int, datetime, int]:
    return value.source == "stated", len(value.scope), value.created_at, value.version


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def profile_of(subject: str, slots: Mapping[str, Any], registry: SlotRegistry | None = None) -> Profile:
    """A profile with stated values that hold everywhere.

    Raises:
        SlotError: as ``Profile.with_value``.
        DataError: the subject id is empty.
    """
    if not subject:
        raise DataError("a profile needs a subject id; create a random one, never the user's own id")
    profile = Profile(subject=subject)
    for key, value in slots.items():
        profile = profile.with_value(key, value, registry=registry)
    return profile
