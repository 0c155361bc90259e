"""Each format read by hand-written samples, with every loss compared to a golden report."""

import json
from pathlib import Path

import pytest

from axiomrm.data.verdict import Scored
from axiomrm.errors import ConfigError, DataError
from axiomrm.rubrics import Rubric, aggregate
from axiomrm.rubrics.convert import FORMATS, LossReport, export_rubric, import_rubrics
from axiomrm.rubrics.convert.build import text_id
from axiomrm.rubrics.model import RubricFile

GOLDEN = Path(__file__).parent / "golden"

SAMPLES = {
    "autorubric": """
guidelines: Judge the last reply only.
sections:
  - name: Content
    criteria:
      - {requirement: Names the capital., weight: 4, name: capital}
      - {requirement: Invents a source., weight: -2, name: "No Sources!"}
  - name: Form
    criteria:
      - requirement: How short is it?
        options:
          - {label: long, value: 0.2}
          - {label: short, value: 0.6}
          - {label: not there, value: 0, na: true}
          - {label: one line, value: 1}
        scale_type: nominal
        aggregation: mode
      - {requirement: Moves nothing., weight: 0}
""",
    "healthbench": json.dumps(
        {
            "prompt": [{"role": "user", "content": "I have a headache."}],
            "prompt_id": "5A-1",
            "example_tags": ["theme:hedging"],
            "rubrics": [
                {"criterion": "Asks how long.", "points": 7, "tags": ["level:example", "axis:completeness"]},
                {"criterion": "Names a dose without asking.", "points": -3, "tags": [], "note": "strict"},
                {"criterion": "Empty.", "points": 0, "tags": []},
            ],
        }
    ),
    "promptfoo": """
description: Greeting
prompts: [file://p.txt]
defaultTest:
  assert:
    - {type: llm-rubric, value: Is polite., weight: 2}
tests:
  - description: first
    vars: {name: Ada}
    assert:
      - {type: llm-rubric, value: "Greets {{name}}.", metric: greets, threshold: 0.8, provider: "openai:x"}
      - {type: not-llm-rubric, value: Sells something.}
      - {type: contains, value: Ada}
      - type: assert-set
        weight: 3
        threshold: 0.5
        assert:
          - {type: llm-rubric, value: One., weight: 1}
          - {type: llm-rubric, value: Two., weight: 2}
""",
    "verifiers": """
title = "Repo judge"
[[criteria]]
name = "tests"
text = "Adds a test for the bug."
weight = 2.0
[[criteria]]
name = "Depth"
text = "Explains the cause."
choices = ["not at all", "partly", "fully"]
[[criteria]]
name = "off"
text = "Is switched off."
weight = 0
""",
    "auraone": json.dumps(
        {
            "version": "auraone-rubric-v1",
            "rubric_id": "tutorial",
            "label": "Synthetic tutorial",
            "tie_break_rule": "prefer_lower_risk",
            "judge_prompt_contract": {
                "instruction": "Return JSON.",
                "output_format": "score",
                "required_fields": ["score"],
            },
            "provenance": {
                "source": "tutorial",
                "created_by": "me",
                "created_at": "2026-05-11",
                "synthetic": True,
            },
            "criteria": [
                {
                    "criterion_id": "correct",
                    "label": "Correctness",
                    "description": "Is supported by the prompt.",
                    "scale_type": "binary",
                    "weight": 0.5,
                    "anchors": [{"value": 0, "label": "wrong"}, {"value": 1, "label": "right"}],
                    "examples": [{"score": 1}],
                },
                {
                    "criterion_id": "Complete-1",
                    "label": "Covers the steps.",
                    "scale_type": "likert",
                    "weight": 0.5,
                    "tie_break_rule": "none",
                    "anchors": [
                        {"value": 1, "label": "missing"},
                        {"value": 2, "label": "partial", "description": "some steps"},
                        {"value": 5, "label": "complete"},
                    ],
                },
            ],
        }
    ),
    "prometheus": json.dumps(
        {
            "id": "travel_1",
            "input": "Plan a trip.",
            "score_rubric": {
                "criteria": "Is the plan feasible?",
                **{f"score{k}_description": f"level {k}" for k in range(1, 6)},
                "reviewer": "me",
            },
        }
    ),
    "rubrichub": json.dumps(
        {
            "prompt": "Say it.",
            "reward_model": {
                "rubrics": [
                    {"criterion": "Says it.", "points": 8, "tags": {"verifier": "llm"}},
                    {"criterion": "Says too much.", "points": -2},
                ]
            },
        }
    ),
    "rar": json.dumps(
        {
            "question": "Why is the sky blue?",
            "rubric": [
                {"title": "Scattering", "description": "Essential Criteria: Names scattering.", "weight": 5},
                {"title": "Short", "description": "Optional Criteria: Is short."},
                {"title": "Dust", "description": "Pitfall Criteria: Blames dust.", "weight": -1},
                {
                    "title": "Sea",
                    "description": "Pitfall Criteria: Does not mention the sea.",
                    "weight": "Pitfall",
                },
            ],
        }
    ),
    "geval": json.dumps(
        {
            "name": "Correctness",
            "criteria": "Is the output right?",
            "evaluation_steps": ["Read both.", "Compare  the facts."],
            "evaluation_params": ["input", "actual_output"],
            "threshold": 0.5,
            "rubric": [
                {"score_range": [3, 6], "expected_outcome": "partly"},
                {"score_range": [0, 2], "expected_outcome": "wrong"},
                {"score_range": [7, 10], "expected_outcome": "right"},
            ],
        }
    ),
}

