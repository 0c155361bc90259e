from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axiomrm.data.verdict import Scored
from axiomrm.errors import ConfigError
from axiomrm.personalization.compile import compile_criteria
from axiomrm.personalization.profile import profile_of
from axiomrm.rubrics.aggregate import aggregate
from axiomrm.rubrics.rubric import Rubric

DESK = Rubric.load("service_desk_steps")
FEATURES: dict[str, Any] = {"domain": "orders"}
SLOTS = st.fixed_dictionaries(
    {},
    optional={
        "stated.verbosity": st.integers(1, 5),
        "stated.tone": st.sampled_from(["formal", "casual"]),
        "stated.use_name": st.booleans(),
        "stated.next_steps": st.booleans(),
        "stated.batched_questions": st.booleans(),
    },
)
UNREAD = st.fixed_dictionaries(
    {},
    optional={
        "stated.accessibility": st.lists(st.sampled_from(["describe_images", "short_paragraphs"])),
        "stated.humour": st.sampled_from(
            ["none", "some"]
        ),  # personal, but no template of this rubric reads it
        "stated.expertise.coding": st.integers(0, 3),
    },
)


def test_a_profile_becomes_short_questions_with_a_bounded_share() -> None:
    view = profile_of("u", {"stated.verbosity": 1, "stated.tone": "casual"}).view()
    found = compile_criteria(view, DESK, FEATURES)
    assert {c.id: c.ask for c in found.criteria} == {
        "pt.verbosity": "Are the replies short?",
        "pt.tone": "Are the replies casual?",
    }
    assert found.n_eff == 4.0  # 2 a stated slot
    assert found.share == pytest.approx(0.4 * 4 / 12)
    # W+ = 6 stays: sd.step gets 6·(1−λ), the two criteria share 6·λ
    weights = {i.id: i.weight for i in found.active.items}
    assert weights["sd.step"] == pytest.approx(6 * (1 - found.share))
    assert weights["pt.tone"] == weights["pt.verbosity"] == pytest.approx(3 * found.share)


def test_a_profile_without_preference_is_the_generic_rubric_to_the_byte() -> None:
    generic = DESK.bind(FEATURES).compiled_hash
    for slots in ({}, {"stated.verbosity": 3}, {"stated.humour": "some"}):
        found = compile_criteria(profile_of("u", slots).view(), DESK, FEATURES, n_events=50)
        assert found.share == 0 and not found.criteria
        assert found.compiled_hash == generic


@settings(max_examples=60, deadline=None)
@given(slots=SLOTS, unread=UNREAD, n_events=st.floats(0, 100))
def test_flipping_what_no_template_reads_changes_no_byte(
    slots: dict[str, Any], unread: dict[str, Any], n_events: float
) -> None:
    plain = compile_criteria(profile_of("a", slots).view(), DESK, FEATURES, n_events)
    other = compile_criteria(profile_of("b", {**unread, **slots}).view(), DESK, FEATURES, n_events)
    assert plain.compiled_hash == other.compiled_hash
    assert plain.criteria == other.criteria and plain.personal == other.personal


def test_flipping_what_a_template_reads_changes_the_hash() -> None:
    hashes = {
        compile_criteria(profile_of("u", {"stated.tone": tone}).view(), DESK, FEATURES).compiled_hash
        for tone in ("formal", "casual")
    }
    assert len(hashes) == 2


