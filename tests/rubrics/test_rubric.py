"""Loading, imports, lock, hashes, binding, beats, personal share, differences."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.data.verdict import Scored
from axiomrm.errors import ConfigError, DataError, RubricError
from axiomrm.rubrics import Personal, Rubric, aggregate
from axiomrm.rubrics.diff import diff
from axiomrm.rubrics.hashing import canonical_text
from axiomrm.rubrics.lock import write_lock
from axiomrm.rubrics.versions import parse_range, parse_version

PART = """\
schema: atr/1
rubric: {{id: part, version: {0}}}
axioms:
  - {{id: ax.part, statement: "Keeps rule {1}.", type: hard}}
"""
WHOLE = """\
schema: atr/1
rubric: {id: whole, version: 1.0.0, imports: ["part@^1.0"]}
features:
  domain: {type: enum, values: [a, b]}
  vip: {type: bool, default: false}
facets:
  n: {type: int, range: [0, 99], probe: word_count}
axioms: [{id: ax.base, statement: Serves., type: premise}]
theorems:
  - {id: th.one, derived_from: [ax.base], derivation: given, statement: One., requires: n <= 9, weight: 3}
  - {id: th.two, derived_from: [ax.base], derivation: given, statement: Two., applies_when: domain == a, requires: n >= 20, beats: [th.one]}
policy: {scale: net}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "part.yaml").write_text(PART.format("1.2.0", 1))
    (tmp_path / "whole.yaml").write_text(WHOLE)
    return tmp_path


def test_an_import_resolves_beside_the_file_first_then_the_path_then_the_library(
    folder: Path, tmp_path: Path
) -> None:
    rubric = Rubric.load(folder / "whole.yaml")
    assert [a.id for a in rubric.axioms] == ["ax.part", "ax.base"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "part.yaml").write_text(PART.format("1.9.0", 2))
    assert "rule 1" in Rubric.load(folder / "whole.yaml", search=[other]).axioms[0].statement
    (folder / "part.yaml").unlink()
    assert "rule 2" in Rubric.load(folder / "whole.yaml", search=[other]).axioms[0].statement
    with pytest.raises(RubricError, match="E107"):
        Rubric.load(folder / "whole.yaml")


def test_the_highest_version_in_range_is_taken(folder: Path) -> None:
    for version, rule in (("1.10.0", 3), ("1.9.0", 4), ("2.0.0", 5)):
        (folder / f"part@{version}.yaml").write_text(PART.format(version, rule))
    assert "rule 3" in Rubric.load(folder / "whole.yaml").axioms[0].statement


@pytest.mark.parametrize(
    ("text", "version", "holds"),
    [
        ("^1.0", "1.9.9", True),
        ("^1.0", "2.0.0", False),
        ("^1.0", "2.0.0-rc1", False),
        ("^1.2", "1.1.0", False),
        ("~1.2", "1.2.7", True),
        ("~1.2", "1.3.0", False),
        ("^0.2", "0.3.0", False),
        ("1.2.0", "1.2.0", True),
        ("1.2.0", "1.2.1", False),
    ],
)
def test_ranges(text: str, version: str, holds: bool) -> None:
    span, parsed = parse_range(text), parse_version(version)
    assert span is not None and parsed is not None and span.holds(parsed) is holds
    assert parse_range("*") is None and parse_range(">=1") is None and parse_version("1.0") is None


def test_a_lock_refuses_another_hash(folder: Path) -> None:
    path = write_lock(Rubric.load(folder / "whole.yaml"))
    assert set(json.loads(path.read_text())["rubrics"]) == {"part"}
    Rubric.load(folder / "whole.yaml")
    (folder / "part.yaml").write_text(PART.format("1.2.1", 7))
    with pytest.raises(RubricError, match=r"E107 part: lock [0-9a-f]{8}…, found [0-9a-f]{8}…"):
        Rubric.load(folder / "whole.yaml")
    path.write_text("{")
    with pytest.raises(RubricError, match="not a lock file"):
        Rubric.load(folder / "whole.yaml")


