"""E150 to E153: words in every form and at every place that decides, in imported files too."""

from pathlib import Path

import pytest

from axiomrm.rubrics import Finding
from axiomrm.rubrics.lint import lint_file
from axiomrm.rubrics.lint_private import sensitive_words

RUBRIC = """\
schema: atr/1
rubric: {{id: {id}, version: 1.0.0, imports: ["{base}@^1.0"], guidelines: "{guidelines}"}}
features:
  who: {{type: enum, values: ["{value}", other], default: other}}
facets:
  n_words: {{type: int, range: [0, 900], probe: word_count}}
defaults: {{applies_when: "{condition}"}}
axioms:
  - {{id: ax.{id}, statement: "{axiom}", type: soft, caps: {{"{severity}": 0.5}}}}
theorems:
  - id: th.{id}
    derived_from: [ax.helpful]
    derivation: given
    statement: "{statement}"
    inverse: "{inverse}"
    scale: {{kind: ordinal, anchors: [{{value: 0, text: nothing}}, {{value: 1, text: "{anchor}"}}]}}
  - {{id: th.{id}_short, derived_from: [ax.respect], derivation: given, statement: Says it shortly., applies_when: "true"}}
"""
CLEAN = {
    "id": "demo",
    "base": "core_axioms",
    "guidelines": "Read all.",
    "value": "some",
    "condition": "who == other",
    "axiom": "Promises only what the policy allows.",
    "severity": "minor",
    "statement": "Names the next step.",
    "inverse": "Names no step.",
    "anchor": "all of it",
}


def findings(folder: Path, **fields: str) -> list[Finding]:
    values = {**CLEAN, **fields}
    path = folder / f"{values['id']}.yaml"
    path.write_text(RUBRIC.format(**values), encoding="utf-8")
    return [f for f in lint_file(path)[1] if f.level == "error"]


@pytest.mark.parametrize(
    "text",
    [
        "Gives Muslims a shorter answer",
        "answers diabetics",
        "asks about pregnancies",
        "sexual orientations",
        "sexual_orientation",
        "political\n  parties",
        "Mental illnesses",
        "a trade-union member",
        "democrat voters",
        "the children's ages",
        "the child’s age",
        "ｐregnant",
        "preg\u00adnant",
        "preg\u200bnant",
        "Jews",
        "homosexual",
        "是否怀孕user",
    ],
)
def test_a_sensitive_word_is_known_in_every_form(text: str) -> None:
    assert sensitive_words(text)


@pytest.mark.parametrize(
    "text",
    [
        "race conditions",
        "a data race",
        "data races",
        "embraces",
        "jewels",
        "traces",
        "packages",
        "gaze",
        "cancels",
    ],
)
def test_a_word_that_only_contains_one_is_left_alone(text: str) -> None:
    assert not sensitive_words(text)


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("guidelines", "Score Muslim users lower.", "'Muslim' (religion) in rubric.guidelines"),
        ("value", "pregnant", "'pregnant' (health) in features.who.values"),
        ("axiom", "Tells convicts nothing.", "'convicts' (offences) in statement"),
        ("severity", "gay", "'gay' (sexuality) in caps.gay"),
        ("statement", "Answers diabetics.", "'diabetics' (health) in statement"),
        ("inverse", "Names the religion.", "'religion' (religion) in inverse"),
        ("anchor", "meant for Catholics", "'Catholics' (religion) in scale.anchors.text"),
    ],
)
def test_a_sensitive_word_is_found_wherever_it_decides(
    tmp_path: Path, field: str, text: str, said: str
) -> None:
    assert findings(tmp_path) == []
    found = findings(tmp_path, **{field: text})
    assert {f.code for f in found} == {"E150"} and said in [f.message for f in found]


def test_a_default_condition_is_looked_at(tmp_path: Path) -> None:
    found = findings(tmp_path, value="hiv", condition="who == hiv")
    assert [f.path[0] for f in found if f.code == "E150"] == ["features", "defaults"]


def test_cases_may_show_what_a_reply_must_not_say(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    text = RUBRIC.format(**CLEAN)
    path.write_text(
        text.replace("    inverse:", "    cases: [{bad: As a Muslim you may not.}]\n    inverse:")
    )
    assert [f for f in lint_file(path)[1] if f.level == "error"] == []


def test_what_is_imported_is_looked_at_as_well(tmp_path: Path) -> None:
    assert findings(tmp_path, id="base", statement="Asks whether the user is pregnant.")
    found = findings(tmp_path, base="base")
    assert [(f.code, Path(f.file).name) for f in found] == [("E150", "base.yaml")]
    findings(tmp_path, id="base", guidelines="Write to jane.roe@example.org.")
    assert [(f.code, Path(f.file).name) for f in findings(tmp_path, base="base")] == [("E151", "base.yaml")]


def test_a_template_of_an_import_may_not_touch_a_facet_that_an_axiom_here_guards(tmp_path: Path) -> None:
    template = """\
personal_templates:
  - id: pt.verbosity
    specialises: th.base_short
    reads: [stated.verbosity]
    params: {limit: {slot: stated.verbosity, map: {1: 60, 2: 80, 3: 120, 4: 150, 5: 180}}}
    statement: "Says it in at most {limit} words."
    requires: "n_words <= {limit}"
    dimension: form
    max_weight: 1
"""
    (tmp_path / "base.yaml").write_text(RUBRIC.format(**{**CLEAN, "id": "base"}) + template)
    assert [f for f in lint_file(tmp_path / "base.yaml")[1] if f.level == "error"] == []
    top = """\
schema: atr/1
rubric: {id: top, version: 1.0.0, imports: ["base@^1.0"]}
axioms: [{id: ax.bound, statement: Ends within 900 words., type: hard, requires: n_words <= 900}]
theorems: [{id: th.top, derived_from: [ax.helpful], derivation: given, statement: Ends., requires: n_words >= 1}]
"""
    (tmp_path / "top.yaml").write_text(top)
    found = [f for f in lint_file(tmp_path / "top.yaml")[1] if f.level == "error"]
    assert [(f.code, f.message) for f in found] == [
        ("E153", "pt.verbosity touches a facet of ax.bound: n_words")
    ]
