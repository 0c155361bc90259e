"""Whatever a foreign file holds, reading it gives rubrics that load, or a ``DataError``."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from axiomrm.errors import DataError
from axiomrm.rubrics import Rubric
from axiomrm.rubrics.convert import FORMATS, export_rubric, import_rubrics

KEYS = [
    "requirement",
    "weight",
    "name",
    "options",
    "label",
    "value",
    "na",
    "scale_type",
    "guidelines",
    "criteria",
    "sections",
    "rubric",
    "aggregation",
    "prompt_id",
    "rubrics",
    "criterion",
    "points",
    "tags",
    "tests",
    "assert",
    "type",
    "metric",
    "threshold",
    "defaultTest",
    "text",
    "choices",
    "version",
    "rubric_id",
    "criterion_id",
    "anchors",
    "description",
    "provenance",
    "judge_prompt_contract",
    "score_rubric",
    "scoring",
    "score1_description",
    "score2_description",
    "score3_description",
    "score4_description",
    "score5_description",
    "score_1",
    "title",
    "reward_model",
    "id",
    "evaluation_steps",
    "score_range",
    "expected_outcome",
]
WORDS = [
    "",
    " ",
    "x",
    "Essential Criteria: y",
    "Pitfall Criteria:",
    "llm-rubric",
    "not-llm-rubric",
    "assert-set",
]
MORE = [
    "ordinal",
    "binary",
    "auraone-rubric-v1",
    "no",
    "yes",
    "{{v}}",
    "ax.imported",
    "a.b",
    "\u2028",
    "\x00",
]
TEXTS = st.sampled_from([*WORDS, *MORE]) | st.text(max_size=6)
SCALARS = (
    st.none() | st.booleans() | st.integers(-3, 12) | st.sampled_from([0.5, 1e300, -0.0, 1e-320]) | TEXTS
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=20,
)


SCORES = {f"score{k}_description": f"level {k}" for k in range(1, 6)}
ANCHORS = [{"value": 1, "label": "a"}, {"value": 3, "label": "b"}]
AURA = {"criterion_id": "c", "label": "l", "scale_type": "ordinal", "weight": 1, "anchors": ANCHORS}
GOOD: dict[str, list[dict[str, Any]]] = {
    "autorubric": [{"requirement": "r", "weight": 2, "name": None, "options": None}],
    "healthbench": [{"criterion": "c", "points": 2}],
    "promptfoo": [{"type": "llm-rubric", "value": "v", "weight": 1, "metric": "m"}],
    "verifiers": [{"name": "n", "text": "t", "weight": 1, "choices": ["a", "b"]}],
    "auraone": [{**AURA, "description": "d", "tie_break_rule": None}],
    "prometheus": [{"criteria": "c", "score_rubric": None, **SCORES}],
    "rubrichub": [{"criterion": "c", "points": -1}],
    "rar": [{"description": "Optional Criteria: d", "weight": 1, "title": "t"}],
    "geval": [{"criteria": "c", "name": "n", "evaluation_steps": ["s"], "rubric": None}],
}


def shaped(name: str, items: Any, item: Any) -> Any:
    """The format's document around its list of ``items``, or around one ``item`` where it holds one."""
    shapes = {
        "healthbench": {"prompt_id": "p", "rubrics": items},
        "promptfoo": {"tests": [{"assert": items}]},
        "verifiers": {"criteria": items},
        "auraone": {
            "version": "auraone-rubric-v1",
            "rubric_id": "r",
            "criteria": items,
            "provenance": None,
        },
        "prometheus": item,
        "rubrichub": {"rubrics": items},
        "geval": item,
    }
    return shapes.get(name, items)


@st.composite
def near(draw: st.DrawFn, name: str) -> Any:
    """Almost the format: the right keys with values of all kinds, often in one place alone."""
    loose = st.fixed_dictionaries({}, optional={k: SCALARS | st.lists(TEXTS, max_size=3) for k in KEYS})
    exact = st.sampled_from(GOOD[name])
    good = st.builds(lambda a, b: a | b, loose, exact)
    item = loose | good | exact
    listed = st.lists(item, max_size=3) | st.lists(good, min_size=1, max_size=2) | st.lists(exact, min_size=1)
    tree = shaped(name, draw(listed), draw(item))
    odd = draw(st.sampled_from([None, *tree]) if isinstance(tree, dict) else st.none())
    return tree if odd is None else tree | {odd: draw(TREES)}


@pytest.mark.parametrize("blank", ["", " ", "\n"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_blank_text_is_refused_or_left_out_wherever_it_stands(name: str, blank: str) -> None:
    for item in GOOD[name]:
        for key in [key for key, value in item.items() if isinstance(value, str)]:
            blanked = item | {key: blank}
            comes_through(json.dumps(shaped(name, [blanked], blanked)), name)


def comes_through(text: str, name: str) -> int:
    """Refused as data, or rubrics that another format takes; returns how many."""
    try:
        result = import_rubrics(text, name, file="in.json", activate=True)
    except DataError as error:
        assert str(error).startswith("in.json")
        return 0
    for imported in result.rubrics:
        export_rubric(Rubric.from_model(imported.model), "autorubric")
    return len(result.rubrics)


@pytest.mark.parametrize("name", FORMATS)
def test_no_file_brings_anything_but_rubrics_or_a_data_error(name: str) -> None:
    read = 0

    @settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
    @given(near(name) | near(name) | TREES)
    @example(shaped(name, GOOD[name], GOOD[name][0]))
    def check(tree: Any) -> None:
        nonlocal read
        read += comes_through(json.dumps(tree), name)

    check()
    assert read > 0, "not even the whole document is read: the strategy is too far from the format"


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.text(max_size=60) | st.sampled_from(["- a: [", "{", "[[", "a: !!x 1", "\x00"]),
)
def test_no_text_brings_anything_but_a_data_error(name: str, text: str) -> None:
    for file in ("in.json", "in.yaml", "in.toml"):
        try:
            import_rubrics(text, name, file=file)
        except DataError as error:
            assert str(error).startswith("in.")


def test_depth_is_no_crash() -> None:
    for text in ("[" * 100_000, "{a: " * 5_000, "- " * 5_000):
        for name in FORMATS:
            with pytest.raises(DataError):
                import_rubrics(text, name, file="in.yaml")