LOSSY = """
schema: atr/1
rubric: {id: lossy, version: 1.2.0, title: Lossy, license: MIT}
features: {kind: {type: enum, values: [a, b]}}
axioms:
  - {id: ax.safe, statement: Nothing dangerous., type: hard}
  - {id: ax.calm, statement: Stays calm., type: soft, cap: 0.25}
  - {id: ax.goal, statement: Serves a purpose., type: premise}
theorems:
  - id: th.graded
    derived_from: [ax.goal]
    derivation: a step
    statement: Is it there?
    scale:
      kind: ordinal
      anchors:
        - {value: 0, text: none}
        - {value: 0.1, text: little}
        - {value: 0.5, text: half}
        - {value: 0.7, text: most}
        - {value: 1, text: all}
    weight: 3
    applies_when: kind == a
    tags: [t]
  - id: th.bad
    derived_from: [ax.goal]
    derivation: another step
    statement: Shouts.
    inverse: Does not shout.
    polarity: penalty
    evidence: {level: turn, reduce: any}
    on_cannot_assess: skip
    cases: [{good: "Hello.", bad: "HELLO."}]
  - {id: th.later, derived_from: [ax.goal], derivation: later, statement: Later., status: draft}
"""


def theorems(model: RubricFile) -> dict[str, tuple[str, float, str]]:
    return {t.id: (t.statement, t.weight, t.polarity) for t in model.theorems}


def name_of(source: str) -> str:
    return "sample.toml" if source == "verifiers" else "sample.yaml"


def one(source: str) -> tuple[RubricFile, LossReport]:
    result = import_rubrics(SAMPLES[source], source, name="sample", file=name_of(source))
    assert len(result.rubrics) == 1
    model = result.rubrics[0].model
    assert {t.status for t in model.theorems} == {"draft"}
    assert [a.id for a in model.axioms] == ["ax.imported"]
    Rubric.from_model(model)
    return model, result.report


def test_every_format_has_a_sample() -> None:
    assert set(SAMPLES) == set(FORMATS)


@pytest.mark.parametrize("source", SAMPLES)
def test_the_losses_of_an_import_are_the_golden_ones(source: str) -> None:
    _, report = one(source)
    assert report.as_json() == (GOLDEN / f"import_{source}.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", sorted(set(FORMATS) - {"prometheus"}))