SAME = [
    ("weight: 3", "weight: 3.0"),
    ("requires: n <= 9", "requires: 'n  <=  9'"),
    ("derivation: given, statement: One.", "statement: One., derivation: another step"),
    ("version: 1.0.0,", "version: 1.4.0, title: Something, license: MIT,"),
    ("policy: {scale: net}", "policy: {scale: net, min_coverage: 0.60}"),
    ("statement: One.,", "statement: One., status: active, polarity: reward,"),
    ("theorems:\n", "# a comment\ntheorems:\n  - {id: th.draft, derived_from: [ax.base], derivation: d, statement: Later., status: draft}\n"),
    ("weight: 3}", "weight: 3, tags: [x], sources: [{kind: book, ref: p3}], lint_allow: [{code: W160, why: y}]}"),
]  # fmt: skip
OTHER = [
    ("weight: 3", "weight: 4", "major", "re-aggregate"),
    ("statement: One.", "statement: Uno.", "minor", "stale"),
    ("requires: n <= 9", "requires: n <= 8", "major", "judge again"),
    ("policy: {scale: net}", "policy: {scale: signed}", "major", "re-aggregate"),
    ("weight: 3}", "weight: 3, polarity: penalty}", "major", "judge again"),
    ("weight: 3}", "weight: 3, evidence: {level: turn, reduce: mean}}", "major", "judge again"),
    ("weight: 3}", "weight: 3, on_cannot_assess: skip}", "major", "re-aggregate"),
    ("weight: 3}", "weight: 3, cases: [{good: yes!, bad: nope}]}", "minor", "stale"),
    ("values: [a, b]", "values: [a, b, c]", "major", "judge again"),
    ('imports: ["part@^1.0"]}', 'imports: ["part@^1.0"], guidelines: Be strict.}', "minor", "stale"),
]


@pytest.mark.parametrize(("old", "new"), SAME)
def test_what_means_the_same_has_the_same_hash(folder: Path, old: str, new: str) -> None:
    before = Rubric.load(folder / "whole.yaml")
    after = Rubric.loads(WHOLE.replace(old, new), "whole.yaml", search=[folder])
    assert after.hash == before.hash
    assert diff(before, after).level in ("none", "patch")


@pytest.mark.parametrize(("old", "new", "level", "consequence"), OTHER)
def test_what_means_something_else_has_another_hash_and_class(
    folder: Path, old: str, new: str, level: str, consequence: str
) -> None:
    before = Rubric.load(folder / "whole.yaml")
    after = Rubric.loads(WHOLE.replace(old, new), "whole.yaml", search=[folder])
    assert after.hash != before.hash
    result = diff(before, after)
    assert (result.level, {c.consequence for c in result.changes}) == (level, {consequence})
    assert result.needed == {"major": "2.0.0", "minor": "1.1.0"}[level] and not result.bump_fits
    assert after.hash == Rubric.loads(after.to_yaml(), "whole.yaml", search=[folder]).hash


def test_unicode_forms_of_a_text_are_one(folder: Path) -> None:
    assert canonical_text({"a": "Caf\u00e9", "n": 1.50}) == canonical_text({"n": 1.5, "a": "Cafe\u0301"})


def test_features_decide_what_applies_and_what_is_missing_is_an_error(folder: Path) -> None:
    rubric = Rubric.load(folder / "whole.yaml")
    assert [i.id for i in rubric.bind({"domain": "b", "unknown": 3}).items] == ["th.one"]
    with pytest.raises(
        DataError, match="task 'T7': feature 'domain' is missing and has no default; accepted: a, b"
    ):
        rubric.bind({}, task="T7")
    with pytest.raises(DataError, match="feature 'domain' is 'c'"):
        rubric.bind({"domain": "c"})
    with pytest.raises(DataError, match="feature 'vip' is 1"):
        rubric.bind({"domain": "a", "vip": 1})


