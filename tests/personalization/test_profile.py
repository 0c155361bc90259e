from datetime import UTC, datetime, timedelta

import pytest

from axiomrm.errors import DataError
from axiomrm.personalization.profile import Profile, ProfileView, SlotValue, profile_of
from axiomrm.personalization.slots import (
    ForbiddenSlotError,
    SensitiveSlotError,
    SlotRegistry,
    UnknownSlotError,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_the_view_shows_only_what_a_template_may_read() -> None:
    profile = profile_of("u", {"stated.tone": "formal", "stated.accessibility": ["describe_images"]})
    view = profile.view()
    assert dict(view.read({})) == {"stated.tone": "formal"}
    assert view.keys == {"stated.tone"}
    with pytest.raises(SensitiveSlotError, match=r"stated\.accessibility"):
        view.value("stated.accessibility", {})


def test_a_view_cannot_be_built_around_a_sensitive_value() -> None:
    value = SlotValue(key="stated.accessibility", value=("describe_images",))
    with pytest.raises(SensitiveSlotError):
        ProfileView((value,), purpose="criteria_generation", registry=SlotRegistry.load())


def test_a_value_smuggled_past_the_setter_is_not_shown() -> None:
    smuggled = Profile(subject="u", values=(SlotValue(key="stated.religion", value="x"),))
    assert smuggled.view().keys == frozenset()
    with pytest.raises(ForbiddenSlotError):
        smuggled.view().value("stated.religion", {})


def test_unknown_and_forbidden_keys_never_enter() -> None:
    with pytest.raises(UnknownSlotError):
        profile_of("u", {"stated.mood": 1})
    with pytest.raises(ForbiddenSlotError):
        Profile(subject="u").with_value("stated.health", "ill")
    with pytest.raises(DataError, match="subject"):
        profile_of("", {})


def test_a_new_value_replaces_the_old_one_and_counts_versions() -> None:
    profile = profile_of("u", {"stated.verbosity": 1}).with_value("stated.verbosity", 4)
    [value] = profile.values
    assert (value.value, value.version) == (4, 2)
    assert not profile.without("stated.verbosity").values


def test_values_end_after_their_lifetime() -> None:
    profile = Profile(subject="u").with_value("stated.tone", "casual", created_at=NOW)
    assert profile.view(now=NOW + timedelta(days=364)).keys
    assert not profile.view(now=NOW + timedelta(days=365)).keys  # ttl_days: 365


def test_a_purpose_that_was_not_allowed_shows_nothing() -> None:
    profile = Profile(subject="u").with_value("stated.tone", "casual", purposes=("judging",))
    assert not profile.view("criteria_generation").keys
    assert profile.view("judging").keys


def test_stated_wins_over_inferred_then_narrow_over_wide_then_new_over_old() -> None:
    base = Profile(subject="u").with_value("stated.tone", "formal", created_at=NOW)
    newer = base.with_value("stated.tone", "casual", source="inferred", created_at=NOW + timedelta(days=1))
    assert newer.view().read({})["stated.tone"] == "formal"
    scoped = newer.with_value("stated.tone", "casual", scope={"domain": ("orders",)}, created_at=NOW)
    assert scoped.view().read({"domain": "orders"})["stated.tone"] == "casual"
    assert scoped.view().read({"domain": "billing"})["stated.tone"] == "formal"
    assert (
        scoped.view().read({})["stated.tone"] == "formal"
    )  # a task without the feature is outside the scope


def test_an_unconfirmed_inferred_value_is_a_draft() -> None:
    draft = Profile(subject="u").with_value("stated.tone", "casual", source="inferred", confirmed=False)
    assert not draft.view().keys


def test_scopes_over_bools_are_written_as_in_rubrics() -> None:
    value = SlotValue(key="stated.tone", value="formal", scope={"identity_needed": ("true",)})
    assert value.holds_in({"identity_needed": True})
    assert not value.holds_in({"identity_needed": False})


def test_no_repr_shows_a_value() -> None:
    profile = profile_of("u", {"stated.tone": "casual", "stated.accessibility": ["describe_images"]})
    for shown in (
        repr(profile),
        str(profile),
        repr(profile.view()),
        repr(profile.values[0]),
        f"{profile.values}",
    ):
        assert "casual" not in shown and "describe_images" not in shown
