from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from rich.pretty import pretty_repr

from axiomrm.errors import DataError
from axiomrm.personalization.profile import (
    PURPOSES,
    FeedbackEvent,
    Profile,
    ProfileView,
    SlotValue,
    profile_of,
)
from axiomrm.personalization.slots import (
    ForbiddenSlotError,
    SensitiveSlotError,
    SlotRegistry,
    SlotValueError,
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
    value = SlotValue.model_construct(key="stated.religion", value="x", purposes=PURPOSES)
    smuggled = Profile(subject="u").model_copy(update={"values": (value,)})
    assert smuggled.view().keys == frozenset()
    with pytest.raises(ForbiddenSlotError):
        smuggled.view().value("stated.religion", {})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("religion", "quaker", "a slot about religion is refused"),
        (
            "stated.tone",
            "I am HIV positive",
            "'stated.tone': a value of type str is not accepted; accepted: one",
        ),
        ("stated.verbosity", 9, "a value of type int is not accepted; accepted: a whole number from 1 to 5"),
        ("stated.accessibility", ["blind since 2019"], "accepted: a list out of"),
        ("stated.since my divorce", 1, "no slot of that name in the registry"),
        ("stated.tone", {"since": "HIV positive"}, "value"),
    ],
)
def test_a_profile_holds_only_what_the_registry_knows_and_repeats_nothing_else(
    key: str, value: Any, said: str
) -> None:
    found = [{"key": key, "value": value}]
    with pytest.raises(ValidationError, match=said) as caught:
        Profile.model_validate({"subject": "u", "values": found})
    told = [str(caught.value), repr(caught.value)]
    made = SlotValue.model_construct(key=key, value=value, source="stated")
    with pytest.raises(ValidationError) as caught:
        Profile(subject="u", values=(made,))
    told += [str(caught.value), repr(caught.value)]
    with pytest.raises(DataError) as refused:
        Profile(subject="u").with_value(key, value)
    for text in (*told, str(refused.value)):
        assert not any(word in text for word in ("HIV", "blind", "quaker", "divorce", "9,"))


def test_another_registry_is_given_as_context() -> None:
    slots = {"mine.size": {"type": "bool", "sensitivity": "public", "dimension": "form", "readers": ["pt.a"]}}
    registry = SlotRegistry.model_validate({"schema": "slots/1", "slots": slots})
    made = Profile(subject="u").with_value("mine.size", True, registry=registry)
    assert made.view(registry=registry).keys == {"mine.size"} and not made.view().keys
    read = made.model_dump(mode="json")
    assert Profile.model_validate(read, context={"registry": registry}) == made
    with pytest.raises(ValidationError, match="no slot"):
        Profile.model_validate(read)


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
    assert profile.view(now=NOW).ends == NOW + timedelta(days=365)
    bare = Profile(subject="u", values=(SlotValue(key="stated.tone", value="casual", created_at=NOW),))
    assert bare.view(now=NOW).keys and not bare.view(now=NOW + timedelta(days=365)).keys


def test_without_a_clock_the_real_time_counts() -> None:
    gone = Profile(subject="u").with_value(
        "stated.tone", "casual", created_at=datetime(2019, 1, 1, tzinfo=UTC)
    )
    here = gone.with_value("stated.tone", "casual", created_at=datetime.now(UTC) - timedelta(days=1))
    assert not gone.view().keys and here.view().keys


def test_a_time_without_a_zone_is_refused_by_name() -> None:
    naive = datetime(2026, 3, 1)
    with pytest.raises(SlotValueError, match=r"slot 'stated.tone': created_at: a time needs a zone; write"):
        Profile(subject="u").with_value("stated.tone", "casual", created_at=naive)
    for make in (
        lambda: SlotValue(key="stated.tone", value="casual", expires_at=naive),
        lambda: FeedbackEvent(shown=("a", "b"), choice="a", created_at=naive),
    ):
        with pytest.raises(ValidationError, match="timezone"):
            make()
    with pytest.raises(DataError, match="has no time zone"):
        profile_of("u", {"stated.tone": "casual"}).view(now=naive)


def test_a_purpose_that_was_not_allowed_shows_nothing() -> None:
    profile = Profile(subject="u").with_value("stated.tone", "casual", purposes=("judging",))
    assert not profile.view("criteria_generation").keys
    assert profile.view("judging").keys


def test_each_further_use_needs_a_grant_of_its_own() -> None:
    profile = profile_of("u", {"stated.tone": "casual"}).with_value(
        "stated.verbosity", 1, purposes=(*PURPOSES, "policy_training")
    )
    assert profile.view(also=("judging",)).keys == {"stated.tone", "stated.verbosity"}
    assert profile.view(also=("judging", "policy_training")).keys == {"stated.verbosity"}
    assert not profile.view(also=("judging", "rm_training")).keys


def test_stated_wins_over_inferred_then_narrow_over_wide_then_new_over_old() -> None:
    base = Profile(subject="u").with_value("stated.tone", "formal", created_at=NOW)
    later = NOW + timedelta(days=1)
    newer = base.with_value("stated.tone", "casual", source="inferred", created_at=later)
    assert newer.view(now=later).read({})["stated.tone"] == "formal"
    scoped = newer.with_value("stated.tone", "casual", scope={"domain": ("orders",)}, created_at=NOW)
    view = scoped.view(now=later)
    assert view.read({"domain": "orders"})["stated.tone"] == "casual"
    assert view.read({"domain": "billing"})["stated.tone"] == "formal"
    assert view.read({})["stated.tone"] == "formal"  # a task without the feature is outside the scope


def test_an_unconfirmed_inferred_value_is_a_draft() -> None:
    draft = Profile(subject="u").with_value("stated.tone", "casual", source="inferred", confirmed=False)
    assert not draft.view().keys


def test_scopes_over_bools_are_written_as_in_rubrics() -> None:
    value = SlotValue(key="stated.tone", value="formal", scope={"identity_needed": ("true",)})
    assert value.holds_in({"identity_needed": True})
    assert not value.holds_in({"identity_needed": False})


def test_no_repr_shows_a_value() -> None:
    profile = profile_of("u", {"stated.tone": "casual", "stated.accessibility": ["describe_images"]})
    event = FeedbackEvent(shown=("dialogue-7", "dialogue-8"), choice="tie")
    profile = profile.model_copy(update={"events": (event,)})
    for held in (
        profile,
        profile.view(),
        profile.values[0],
        profile.values,
        event,
        {"all": [profile, event]},
    ):
        for shown in (repr(held), str(held), pretty_repr(held)):
            assert not any(word in shown for word in ("casual", "describe_images", "dialogue", "tie"))
    assert repr(profile) == "Profile('u', slots=['stated.accessibility', 'stated.tone'], events=1)"
    assert repr(profile.values[0]) == "SlotValue('stated.tone', version=1)"