def test_the_losses_of_an_export_are_the_golden_ones(target: str) -> None:
    _, report = export_rubric(Rubric.loads(LOSSY, "lossy.yaml"), target)
    assert report.as_json() == (GOLDEN / f"export_{target}.json").read_text(encoding="utf-8")


def test_autorubric_signs_options_and_sections() -> None:
    model, _ = one("autorubric")
    scale = text_id("How short is it?")
    invented = text_id("Invents a source.")
    assert theorems(model) == {
        "capital": ("Names the capital.", 4, "reward"),
        invented: ("Invents a source.", 2, "penalty"),
        scale: ("How short is it?", 10, "reward"),
    }
    # 0.2, 0.6, 1 stretched to 0 … 1: (0.6 − 0.2) / 0.8 = 0.5; the na option is our CannotAssess
    anchors = next(t for t in model.theorems if t.id == scale).scale.anchors
    assert [(a.value, a.text) for a in anchors] == [(0, "long"), (0.5, "short"), (1, "one line")]
    assert model.rubric.guidelines == "Judge the last reply only."


def test_ids_are_c_and_eight_hex_digits_of_the_text() -> None:
    model, _ = one("healthbench")
    assert model.theorems[0].id == "c_155268b5"  # printf 'Asks how long.' | sha256sum


def test_healthbench_gives_one_rubric_a_prompt_keyed_by_its_id() -> None:
    result = import_rubrics(SAMPLES["healthbench"], "healthbench")
    (imported,) = result.rubrics
    assert imported.task_id == "5A-1"
    assert imported.model.rubric.id == "r_5a_1"
    assert [(t.weight, t.polarity, t.tags) for t in imported.model.theorems] == [
        (7, "reward", ("level:example", "axis:completeness")),
        (3, "penalty", ()),
    ]
    assert imported.context["prompt"] == [{"role": "user", "content": "I have a headache."}]


def test_healthbench_gates_become_negative_points() -> None:
    text, _ = export_rubric(Rubric.loads(LOSSY, "lossy.yaml"), "healthbench")
    points = {r["criterion"]: r["points"] for r in json.loads(text)["rubrics"]}
    # rewards give 3 in all; the hard gate takes 3, the soft one (1 − 0.25) · 3 = 2.25
    assert points == {
        "Is it there?": 3,
        "Shouts.": -1,
        "Breaks this rule: Nothing dangerous.": -3,
        "Breaks this rule: Stays calm.": -2.25,
    }


def test_promptfoo_sets_are_flattened_in_proportion() -> None:
    model, _ = one("promptfoo")
    found = {t.statement: (t.weight, t.polarity) for t in model.theorems}
    assert found == {
        "Is polite.": (2, "reward"),
        "Greets {{name}}.": (1, "reward"),
        "Sells something.": (1, "penalty"),
        "One.": (1, "reward"),  # 3 · 1/3
        "Two.": (2, "reward"),  # 3 · 2/3
    }
    assert model.policy.scale == "signed"
    greets = next(t for t in model.theorems if t.id == "greets")
    assert {(s.kind, s.ref) for s in greets.sources} == {
        ("promptfoo.threshold", "0.8"),
        ("promptfoo.provider", "'openai:x'"),
    }


def test_verifiers_choices_are_evenly_spaced() -> None:
    model, _ = one("verifiers")
    depth = next(t for t in model.theorems if t.statement == "Explains the cause.")
    assert [(a.value, a.text) for a in depth.scale.anchors] == [
        (0, "not at all"),
        (0.5, "partly"),
        (1, "fully"),
    ]
    assert depth.tags == ("name:Depth",)
    assert next(t for t in model.theorems if t.id == "tests").scale.kind == "binary"


