"""Every lint code at least twice, planted by mutating rubrics that are clean; code and line are asserted."""

import dataclasses
import functools
from collections import Counter
from pathlib import Path

import pytest

from axiomrm.rubrics import Finding, Rubric
from axiomrm.rubrics.diff import e180_bump
from axiomrm.rubrics.imports import library_names
from axiomrm.rubrics.lint import CODES, Hit, lint_file

BASE = """\
schema: atr/1
rubric:
  id: demo
  version: 1.0.0
  title: Demo
  languages: [en]
  imports: ["core_axioms@^1.0"]
features:
  domain: {type: enum, values: [orders, billing, other]}
  vip: {type: bool, default: false}
turn_features:
  missing: {type: int, range: [0, 8], probe: turn_index}
facets:
  n_words: {type: int, range: [0, 2000], probe: word_count}
  n_items: {type: int, range: [0, 40], probe: list_items}
  n_quest: {type: int, range: [0, 20], probe: question_count}
axioms:
  - id: ax.order
    statement: Account data stays closed until the identity is verified.
    type: hard
    applies_when: vip
    detector: {kind: programmatic, fn: tool_order, args: {first: verify, then: [refund]}}
  - id: ax.promise
    statement: Promises only what the policy allows.
    type: soft
    caps: {minor: 0.7, major: 0.3}
    detector: {kind: llm, votes: 3}
  - id: ax.links
    statement: Every link leads to our own pages.
    type: hard
    requires: n_items <= 30
  - id: ax.local
    statement: Nobody should wait for nothing.
    type: premise
theorems:
  - id: th.ends
    derived_from: [ax.helpful, ax.local]
    derivation: help means an end
    statement: The request reaches an end.
    scale: {kind: ordinal, anchors: [{value: 0, text: none}, {value: 0.5, text: half}, {value: 1, text: all}]}
    weight: 2
  - id: th.asks
    derived_from: [ax.helpful]
    derivation: a guess costs a correction
    statement: Asks for missing facts.
    applies_when: missing >= 1
    requires: n_quest >= 1
    evidence: {level: turn, reduce: mean}
  - id: th.short
    derived_from: [ax.respect]
    derivation: time is respected
    statement: Says it in at most 180 words.
    requires: n_words <= 180
    judge: {kind: constraint}
  - id: th.steps
    derived_from: [th.ends]
    derivation: steps are followed
    statement: Gives numbered steps.
    applies_when: domain == billing
    requires: n_items >= 2 and n_words >= 40
  - id: th.again
    derived_from: [ax.respect]
    derivation: asking again wastes time
    statement: Asks for a fact that the user has given.
    polarity: penalty
    weight: 2
    judge: {kind: programmatic, fn: steps, args: {free: 3, max: 9}}
personal_templates:
  - id: pt.verbosity
    specialises: th.short
    reads: [stated.verbosity]
    params: {limit: {slot: stated.verbosity, map: {1: 60, 2: 80, 3: 120, 4: 150, 5: 180}}}
    statement: "Says it in at most {limit} words."
    requires: "n_words <= {limit}"
    dimension: form
    max_weight: 2
policy: {scale: net, min_coverage: 0.6, personal_budget: 0.4}
"""
EXTRA = """\
  - id: th.extra{0}
    derived_from: [ax.helpful]
    derivation: given
    statement: {1}.
"""
NEAR = (
    EXTRA.format(0, "Asks again for a fact that the user has given"),
    EXTRA.format(1, "Names today the full order number"),
    EXTRA.format(2, "Names the full order number of today"),
)

Mutation = tuple[str, str, str, str]
"""Code, text to replace, replacement, text of the line that must be named (of the mutated file)."""