def test_the_loser_of_beats_is_dropped_where_both_apply(folder: Path) -> None:
    active = Rubric.load(folder / "whole.yaml").bind({"domain": "a"})
    assert [i.id for i in active.items] == ["th.two"]
    assert active.dropped == (("th.one", "th.two"),)


SUPPORT = {"domain": "technical", "identity_needed": True}


def test_the_personal_part_of_the_mean_is_exactly_the_share() -> None:
    rubric = Rubric.load("support_agent")
    generic, own = rubric.bind(SUPPORT), rubric.bind(SUPPORT, Personal({"stated.verbosity": 2}, 0.25))
    plus = [sum(i.weight for i in a.items if i.polarity == "reward") for a in (generic, own)]
    assert plus[0] == pytest.approx(plus[1])
    assert next(i for i in own.items if i.personal).weight == pytest.approx(0.25 * plus[0])
    assert next(i for i in own.items if i.id == "th.asks_again").weight == 2
    assert next(i for i in own.items if i.personal).statement == "Says what is needed in at most 80 words."


@pytest.mark.parametrize("share", [0.41, -0.1, 1.0, float("nan")])
def test_a_share_outside_the_budget_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match="personal share"):
        Rubric.load("support_agent").bind(SUPPORT, Personal({"stated.verbosity": 2}, share))


def test_slots_that_no_template_reads_change_nothing() -> None:
    rubric = Rubric.load("support_agent")
    one = rubric.bind(SUPPORT, Personal({"stated.verbosity": 2, "stated.secret": "x"}, 0.2))
    two = rubric.bind(SUPPORT, Personal({"stated.verbosity": 2}, 0.2, provenance={"epoch": 7}))
    assert one.compiled_hash == two.compiled_hash
    assert one.compiled_hash != rubric.bind(SUPPORT, Personal({"stated.verbosity": 3}, 0.2)).compiled_hash


def test_a_slot_value_without_an_entry_is_named_by_its_type_and_shown_nowhere() -> None:
    rubric = Rubric.load("support_agent")
    said = Personal({"stated.verbosity": "since my divorce"}, 0.2, {"pt.verbosity": 0.125})
    with pytest.raises(
        DataError, match=r"'stated.verbosity' has a value of type str .* has 1, 2, 3, 4, 5"
    ) as caught:
        rubric.bind(SUPPORT, said)
    for shown in (str(caught.value), repr(said), f"{rubric.bind(SUPPORT)} {said}"):
        assert "divorce" not in shown and "0.125" not in shown


def test_turn_features_read_the_prefix_only() -> None:
    active = Rubric.load("support_agent").bind(SUPPORT)
    messages = (
        Message(role="user", content="my order is 7"),
        Message(role="assistant", content="which mail?"),
    )
    task = Task(features=SUPPORT, payload={"slots": {"order": "7", "mail": "a@b.example"}})
    first = Trajectory(messages=messages, task=task)
    later = (Message(role="user", content="a@b.example"), Message(role="assistant", content="thanks"))
    second = Trajectory(messages=(*messages, *later), task=task)
    ids = [[i.id for i in active.at_turn(t.before(n)).items] for t, n in ((first, 0), (second, 1))]
    assert "th.asks_first" in ids[0] and "th.steps" not in ids[0]
    assert "th.asks_first" not in ids[1] and "th.steps" in ids[1]
    with pytest.raises(DataError, match="'slots_missing'"):
        active.at_turn(Trajectory(messages=messages).before(0))


def test_verdicts_of_the_wrong_form_or_name_are_refused(folder: Path) -> None:
    active = Rubric.load(folder / "whole.yaml").bind({"domain": "b"})
    one = Scored(value=1.0)
    with pytest.raises(DataError, match=r"'th.zwei', which does not apply here"):
        aggregate(active, {"th.zwei": one})
    with pytest.raises(DataError, match="a list of verdicts, one verdict is needed"):
        aggregate(active, {"th.one": [one]})
    result = aggregate(active, {"th.one": one})
    assert result.reward is None and result.gate is None and "ax.part failed: incomplete" in result.reason