def test_own_weights_split_the_share_and_move_the_reward() -> None:
    view = profile_of("u", {"stated.tone": "formal", "stated.use_name": True}).view()
    weights = {"pt.tone": 1.0, "pt.name": 0.25, "pt.next_steps": 1.0}
    found = compile_criteria(view, DESK, FEATURES, 12, weights=weights)
    assert found.share == pytest.approx(0.4 * 16 / 24)
    assert "pt.next_steps" not in found.personal.weights  # not active here
    final = {c.id: c.weight for c in found.criteria}
    assert final["pt.tone"] == pytest.approx(4 * final["pt.name"])
    yes, no = Scored(value=1), Scored(value=0)
    result = aggregate(found.active, {"sd.step": [yes, yes], "pt.tone": yes, "pt.name": no})
    assert result.reward == pytest.approx((1 - found.share) + found.share * 0.8)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_no_positive_number_is_refused(weight: float) -> None:
    view = profile_of("u", {"stated.tone": "formal"}).view()
    with pytest.raises(ConfigError, match=r"pt\.tone"):
        compile_criteria(view, DESK, FEATURES, weights={"pt.tone": weight})


def test_inferred_values_add_no_stated_evidence() -> None:
    profile = profile_of("u", {}).with_value("stated.tone", "formal", source="inferred")
    assert compile_criteria(profile.view(), DESK, FEATURES).share == 0
    assert compile_criteria(profile.view(), DESK, FEATURES, n_events=8).share == pytest.approx(0.2)


def test_a_scope_keeps_a_preference_out_of_other_tasks() -> None:
    profile = profile_of("u", {}).with_value("stated.tone", "casual", scope={"domain": ("billing",)})
    assert not compile_criteria(profile.view(), DESK, {"domain": "orders"}).criteria
    assert compile_criteria(profile.view(), DESK, {"domain": "billing"}).criteria


def test_the_full_rubric_takes_the_same_templates() -> None:
    view = profile_of("u", {"stated.batched_questions": False}).view()
    found = compile_criteria(view, Rubric.load("service_desk"), FEATURES)
    assert [c.ask for c in found.criteria] == ["Are the questions asked one by one?"]


def test_the_share_is_bounded_by_the_rubric_and_by_the_caller() -> None:
    view = profile_of("u", {"stated.tone": "formal"}).view()
    assert compile_criteria(view, DESK, FEATURES, 1e9).share <= 0.4
    assert compile_criteria(view, DESK, FEATURES, 1e9, lambda_max=0.1).share == pytest.approx(0.1)
    with pytest.raises(ConfigError, match="lambda_max"):
        compile_criteria(view, DESK, FEATURES, lambda_max=0.5)
    with pytest.raises(ConfigError, match="n_eff"):
        compile_criteria(view, DESK, FEATURES, n_events=-1)


def _rubric(tmp_path: Path, template: str) -> Rubric:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "schema: atr/1\nrubric: {id: mine, version: 1.0.0}\n"
        "axioms: [{id: ax.a, type: premise, statement: Serve.}]\n"
        "theorems: [{id: th.a, derived_from: [ax.a], derivation: so, statement: Serves.}]\n"
        f"personal_templates: [{template}]\n"
    )
    return Rubric.load(path)


@pytest.mark.parametrize(
    ("name", "slot", "dimension", "message"),
    [
        ("pt.spy", "stated.accessibility", "form", "readers are: nobody"),
        ("pt.spy", "stated.tone", "form", r"readers are: pt\.tone"),
        ("pt.spy", "stated.faith", "form", "not in the registry"),
        ("pt.tone", "stated.tone", "value", "only form and content"),
    ],
)
def test_a_template_that_may_not_be_personal_is_refused(
    tmp_path: Path, name: str, slot: str, dimension: str, message: str
) -> None:
    rest = "specialises: th.a, statement: X, max_weight: 1"
    rubric = _rubric(tmp_path, f"{{id: {name}, reads: [{slot}], dimension: {dimension}, {rest}}}")
    with pytest.raises(ConfigError, match=message):
        compile_criteria(profile_of("u", {"stated.tone": "formal"}).view(), rubric, {})


def test_a_view_for_another_purpose_compiles_to_nothing() -> None:
    view = profile_of("u", {"stated.tone": "formal"}).view("judging")
    with pytest.raises(ConfigError, match="criteria_generation"):
        compile_criteria(view, DESK, FEATURES)