MUTATIONS: list[Mutation] = [
    ("E100", "    weight: 2\n  - id: th.asks", "    wieght: 2\n  - id: th.asks", "wieght: 2"),
    ("E100", "version: 1.0.0", "version: 1.0", "version: 1.0"),
    ("E100", "min_coverage: 0.6", "min_coverage: 1.6", "min_coverage: 1.6"),
    ("E101", "derived_from: [th.ends]", "derived_from: [th.end]", "derived_from: [th.end]"),
    ("E101", "fn: tool_order", "fn: tool_ordre", "fn: tool_ordre"),
    ("E101", "probe: list_items", "probe: list_itms", "probe: list_itms"),
    ("E101", "domain == billing", "domian == billing", "domian == billing"),
    ("E101", "specialises: th.short", "specialises: th.shirt", "specialises: th.shirt"),
    ("E101", "probe: turn_index", "probe: word_count", "missing: {type"),
    ("E102", "- id: th.steps", "- id: th.short", "- id: th.short\n    derived_from: [th.ends]"),
    ("E102", "- id: ax.local", "- id: ax.truth", "- id: ax.truth"),
    ("E102", "- id: th.again", "- id: Th.Again", "- id: Th.Again"),
    ("E102", "  vip: {type: bool, default: false}", "  n_items: {type: bool, default: false}", "  n_items: {type: int"),
    ("E103", "derived_from: [ax.helpful, ax.local]", "derived_from: [ax.local, th.steps]", "derived_from: [ax.local, th.steps]"),
    ("E103", "    weight: 2\n    judge", "    weight: 2\n    beats: [th.again]\n    judge", "beats: [th.again]"),
    ("E104", "derived_from: [ax.helpful]\n    derivation: a guess", "derived_from: [th.asks]\n    derivation: a guess", "derived_from: [th.asks]"),
    ("E104", "derived_from: [ax.respect]\n    derivation: asking", "derived_from: []\n    derivation: asking", "derived_from: []"),
    ("W105", "[ax.helpful, ax.local]", "[ax.helpful]", "- id: ax.local"),
    ("W105", "theorems:\n", "  - {id: ax.idle, statement: Something., type: premise}\ntheorems:\n", "id: ax.idle"),
    ("E106", "domain == billing", "domain == biling", "domain == biling"),
    ("E106", "applies_when: vip", "applies_when: vip and", "applies_when: vip and"),
    ("E106", "n_quest >= 1", "n_quest >= 99", "n_quest >= 99"),
    ("E106", "requires: n_words <= 180", "requires: n_words + 1 <= 180", "n_words + 1"),
    ("E106", "applies_when: domain == billing", "applies_when: domain < billing", "domain < billing"),
    ("E107", "core_axioms@^1.0", "core_axioms@^2.0", 'imports: ["core_axioms@^2.0"]'),
    ("E107", "core_axioms@^1.0", "core_axiom@^1.0", 'imports: ["core_axiom@^1.0"]'),
    ("E107", "core_axioms@^1.0", "core_axioms", 'imports: ["core_axioms"]'),
    ("E110", "domain == billing", "domain == billing and domain == orders", "domain == billing and domain == orders"),
    ("E110", "applies_when: missing >= 1", "applies_when: missing >= 3 and missing < 2", "missing >= 3 and missing < 2"),
    ("E120", "n_items >= 2 and", "n_items >= 31 and", "n_items >= 31 and"),
    ("E120", "requires: n_items <= 30", "requires: n_items == 0", "n_items >= 2 and n_words"),
    ("E121", "n_words >= 40", "n_words >= 200", "n_words >= 200"),
    ("E121", "map: {1: 60,", "map: {1: 30,", 'requires: "n_words <= {limit}"'),
    ("E121", "n_items >= 2 and", "n_items >= 2 and n_items < 2 and", "n_items < 2 and"),
    ("W123", "requires: n_items >= 2 and n_words >= 40", "requires: n_items >= 2 and n_words <= 90", "n_words <= 180"),
    ("W123", "statement: The request reaches an end.", "statement: The request reaches an end.\n    requires: n_words <= 100", "requires: n_words <= 180"),
    ("W124", "personal_templates:", NEAR[0] + "personal_templates:", "Asks again for a fact that the user has given"),
    ("W124", "personal_templates:", NEAR[1] + NEAR[2] + "personal_templates:", "Names the full order number of today"),
    ("E130", "    weight: 2\n  - id: th.asks", "    weight: 0\n  - id: th.asks", "weight: 0"),
    ("E130", "    weight: 2\n  - id: th.asks", "    weight: -1\n  - id: th.asks", "weight: -1"),
    ("E130", "    max_weight: 2", "    max_weight: .inf", "max_weight: .inf"),
    ("W131", "    weight: 2\n  - id: th.asks", "    weight: 20\n  - id: th.asks", "weight: 20"),
    ("W131", "    weight: 2\n    judge", "    weight: 9\n    judge", "weight: 9"),
    ("E132", "personal_budget: 0.4", "personal_budget: 0.6", "personal_budget: 0.6"),
    ("E132", "    max_weight: 2\n", "", "- id: pt.verbosity"),
    ("E140", "caps: {minor: 0.7, major: 0.3}", "caps: {minor: 0.3, major: 0.7}", "caps: {minor: 0.3"),
    ("E140", "    caps: {minor: 0.7, major: 0.3}\n", "", "type: soft"),
    ("E140", "votes: 3", "votes: 2", "votes: 2"),
    ("E140", "    type: hard\n    requires", "    type: hard\n    cap: 0.5\n    requires", "cap: 0.5"),
    ("E141", "{value: 0.5, text: half}", "{value: 0, text: half}", "value: 0, text: half"),
    ("E141", "{kind: ordinal, anchors: [{value: 0, text: none}, {value: 0.5, text: half}, {value: 1, text: all}]}", "{kind: ordinal}", "scale: {kind: ordinal}"),
    ("E141", "{value: 1, text: all}", "{value: 0.9, text: all}", "value: 0.9"),
    ("E142", "{level: turn, reduce: mean}", "{level: turn}", "evidence: {level: turn}"),
    ("E142", "    weight: 2\n  - id: th.asks", "    evidence: {level: turn, reduce: any}\n    weight: 2\n  - id: th.asks", "reduce: any"),
    ("E143", "args: {first: verify, then: [refund]}", "args: {first: verify, before: [refund]}", "before: [refund]"),
    ("E143", "args: {free: 3, max: 9}", "args: {free: 9, max: 3}", "free: 9, max: 3"),
    ("E143", "probe: word_count}", "probe: null}", "judge: {kind: constraint}"),
    ("E150", "statement: Gives numbered steps.", "statement: Gives numbered steps to a pregnant user.", "pregnant user"),
    ("E150", "  vip: {type: bool, default: false}", "  religion: {type: bool, default: false}", "religion: {type"),
    ("E151", "title: Demo", "title: write to jane.roe@example.org", "jane.roe@example.org"),
    ("E151", "statement: Gives numbered steps.", "statement: Gives numbered steps and calls +49 151 2345 6789.", "+49 151"),
    ("E152", "reads: [stated.verbosity]\n    params: {limit: {slot: stated.verbosity,", "reads: [stated.salary]\n    params: {limit: {slot: stated.salary,", "reads: [stated.salary]"),
    ("E152", "map: {1: 60, ", "map: {", "params: {limit"),
    ("E153", "dimension: form", "dimension: value", "dimension: value"),
    ("E153", "requires: n_items <= 30", "requires: n_items <= 30 and n_words <= 900", 'requires: "n_words <= {limit}"'),
    ("W160", "statement: Gives numbered steps.", "statement: Gives appropriate steps.", "Gives appropriate steps"),
    ("W160", "statement: Asks for missing facts.", "statement: Asks good questions.", "Asks good questions"),
    ("W161", "statement: Gives numbered steps.", "statement: The steps are polite and complete.", "polite and complete"),
    ("W161", "statement: Asks for missing facts.", "statement: Tries to ask for missing facts.", "Tries to ask"),
    ("W161", "statement: Asks for missing facts.", "statement: Is helpful about missing facts.", "Is helpful about"),
    ("E162", "applies_when: domain == billing", "applies_when: n_words >= 10", "applies_when: n_words >= 10"),
    ("E162", "applies_when: vip", "applies_when: missing >= 1", "applies_when: missing >= 1\n    detector"),
    ("E162", "requires: n_quest >= 1", "requires: vip", "requires: vip"),
    ("W163", "statement: The request reaches an end.", "statement: The request gets a comprehensive answer.", "comprehensive answer"),
    ("W163", "statement: Gives numbered steps.\n    applies_when: domain == billing\n    requires: n_items >= 2 and n_words >= 40", "statement: Gives as many steps as the user wants.\n    applies_when: domain == billing", "Gives as many steps"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def _findings(folder: Path, text: str, name: str = "demo") -> tuple[Finding, ...]:
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return lint_file(path)[1]


def _line(text: str, part: str) -> int:
    assert text.count(part) >= 1, f"{part!r} is not in the mutated text"
    return text[: text.index(part)].count("\n") + 1


def test_the_unmutated_rubric_has_no_finding(folder: Path) -> None:
    assert _findings(folder, BASE) == ()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[f"{m[0]}-{i}" for i, m in enumerate(MUTATIONS)])
def test_a_planted_defect_is_found_at_its_line(folder: Path, mutation: Mutation) -> None:
    code, old, new, part = mutation
    assert BASE.count(old) >= 1
    text = BASE.replace(old, new, 1)
    found = _findings(folder, text)
    lines = [f.line for f in found if f.code == code]
    assert _line(text, part) in lines, "\n".join(f.text(text) for f in found)
    assert all(f.level == ("error" if f.code[0] == "E" else "warn") for f in found)
    at = [f for f in found if f.code == code and f.line == _line(text, part)]
    row = text.splitlines()[at[0].line - 1]
    assert all((row + "$")[f.col - 1] != " " for f in at), "the column is at a word or at the end"


UNIFORM = """\
schema: atr/1
rubric: {id: demo, version: 1.0.0}
features:
  domain: {type: enum, values: [orders, billing, other]}
facets:
  x: {type: enum, values: [a, b, c]}
  y: {type: int, range: [0, 9]}
axioms:
  - {id: ax.base, statement: Serves., type: premise}
  - {id: ax.gate, statement: Complies., type: hard}
theorems:
"""
ROW = "  - {{id: th.t{0}, derived_from: [ax.base], derivation: given, statement: Text number {0}.{1}}}\n"


def _rows(*fields: str) -> str:
    return UNIFORM + "".join(ROW.format(i, f", {f}" if f else "") for i, f in enumerate(fields))


SCENARIOS: list[tuple[str, str, str]] = [
    ("W111", _rows("applies_when: domain == orders", "applies_when: domain == billing"), "theorems:"),
    ("W111", _rows(*["" for _ in range(13)]), "theorems:"),
    ("E130", _rows("applies_when: domain != other", "applies_when: domain == billing"), "theorems:"),
    ("E130", _rows('applies_when: "domain in {orders}"', "applies_when: domain == orders"), "theorems:"),
    (
        "E122",
        _rows('requires: "x in {a, b}"', 'requires: "x in {b, c}"', 'requires: "x in {a, c}"'),
        "id: th.t2",
    ),
    ("E122", _rows("requires: x == a or y >= 5", "requires: x != a", "requires: y < 5"), "id: th.t2"),
    ("W163", _rows("", "").replace("  - {id: ax.gate, statement: Complies., type: hard}\n", ""), "id: th.t0"),
    ("E102", _rows("").replace("id: demo", "id: other"), "id: other"),
]


@pytest.mark.parametrize("case", SCENARIOS, ids=[f"{c[0]}-{i}" for i, c in enumerate(SCENARIOS)])
def test_a_planted_gap_or_core_is_found_at_its_line(folder: Path, case: tuple[str, str, str]) -> None:
    code, text, part = case
    found = _findings(folder, text)
    assert _line(text, part) in [f.line for f in found if f.code == code], "\n".join(
        f.text(text) for f in found
    )


@pytest.mark.parametrize("fields", [("", ""), ('requires: "x in {a, b}"', 'requires: "x in {b, c}"', "")])
def test_neighbours_of_planted_gaps_are_clean(folder: Path, fields: tuple[str, ...]) -> None:
    assert _findings(folder, _rows(*fields)) == ()


@pytest.mark.parametrize(
    "change",
    [("weight: 2\n  - id: th.asks", "weight: 3\n  - id: th.asks"), ("polarity: penalty", "polarity: reward")],
)
def test_a_bump_smaller_than_the_change_is_e180(change: tuple[str, str]) -> None:
    old = Rubric.loads(BASE, "demo.yaml")
    text = BASE.replace("version: 1.0.0", "version: 1.1.0").replace(*change, 1)
    found = list(e180_bump(old, Rubric.loads(text, "demo.yaml")))
    assert [(f.code, f.line) for f in found] == [("E180", 4)]
    assert "needs 2.0.0" in found[0].message
    enough = text.replace("version: 1.1.0", "version: 2.0.0")
    assert list(e180_bump(old, Rubric.loads(enough, "demo.yaml"))) == []


def test_two_imports_that_import_each_other_are_e103(folder: Path) -> None:
    for name, other in (("one", "two"), ("two", "one")):
        text = UNIFORM.replace(
            "{id: demo, version: 1.0.0}", f'{{id: {name}, version: 1.0.0, imports: ["{other}@^1.0"]}}'
        )
        (folder / f"{name}.yaml").write_text(
            text.replace("ax.", f"ax.{name}_")
            + ROW.format(0, "").replace("ax.", f"ax.{name}_").replace("th.t0", f"th.{name}")
        )
    found = lint_file(folder / "one.yaml")[1]
    assert any(f.code == "E103" and "one → two → one" in f.message for f in found)


def test_every_code_of_the_linter_is_planted_twice() -> None:
    planted = Counter(m[0] for m in (*MUTATIONS, *SCENARIOS)) + Counter({"E180": 2})
    scored = {"W170", "W171", "W172", "W173", "W174"}  # found in scored rows, see `improve`
    absent = {"E108"}  # nothing to plant a defect in, see `test_rubric_batches`
    assert {c for c in CODES if planted[c] < 2} == scored | absent


@functools.cache
def _library(name: str) -> tuple[Finding, ...]:
    return lint_file(name)[1]


@pytest.mark.parametrize("name", library_names())
def test_a_library_rubric_is_clean_and_survives_a_round_trip(name: str) -> None:
    assert [f.text() for f in _library(name)] == []
    rubric = Rubric.load(name)
    assert Rubric.loads(rubric.to_yaml(), f"{name}.yaml").hash == rubric.hash


def test_a_warning_can_be_allowed_and_an_error_cannot(folder: Path) -> None:
    vague = BASE.replace("statement: Asks for missing facts.", "statement: Asks good questions.")
    allow = "    lint_allow: [{code: W160, why: tried}, {code: E150, why: tried}]\n    applies_when: missing"
    assert "W160" in {f.code for f in _findings(folder, vague)}
    silent = vague.replace("    applies_when: missing", allow)
    assert _findings(folder, silent) == ()
    sensitive = silent.replace("Asks good questions", "Asks a pregnant user good questions")
    assert {f.code for f in _findings(folder, sensitive)} == {"E150"}


def test_all_errors_of_a_file_are_reported_not_only_the_first(folder: Path) -> None:
    text = (
        BASE.replace("domain == billing", "domain == biling")
        .replace("votes: 3", "votes: 4")
        .replace("weight: 2", "weight: 0")
    )
    assert {"E106", "E140", "E130"} <= {f.code for f in _findings(folder, text)}


def test_the_caret_stands_under_the_wrong_word(folder: Path) -> None:
    text = BASE.replace("domain == billing", "domain == biling")
    found = next(f for f in _findings(folder, text) if f.code == "E106")
    row, marks = found.text(text).splitlines()[1:3]
    at = row.index("biling")
    assert marks[at : at + 6] == "^^^^^^" and marks[:at].strip() == ""
    assert "did you mean 'billing'? declared at line 9" in marks
    assert (
        dataclasses.replace(found, hint="").text().startswith(f"{found.file}:{found.line}:{found.col}: E106")
    )


class _Names:
    """A detector as the privacy extra would pass it in."""

    def find(self, text: str) -> list[Hit]:
        found = [Hit("E151", "person name", "Jane Roe")] if "Jane Roe" in text else []
        return found + ([Hit("E150", "health", "wheelchair")] if "wheelchair" in text else [])


def test_detectors_that_are_passed_in_add_what_patterns_cannot_see() -> None:
    text = BASE.replace("title: Demo", "title: for Jane Roe").replace(
        "Gives numbered", "Gives wheelchair users numbered"
    )
    rubric = Rubric.loads(text, "demo.yaml")
    assert rubric.lint() == ()
    assert {(f.code, f.line) for f in rubric.lint([_Names()])} == {
        ("E151", _line(text, "Jane Roe")),
        ("E150", _line(text, "wheelchair")),
    }
