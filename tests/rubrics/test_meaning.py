"""What decides a verdict besides its item: definitions of facets and features, and one form of Unicode."""

import unicodedata
from pathlib import Path
from typing import Literal

import pytest

from axiomrm.cli import main
from axiomrm.data.trajectory import Message, Outcome, Trajectory
from axiomrm.data.verdict import Scored
from axiomrm.rubrics import JUDGES, Personal, Rubric, judge
from axiomrm.rubrics.diff import diff
from axiomrm.rubrics.hashing import canonical_item, digest
from axiomrm.rubrics.imports import library_names
from axiomrm.rubrics.model import Axiom, Theorem

DESK = """\
schema: atr/1
rubric: {id: desk, version: 1.0.0, imports: ["core_axioms@^1.0"]}
features:
  domain: {type: enum, values: [billing, café], default: billing}
turn_features:
  asked: {type: int, range: [0, 9], probe: user_turns}
facets:
  size: {type: int, range: [0, 2000], probe: word_count}
  steps: {type: int, range: [0, 40], probe: list_items}
  unused: {type: int, range: [0, 40], probe: link_count}
axioms:
  - {id: ax.brief, statement: Is brief., type: soft, cap: 0.5, requires: size <= 900, detector: {kind: constraint}}
theorems:
  - {id: th.short, derived_from: [ax.respect], derivation: d, statement: Is short., requires: size <= 50, judge: {kind: constraint}}
  - {id: th.next, derived_from: [ax.helpful], derivation: d, statement: Names the next step., applies_when: domain == café}
  - {id: th.twice, derived_from: [ax.helpful], derivation: d, statement: Asks., applies_when: asked >= 2, evidence: {level: turn, reduce: mean}}
  - {id: th.cafe, derived_from: [ax.helpful], derivation: d, statement: Names it., judge: {kind: programmatic, fn: contains, args: {strings: [café]}}}
  - {id: th.plain, derived_from: [ax.helpful], derivation: d, statement: Is plain.}
personal_templates:
  - {id: pt.short, specialises: th.short, reads: [stated.verbosity], params: {limit: {slot: stated.verbosity, map: {1: 20, 2: 30, 3: 40, 4: 45, 5: 50}}}, statement: "At most {limit} words.", requires: "size <= {limit}", dimension: form, max_weight: 2, judge: {kind: constraint}}
"""
ITEMS = {"ax.brief", "th.short", "th.next", "th.twice", "th.cafe", "th.plain", "pt.short"}
CHANGES = [
    ("probe: word_count", "probe: char_count", {"ax.brief", "th.short", "pt.short"}),
    ("size: {type: int, range: [0, 2000]", "size: {type: int, range: [0, 3000]", {"ax.brief", "th.short", "pt.short"}),
    ("default: billing", "default: café", {"th.next"}),
    ("probe: user_turns", "probe: turn_index", {"th.twice"}),
    ("probe: link_count", "probe: emoji_count", set()),
    ("  unused: {type: int, range: [0, 40], probe: link_count}\n", "", set()),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "stale"), CHANGES)
def test_a_changed_definition_makes_the_items_stale_that_name_it(old: str, new: str, stale: set[str]) -> None:
    assert old in DESK
    result = diff(Rubric.loads(DESK), Rubric.loads(DESK.replace(old, new)))
    assert (result.level, set(result.stale), result.same_hash) == ("major", stale, False)


def test_the_definition_that_changed_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "desk.yaml").write_text(DESK, encoding="utf-8")
    changed = DESK.replace("probe: word_count", "probe: char_count")
    (tmp_path / "new" / "desk.yaml").write_text(changed, encoding="utf-8")
    assert main(["rubric", "diff", str(tmp_path / "desk.yaml"), str(tmp_path / "new" / "desk.yaml")]) == 0
    said = capsys.readouterr().out
    assert 'th.short: facet size changed: probe "word_count" → "char_count"  → judge again' in said
    assert "judge again: ax.brief, pt.short, th.short; all other" in said


def test_another_id_makes_every_item_stale() -> None:
    other = DESK.replace("id: desk", "id: bench")
    core = {a.id for a in Rubric.load("core_axioms").axioms if a.type != "premise"}
    assert set(diff(Rubric.loads(DESK), Rubric.loads(other)).stale) == ITEMS | core


def test_an_items_hash_holds_the_facets_that_it_names_and_no_others() -> None:
    before = Rubric.loads(DESK)
    after = Rubric.loads(DESK.replace("probe: word_count", "probe: char_count"))
    moved = {k for k in before.item_hashes if before.item_hashes[k] != after.item_hashes[k]}
    assert moved == {"ax.brief", "th.short"}
    other = Rubric.loads(DESK.replace("probe: link_count", "probe: emoji_count"))
    assert other.item_hashes == before.item_hashes and other.hash != before.hash
    user = Personal(slots={"stated.verbosity": 1}, share=0.2)
    own = [next(i.item_hash for i in r.bind({}, user).items if i.personal) for r in (before, after, other)]
    assert own[0] != own[1] and own[0] == own[2]


@pytest.mark.parametrize("name", library_names())
def test_an_item_without_facets_keeps_its_hash(name: str) -> None:
    rubric = Rubric.load(name)
    items: tuple[Axiom | Theorem, ...] = (*rubric.axioms, *rubric.theorems)
    for item in items:
        kept = rubric.item_hashes[item.id] == digest(canonical_item(item))
        assert kept == (item.requires is None), item.id


def test_a_cited_id_is_found_in_any_form() -> None:
    message = Message(role="assistant", content="As said [cafe\u0301].")
    trajectory = Trajectory(
        messages=(message,), outcome=Outcome(score=None, metrics={"retrieved_ids": ["cafe\u0301"]})
    )
    verdict = JUDGES["cites_sources"](trajectory, None, {"pattern": r"\[([^]]+)\]"})
    assert isinstance(verdict, Scored) and verdict.value == 1


Form = Literal["NFC", "NFD"]
FORMS: list[Form] = ["NFC", "NFD"]


@pytest.mark.parametrize("said", FORMS)
@pytest.mark.parametrize("written", FORMS)
def test_the_forms_of_a_letter_are_one_letter(written: Form, said: Form) -> None:
    rubric = Rubric.loads(unicodedata.normalize(written, DESK))
    assert rubric.hash == Rubric.loads(DESK).hash
    cafe = unicodedata.normalize(said, "café")
    active = rubric.bind({"domain": cafe})
    assert "th.next" in {i.id for i in active.items}
    assert active.compiled_hash == Rubric.loads(DESK).bind({"domain": "café"}).compiled_hash
    messages = (Message(role="user", content="Where?"), Message(role="assistant", content=f"At the {cafe}."))
    trajectory = Trajectory(messages=messages)
    verdict = judge(next(i for i in active.items if i.id == "th.cafe"), trajectory)
    assert isinstance(verdict, Scored) and verdict.value == 1
    args = {"strings": [unicodedata.normalize(written, "CAFÉ")]}
    pattern = {"form": "regex", "pattern": ".*" + unicodedata.normalize(written, "é") + r"\."}
    for fn, given, value in (("contains", args, 1), ("excludes", args, 0), ("format_valid", pattern, 1)):
        got = JUDGES[fn](trajectory, None, given)
        assert isinstance(got, Scored) and got.value == value