def test_a_missing_rubric_names_the_library() -> None:
    with pytest.raises(RubricError, match="general_quality") as caught:
        Rubric.load("generel_quality")
    assert caught.value.findings == ()


def test_a_model_made_in_python_goes_the_same_way(folder: Path) -> None:
    rubric = Rubric.load(folder / "whole.yaml")
    assert Rubric.from_model(rubric.file, search=[folder]).hash == rubric.hash


def test_importing_the_room_pulls_neither_torch_nor_presidio() -> None:
    code = "import sys, axiomrm.rubrics; print([m for m in ('torch', 'presidio_analyzer', 'z3') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_the_example_of_the_specification_is_the_library_rubric() -> None:
    spec = Path(__file__).resolve().parents[3] / "shared" / "RUBRICS.md"
    if not spec.is_file():
        pytest.skip("no ../shared/RUBRICS.md")
    text = spec.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    assert Rubric.loads(text, "support_agent.yaml").hash == Rubric.load("support_agent").hash


def test_a_turn_item_that_never_applied_counts_as_worst_where_asked(folder: Path) -> None:
    active: Any = Rubric.load("support_agent").bind(SUPPORT)
    verdicts: dict[str, Any] = {a.id: Scored(value=1.0) for a in active.axioms}
    for item in active.items:
        verdicts[item.id] = Scored(value=1.0) if item.evidence.level == "trajectory" else [None]
    verdicts |= {"th.concise": [Scored(value=1.0)], "th.asks_again": [Scored(value=0.0)]}
    # rewards: resolved 4, concise 1, steps 1 (never, counts as worst); asks_first 2 is left out → 5/6
    assert aggregate(active, verdicts).reward == pytest.approx(5 / 6)


def test_one_id_with_two_contents_is_refused(folder: Path) -> None:
    (folder / "part@2.0.0.yaml").write_text(PART.format("2.0.0", 9))
    middle = '{id: middle, version: 1.0.0, imports: ["part@^2.0"]}'
    (folder / "middle.yaml").write_text(f"schema: atr/1\nrubric: {middle}\n")
    both = WHOLE.replace('imports: ["part@^1.0"]', 'imports: ["part@^1.0", "middle@^1.0"]')
    (folder / "whole.yaml").write_text(both)
    with pytest.raises(RubricError, match="E107 part is imported as"):
        Rubric.load(folder / "whole.yaml")
    (folder / "middle.yaml").write_text(f"schema: atr/1\nrubric: {middle}\n".replace("^2.0", "~1.2"))
    assert [p.id for p in Rubric.load(folder / "whole.yaml").parts] == ["part", "middle", "whole"]


def test_a_template_with_too_many_variants_is_not_called_clean() -> None:
    params = {
        f"p{i}": {"slot": s, "map": {str(k): k for k in range(n)}}
        for i, (s, n) in enumerate((("stated.verbosity", 30), ("stated.tone", 30)))
    }
    template = {
        "id": "pt.many",
        "specialises": "th.one",
        "reads": ["stated.verbosity", "stated.tone"],
        "params": params,
        "statement": "Says {p0} and {p1}.",
        "dimension": "form",
        "max_weight": 1,
    }
    theorem = {"id": "th.one", "derived_from": ["ax.base"], "derivation": "given", "statement": "One."}
    axioms = [{"id": "ax.base", "statement": "Serves.", "type": "premise"}]
    body = {"schema": "atr/1", "rubric": {"id": "many", "version": "1.0.0"}, "axioms": axioms}
    text = json.dumps(body | {"theorems": [theorem], "personal_templates": [template]})
    found = [f for f in Rubric.loads(text, "many.json").lint() if f.code == "W124"]
    assert ["900 variants, 500 were searched" in f.message for f in found] == [True]
