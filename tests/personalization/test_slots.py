from pathlib import Path

import pytest

from axiomrm.errors import ConfigError
from axiomrm.personalization.slots import (
    ForbiddenSlotError,
    SlotRegistry,
    SlotValueError,
    UnknownSlotError,
)


@pytest.fixture(scope="module")
def registry() -> SlotRegistry:
    return SlotRegistry.load()


def test_the_shipped_registry_has_no_readable_sensitive_slot(registry: SlotRegistry) -> None:
    sensitive = [s for s in registry.slots.values() if s.sensitivity == "sensitive"]
    assert sensitive and not any(s.readable or s.readers for s in sensitive)


@pytest.mark.parametrize(
    ("key", "category"),
    [
        ("stated.religion", "religion"),
        ("stated.health.diagnosis", "health"),
        ("user.skin_colour", "ethnicity"),
        ("stated.political-party", "politics"),
        ("Home.Address", "whereabouts"),
        ("stated.gender", "sexuality"),
        ("stated.child_age", "minors"),
    ],
)
def test_causes_and_identities_are_refused_by_name(registry: SlotRegistry, key: str, category: str) -> None:
    with pytest.raises(ForbiddenSlotError) as caught:
        registry.checked(key, "secret-value")
    assert caught.value.category == category
    assert "secret-value" not in str(caught.value)


def test_words_that_only_contain_a_forbidden_word_are_merely_unknown(registry: SlotRegistry) -> None:
    for key in ("stated.grace", "stated.pages", "stated.discarded"):  # race, age, card inside
        with pytest.raises(UnknownSlotError):
            registry.get(key)


def test_an_unknown_key_gets_the_nearest_known_one(registry: SlotRegistry) -> None:
    with pytest.raises(UnknownSlotError, match=r"stated\.tonne.*did you mean 'stated\.tone'"):
        registry.get("stated.tonne")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("stated.verbosity", 0),
        ("stated.verbosity", 6),
        ("stated.verbosity", True),
        ("stated.verbosity", 2.0),
        ("stated.verbosity", "2"),
        ("stated.use_name", 1),
        ("stated.tone", "Casual"),
        ("stated.topics_to_avoid", "sports"),
        ("stated.topics_to_avoid", ["sports", "weather"]),
    ],
)
def test_a_value_outside_the_domain_is_refused(registry: SlotRegistry, key: str, value: object) -> None:
    with pytest.raises(SlotValueError, match="accepted"):
        registry.checked(key, value)


def test_the_message_about_a_sensitive_slot_does_not_repeat_the_value(registry: SlotRegistry) -> None:
    with pytest.raises(SlotValueError) as caught:
        registry.checked("stated.accessibility", ["wheelchair"])
    assert "wheelchair" not in str(caught.value)


def test_values_inside_the_domain_are_kept_in_one_form(registry: SlotRegistry) -> None:
    assert registry.checked("stated.verbosity", 5) == 5
    assert registry.checked("stated.use_name", False) is False
    assert registry.checked("stated.topics_to_avoid", ["spoilers", "sports", "spoilers"]) == (
        "spoilers",
        "sports",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schema: slots/2\nslots: {}", "slots/1"),
        ("schema: slots/1\nslots: {a: {type: int, sensitivity: public, dimension: form}}", "range"),
        ("schema: slots/1\nslots: {a: {type: enum, sensitivity: public, dimension: form}}", "values"),
        ("schema: slots/1\nslots: {a: {type: bool, sensitivity: public, dimension: value}}", "dimension"),
        (
            "schema: slots/1\nslots:\n"
            "  a: {type: bool, sensitivity: sensitive, dimension: form, readers: [pt.a]}",
            "no readers",
        ),
        (
            "schema: slots/1\nslots: {x.faith: {type: bool, sensitivity: public, dimension: form}}\n"
            "forbidden: {religion: [faith]}",
            "religion",
        ),
        ("schema: [", "not YAML"),
        ("just text", "registry.yaml"),
    ],
)
def test_a_bad_registry_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "registry.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        SlotRegistry.load(path)


def test_a_missing_registry_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml"):
        SlotRegistry.load(tmp_path / "nowhere.yaml")
