"""A profile, and the view of it that the criteria compiler gets.

Covers: typed values of the registry with source, scope, lifetime and the purposes that they may serve; the
rule which of several values wins; a view without anything that no template may read, that has ended, or that
lacks a purpose; no message and no representation repeats what a person said. Does not cover: consent records,
storage, encryption, erasure (their own modules).
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from axiomrm.errors import DataError
from axiomrm.personalization.slots import SensitiveSlotError, Slot, SlotRegistry, SlotScalar, SlotValueError

Source = Literal["stated", "inferred"]
Purpose = Literal[
    "criteria_generation", "judging", "rm_training", "policy_training", "cohort_prototype", "research_export"
]
PURPOSES: tuple[Purpose, ...] = ("criteria_generation", "judging")
"""What a value may serve unless more is allowed."""
Clock = Callable[[], datetime]
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def moment(now: datetime | None = None) -> datetime:
    """The time at which lifetimes are looked at; without one the real time.

    Raises:
        DataError: it has no time zone.
    """
    now = datetime.now(UTC) if now is None else now
    if now.utcoffset() is None:
        raise DataError(f"now = {now.isoformat()} has no time zone; write datetime.now(UTC)")
    return now


class _Said(BaseModel):
    """Something that a person said: refused and shown without being repeated."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, revalidate_instances="always"
    )


class SlotValue(_Said):
    """One value of one slot.

    Its key and value are checked against the registry: the shipped one, or ``context={"registry": …}`` of
    ``model_validate``.
    """

    key: str
    value: bool | int | str | tuple[str, ...]
    source: Source = "stated"
    confirmed: bool = True
    """Whether the user said yes to it; an inferred value counts only then."""
    confidence: float = Field(default=1.0, ge=0, le=1)
    scope: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Task feature → values (as text) where it holds; empty: everywhere."""
    version: int = Field(default=1, ge=1)
    created_at: AwareDatetime = _NEVER
    """With a time zone; ``_NEVER``: not known, and then the slot's lifetime has no beginning."""
    expires_at: AwareDatetime | None = None
    """With a time zone; ``None``: after the slot's lifetime."""
    purposes: tuple[Purpose, ...] = PURPOSES

    @field_validator("value")
    @classmethod
    def _of_the_registry(cls, value: SlotScalar, info: ValidationInfo) -> SlotScalar:
        known: SlotRegistry = (info.context or {}).get("registry") or SlotRegistry.load()
        return known.checked(info.data["key"], value) if "key" in info.data else value

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Without the value: neither a log nor rich may show it."""
        yield None, self.key
        yield "version", self.version

    def holds_in(self, features: Mapping[str, Any]) -> bool:
        """Whether the scope contains a scenario; a feature that the task lacks is outside."""
        scope = self.scope.items()
        return all(name in features and _text(features[name]) in values for name, values in scope)


class FeedbackEvent(_Said):
    """One choice of the user between two shown replies."""

    shown: tuple[str, str]
    """Ids of the two."""
    choice: Literal["a", "b", "tie"]
    created_at: AwareDatetime = _NEVER
    """With a time zone."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Without what was shown and chosen."""
        yield "created_at", self.created_at.isoformat()


class Profile(_Said):
    """What one person allowed us to keep; values are those of the registry, as in ``SlotValue``."""

    subject: str
    """Random id; never the caller's user id."""
    values: tuple[SlotValue, ...] = ()
    events: tuple[FeedbackEvent, ...] = ()

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Slot names only."""
        yield None, self.subject
        yield "slots", sorted({v.key for v in self.values})
        yield "events", len(self.events)

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
            SlotError: forbidden or unknown key, a value outside the slot's domain, or a refused field.
        """
        known = registry or SlotRegistry.load()
        slot = known.get(key)
        made = _made({"key": key, "value": known.checked(key, value), **fields}, known)
        made = made.model_copy(update={"expires_at": _end(made, slot)})
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
        also: tuple[Purpose, ...] = (),
        registry: SlotRegistry | None = None,
        now: datetime | None = None,
    ) -> "ProfileView":
        """What may be read for a purpose: allow-listed, readable, unexpired, confirmed values.

        Args:
            purpose: a value without it is left out.
            also: what else will be done with it, each a purpose that a value must have too (no bundling).
            registry: the shipped one by default.
            now: the time, with a zone; by default the real one.

        Raises:
            DataError: ``now`` has no time zone.
        """
        known, now = registry or SlotRegistry.load(), moment(now)
        kept, ends = [], []
        for value in self.values:
            slot = known.slots.get(value.key)
            if slot is None or not slot.readable or not value.confirmed:
                continue
            end = _end(value, slot)
            if {purpose, *also} <= set(value.purposes) and (end is None or now < end):
                kept.append(value)
                ends += [end] if end is not None else []
        return ProfileView(tuple(kept), purpose=purpose, registry=known, ends=min(ends, default=None))


class ProfileView:
    """The only thing that the compiler sees of a profile: no subject, no events, no unreadable slot."""

    __slots__ = ("_values", "ends", "purpose", "registry")

    def __init__(
        self,
        values: tuple[SlotValue, ...],
        *,
        purpose: Purpose,
        registry: SlotRegistry,
        ends: datetime | None = None,
    ) -> None:
        """Opened by ``Profile.view``.

        Args:
            values: what it shows.
            purpose: what it was opened for.
            registry: of the slots.
            ends: when the first of the values ends and a new view is needed; ``None``: none does.

        Raises:
            SensitiveSlotError: a value that no template may read.
        """
        for value in values:
            if not registry.get(value.key).readable:
                raise SensitiveSlotError(_UNREADABLE.format(key=value.key))
        self._values, self.purpose, self.registry, self.ends = values, purpose, registry, ends

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


def _end(value: SlotValue, slot: Slot) -> datetime | None:
    if value.expires_at is None and slot.ttl_days is not None and value.created_at != _NEVER:
        return value.created_at + timedelta(days=slot.ttl_days)
    return value.expires_at


def _made(fields: Mapping[str, Any], registry: SlotRegistry) -> SlotValue:
    """A value of fields that a caller gave; what is refused is named by its field, not repeated."""
    try:
        return SlotValue.model_validate(fields, context={"registry": registry})
    except ValidationError as error:
        told = [
            f"{'.'.join(map(str, e['loc']))}: {_REASONS.get(e['type'], e['msg'])}"
            for e in error.errors(include_url=False, include_input=False)
        ]
        raise SlotValueError(f"slot {fields['key']!r}: {'; '.join(told)}") from error


_REASONS = {"timezone_aware": "a time needs a zone; write datetime.now(UTC), or end it in Z or +00:00"}


def profile_of(
    subject: str,
    slots: Mapping[str, Any],
    registry: SlotRegistry | None = None,
    *,
    purposes: tuple[Purpose, ...] = PURPOSES,
) -> Profile:
    """A profile with stated values that hold everywhere.

    Args:
        subject: random id.
        slots: slot → value.
        registry: the shipped one by default.
        purposes: what all of them may serve.

    Raises:
        SlotError: as ``Profile.with_value``.
        DataError: the subject id is empty.
    """
    if not subject:
        raise DataError("a profile needs a subject id; create a random one, never the user's own id")
    profile = Profile(subject=subject)
    for key, value in slots.items():
        profile = profile.with_value(key, value, registry=registry, purposes=purposes)
    return profile