def test_verifiers_writes_a_penalty_by_its_inverse_and_refuses_it_without() -> None:
    rubric = Rubric.loads(LOSSY, "lossy.yaml")
    text, report = export_rubric(rubric, "verifiers")
    assert json.loads(text)["criteria"][1] == {
        "name": "th.bad",
        "text": "Does not shout.",
        "weight": 1,
        "choices": ["no", "yes"],
    }
    assert ("theorems/th.bad", "polarity", "approximated") in {
        (x.path, x.field, x.kind) for x in report.losses
    }
    bare = Rubric.loads(LOSSY.replace("    inverse: Does not shout.\n", ""), "lossy.yaml")
    with pytest.raises(DataError, match=r"th\.bad: verifiers has no penalties"):
        export_rubric(bare, "verifiers")


def test_auraone_anchors_are_brought_to_zero_to_one() -> None:
    model, _ = one("auraone")
    assert [t.id for t in model.theorems] == ["correct", "complete_1"]
    assert [(a.value, a.text) for a in model.theorems[1].scale.anchors] == [
        (0, "missing"),
        (0.25, "partial: some steps"),
        (1, "complete"),
    ]
    assert model.rubric.guidelines == "Return JSON."
    assert model.changelog[0].date == "2026-05-11"


def test_prometheus_scores_are_quarters_and_need_five_anchors() -> None:
    model, _ = one("prometheus")
    assert model.rubric.id == "travel_1"
    assert [a.value for a in model.theorems[0].scale.anchors] == [0, 0.25, 0.5, 0.75, 1]
    rubric = Rubric.loads(LOSSY, "lossy.yaml")
    with pytest.raises(DataError, match="one criterion a file; choose one with --criterion"):
        export_rubric(rubric, "prometheus")
    with pytest.raises(DataError, match="needs five anchors, found 0"):
        export_rubric(rubric, "prometheus", criterion="th.bad")
    text, report = export_rubric(rubric, "prometheus", criterion="th.graded")
    assert json.loads(text)["score2_description"] == "little"
    scale = [x for x in report.losses if x.field == "scale"]
    assert [x.kind for x in scale] == ["approximated"]  # 0.1 and 0.7 read back as 0.25 and 0.75
    assert not [x for x in report.losses if x.path == "theorems/th.bad"]  # not chosen is not lost
    with pytest.raises(ConfigError, match=r"no active theorem 'th\.nope'"):
        export_rubric(rubric, "prometheus", criterion="th.nope")


def test_tiers_and_pitfalls_of_rar() -> None:
    model, report = one("rar")
    found = {t.statement: (t.weight, t.polarity, t.inverse) for t in model.theorems}
    assert found == {
        "Names scattering.": (5, "reward", ""),
        "Is short.": (1, "reward", ""),
        "Blames dust.": (1, "penalty", ""),
        "Does not mention the sea.": (2, "penalty", ""),
    }
    assert [x.kind for x in report.losses] == ["inferred", "inferred", "inferred"]
    assert model.theorems[0].tags == ("tier:essential", "title:Scattering")


@pytest.mark.parametrize(("weight", "polarity"), [(-1, "penalty"), (2, "reward")])
@pytest.mark.parametrize(
    "statement",
    [
        "Does not mention that frictional losses are assumed negligible.",
        "The response avoids jargon.",
        "Never mentions the dose.",
    ],
)
def test_a_negated_pitfall_of_rar_keeps_its_words_and_sign(
    statement: str, weight: int, polarity: str
) -> None:
    pitfall = {"title": "P", "description": f"Pitfall Criteria: {statement}", "weight": weight}
    energy = {"title": "E", "description": "Essential Criteria: States the law.", "weight": 5}
    read = import_rubrics(json.dumps([pitfall, energy]), "rar", name="r", activate=True)
    pit = read.rubrics[0].model.theorems[0]
    assert (pit.statement, pit.weight, pit.polarity, pit.inverse) == (statement, abs(weight), polarity, "")
    assert [(x.field, x.kind) for x in read.report.losses] == [("description", "inferred")]
    assert "polarity ambiguous, not decided" in read.report.losses[0].detail
    # RaR's own formula: the sum of the weights of what is met, over that of the positive ones
    active = Rubric.from_model(read.rubrics[0].model).bind({})
    for met in (0.0, 1.0):
        verdicts = {i.id: Scored(value=met if i.id == pit.id else 1.0) for i in active.items}
        own = (5 + met * weight) / (5 + max(weight, 0))
        assert aggregate(active, verdicts).reward == pytest.approx(own)
    row = json.loads(export_rubric(active.rubric, "rar")[0])["rubric"][0]
    assert (row["description"], row["weight"]) == (pitfall["description"], weight)


def test_rar_is_written_with_tiers_and_read_back() -> None:
    model = import_rubrics(SAMPLES["rar"], "rar", name="sample", activate=True).rubrics[0].model
    text, report = export_rubric(Rubric.from_model(model), "rar")
    assert report.empty, report.text()
    assert [tuple(c.values()) for c in json.loads(text)["rubric"]] == [
        ("Scattering", "Essential Criteria: Names scattering.", 5),
        ("Short", "Optional Criteria: Is short.", 1),
        ("Dust", "Pitfall Criteria: Blames dust.", -1),
        ("Sea", "Pitfall Criteria: Does not mention the sea.", -2),
    ]
    lossy, _ = export_rubric(Rubric.loads(LOSSY, "lossy.yaml"), "rar")
    assert [c["description"] for c in json.loads(lossy)["rubric"]] == [
        "Essential Criteria: Is it there?",
        "Pitfall Criteria: Shouts.",
    ]


def test_geval_ranges_become_their_middles_and_the_ends_zero_and_one() -> None:
    model, report = one("geval")
    anchors = model.theorems[0].scale.anchors
    # middles 1, 4.5 and 8.5 of 10; the outer ones are the ends of our scale
    assert [(a.value, a.text) for a in anchors] == [(0, "wrong"), (0.45, "partly"), (1, "right")]
    assert model.rubric.guidelines == "1. Read both.\n2. Compare the facts."
    assert "rubric" in {x.field for x in report.losses}


def test_equal_texts_get_different_ids() -> None:
    text = json.dumps([{"requirement": "Same."}, {"requirement": "Same.", "weight": 2}])
    model = import_rubrics(text, "autorubric").rubrics[0].model
    assert len({t.id for t in model.theorems}) == 2
    Rubric.from_model(model)


BAD = [
    (
        "rubrichub",
        '{"rubrics": [{"criterion": "\\ud83d", "points": 1}]}',
        "surrogates not allowed|invalid Unicode",
    ),
    ("autorubric", "[]", "no criterion"),
    ("autorubric", "{}", "one of rubric, sections, criteria"),
    ("autorubric", "[{requirement: 3}]", "0/requirement: 3 is not a text"),
    ("autorubric", "[{requirement: x, weight: yes}]", "0/weight: True is not a finite number"),
    ("autorubric", "[{requirement: x, weight: .nan}]", "0/weight: nan is not a finite number"),
    ("autorubric", "[{requirement: x, options: [{label: a, value: 3}]}]", "options/0/value: 3 is not in"),
    ("autorubric", "a: &x [1]\nb: *x", "aliases are not read"),
    ("autorubric", "[1", "is not closed"),
    ("autorubric", "guidelines: a\nrubric: {guidelines: b, criteria: []}", "give them once"),
    (
        "healthbench",
        '{"prompt_id": "a"}\n{"prompt_id": 3}',
        "line 1: a list is needed|rubrics: a list is needed",
    ),
    ("healthbench", '{"prompt_id": "a", "rubrics": []}', "no criterion with points"),
    (
        "healthbench",
        '{"prompt_id": "a", "rubrics": [{"criterion": "x", "points": NaN}]}',
        "'NaN' is not a finite number",
    ),
    ("promptfoo", "tests: [{assert: [{type: contains, value: x}]}]", "no assertion of type llm-rubric"),
    ("promptfoo", "tests: [{assert: [{type: llm-rubric, value: x, weight: -1}]}]", "a number >= 0"),
    (
        "verifiers",
        '{"criteria": [{"name": "a", "text": "b", "choices": ["x", "x"]}]}',
        "two or more different",
    ),
    ("verifiers", '{"criteria": [{"name": "a", "text": "b", "weight": -1}]}', "a number >= 0"),
    ("auraone", '{"version": "v2", "rubric_id": "a"}', "auraone-rubric-v1"),
    ("prometheus", '{"criteria": "x"}', "score1_description is missing"),
    ("rubrichub", '{"a": 1}', "no list of criteria"),
    ("rar", '[{"description": "no tier"}]', "weight is missing"),
    ("geval", '{"name": "x"}', "criteria is missing"),
    (
        "geval",
        '{"criteria": "x", "rubric": [{"score_range": [1, 11], "expected_outcome": "y"}]}',
        "two whole numbers from 0 to 10",
    ),
]


DOUBTFUL = [
    ("in.json", '[\n {"weight": 4,\n  "weight": -1,\n  "requirement": "x"}]', "3", "key 'weight' stands twice"),
    ("in.json", '[{"requirement": "x", "a": {"\\u0062": 1, "b": 2}}]', "1", "key 'b' stands twice"),
    ("in.jsonl", '{"a": 1}\n\n{"a": "}{", "b": {}, "a": 2}', "3", "key 'a' stands twice"),
    ("in.yaml", '[{"weight": 4, "weight": -1, "requirement": "x"}]', "1", "key 'weight' stands twice"),
    ("in.yaml", "- requirement: x\n  weight: 4\n  weight: -1\n", "3", "key 'weight' stands twice, first at line 2"),
    ("in.yaml", "- requirement: x\n  weight: 010\n", "2", "'010' is a number in base 8"),
    ("in.yaml", "- requirement: x\n  weight: 1:30\n", "2", "'1:30' is a number in base 60"),
    ("in.yaml", "- {requirement: x, weight: -1:30.5}\n", "1", "'-1:30.5' is a number in base 60"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "text", "line", "message"), DOUBTFUL)
@pytest.mark.parametrize("source", ["rubrichub", "rar", "prometheus"])
def test_what_can_be_read_in_two_ways_is_refused_with_its_line(
    source: str, file: str, text: str, line: str, message: str
) -> None:
    with pytest.raises(DataError) as caught:
        import_rubrics(text, source, file=file)
    assert str(caught.value).startswith(f"{file}:{line}:") and message in str(caught.value)


def test_a_key_twice_in_a_list_written_as_text_is_refused() -> None:
    inner = '[{"criterion": "x", "points": 1, "points": 2}]'
    with pytest.raises(DataError, match=r"in.jsonl: line 2/rubrics: .*'points' stands twice"):
        import_rubrics(
            '{"rubrics": [{"criterion": "y", "points": 1}]}\n' + json.dumps({"rubrics": inner}),
            "rubrichub",
            file="in.jsonl",
        )


def test_what_yaml_and_people_read_alike_is_read() -> None:
    text = '- {requirement: "010", weight: 0.5, name: a}\n- {requirement: "1:30", weight: 10, name: b}\n'
    model = import_rubrics(text, "autorubric", file="in.yaml").rubrics[0].model
    assert [(t.statement, t.weight) for t in model.theorems] == [("010", 0.5), ("1:30", 10)]


@pytest.mark.parametrize(("source", "text", "message"), BAD)
def test_what_is_not_the_format_is_said_with_its_place(source: str, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        import_rubrics(text, source, file="in.yaml")
    assert str(caught.value).startswith("in.yaml")


def test_an_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'csv'; accepted: atr, autorubric, healthbench"):
        import_rubrics("", "csv")


def test_a_rubric_of_drafts_is_not_exported() -> None:
    model, _ = one("geval")
    with pytest.raises(DataError, match="no active theorem to write"):
        export_rubric(Rubric.from_model(model), "autorubric")
