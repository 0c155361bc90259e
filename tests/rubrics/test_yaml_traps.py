"""YAML traps: the right value or a clear error, never a traceback, in bounded time."""

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from axiomrm.errors import RubricError
from axiomrm.rubrics import Finding, Rubric
from axiomrm.rubrics.fix import fix
from axiomrm.rubrics.near import near
from axiomrm.rubrics.read import read_bytes, read_text
from axiomrm.rubrics.text_form import nfc
from axiomrm.rubrics.yaml_write import to_yaml

GOOD = """\
schema: atr/1
rubric: {id: demo, version: 1.0.0, languages: [en]}
axioms:
  - {id: ax.base, statement: Serves the user., type: premise}
theorems:
  - id: th.one
    derived_from: [ax.base]
    derivation: given
    statement: Names the deadline.
    weight: 2
"""


def _findings(text: str) -> list[Finding]:
    try:
        Rubric.loads(text, "demo.yaml")
    except RubricError as error:
        return [f for f in error.findings if isinstance(f, Finding)]
    return []


VALUES = [
    ("1e-6", 1e-6),
    ("1E2", 100.0),
    ("2.50", 2.5),
    ("+3", 3.0),
    (".5", 0.5),
    ("5.", 5.0),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_a_number_has_the_value_that_it_shows(text: str, value: float) -> None:
    assert Rubric.loads(GOOD.replace("weight: 2", f"weight: {text}"), "demo.yaml").theorems[0].weight == value


TRAPS = [
    ("weight: 2", "weight: '2'", "a number is needed"),
    ("weight: 2", "weight: 0x10", "quote"),
    ("weight: 2", "weight: 010", "quote"),
    ("weight: 2", "weight: 1_000", "quote"),
    ("weight: 2", "weight: 12:30", "quote"),
    ("weight: 2", "weight: true", "a number is needed"),
    ("weight: 2", "weight: null", "a number is needed"),
    ("weight: 2", "weight: [2]", "a number is needed"),
    ("weight: 2", "weight: &w 2", "anchor"),
    ("weight: 2", "weight: !!float 2", "tag"),
    ("weight: 2", "weight: !w 2", "tag"),
    ("weight: 2", "<<: {weight: 2}", "merge key"),
    ("weight: 2", "? [a]\n    : 2", "key must be a plain word"),
    ("weight: 2", "Weight: 2", "unknown field 'Weight'; did you mean 'weight'?"),
    ("weight: 2", "status: activ", "activ"),
    ("languages: [en]", "languages: [en, no]", "quote"),
    ("languages: [en]", "languages: [On]", "quote"),
    ("languages: [en]", "languages: en", "a list is needed"),
    ("version: 1.0.0", "version: 1.0", "quote"),
    ("version: 1.0.0", "version: 2", "quote"),
    ("version: 1.0.0", "version: 2026-01-12", "quote"),
    ("version: 1.0.0", "version: v1", "not a semantic version"),
    ("schema: atr/1", "schema: atr/2", "atr/1"),
    ("schema: atr/1", "schema: atr/1\nschema: atr/1", "stands twice"),
    ("statement: Names the deadline.", "statement: @deadline", "quote"),
    ("statement: Names the deadline.", "statement: {limit}", "quote"),
    ("statement: Names the deadline.", "statement: [1] is named", "quote"),
    ("statement: Names the deadline.", "statement: Names: the deadline.", "quote"),
    ("statement: Names the deadline.", "statement: 'Names the deadline.", "is not closed"),
    ("statement: Names the deadline.", "statement: 12", "quote"),
    ("statement: Names the deadline.", "statement: null", "a text is needed"),
    ("    derivation: given", "\tderivation: given", "tab"),
    ("    derivation: given", "  \tderivation: given", "tab"),
    ("theorems:\n", "theorems:\n---\n", "document"),
    ("    weight: 2\n", "    weight: 2\n    judge: {kind: programmatic}\n", "'fn' is missing"),
    ("    weight: 2\n", "    weight: 2\n    judge: {kind: magic}\n", "magic"),
    ("    weight: 2\n", "    weight: 2\n    judge: {mode: direct}\n", "kind"),
    ("    weight: 2\n", "    weight: 2\n    judge: {kind: llm, vote: 3}\n", "did you mean 'votes'?"),
]


@pytest.mark.parametrize(("old", "new", "says"), TRAPS)
def test_a_trap_gets_e100_with_a_line_and_what_to_do(old: str, new: str, says: str) -> None:
    found = [f for f in _findings(GOOD.replace(old, new, 1)) if f.code == "E100"]
    assert any(says in f"{f.message} {f.hint}" for f in found), found
    assert all(f.line > 0 and f.col > 0 for f in found)


def test_the_untouched_text_has_no_finding() -> None:
    assert _findings(GOOD) == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"# only a comment\n",
        b"just text",
        b"[1, 2]",
        GOOD.encode("utf-16"),
        GOOD.encode("utf-16-le"),
        GOOD.replace("Names", "N\xe4mes").encode("latin-1"),
        b"\xef\xbb\xbf",
        b"a: " + b"[" * 100_000,
        b"a: " + b"{a: " * 50_000,
        b"- " * 50_000,
        b"a: &a [x]\nb: [*a, *a]",
        b"x" * 11_000_000,
        b"? " * 5_000,
        b'{"schema": "atr/1", "rubric": {"id": "demo"',
    ],
)
def test_hostile_bytes_are_findings_in_bounded_time(raw: bytes) -> None:
    start = time.process_time()
    document = read_bytes(raw, "demo.yaml")
    assert time.process_time() - start < 2
    assert document.model is None and document.findings
    assert all(f.code == "E100" and f.message for f in document.findings)


def test_a_file_that_is_too_large_is_not_read_in_full(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_bytes(b"# " + b"x" * 10_000_000)
    with pytest.raises(RubricError, match="MiB"):
        Rubric.load(path)


def test_encodings_and_line_ends_do_not_change_the_hash(tmp_path: Path) -> None:
    hashes = set()
    for raw in (GOOD, GOOD.replace("\n", "\r\n"), "\ufeff" + GOOD, GOOD.replace("\n", "\r")):
        path = tmp_path / "demo.yaml"
        path.write_bytes(raw.encode())
        hashes.add(Rubric.load(path).hash)
    assert len(hashes) == 1


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_a_rubric_with_random_edits_loads_or_raises_rubric_error(data: st.DataObject) -> None:
    text = list(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at] = data.draw(st.sampled_from(list("\t\n:-{}[]\"'&*!|>%@`#,? x0é\x07\u2028")))
    try:
        Rubric.loads("".join(text), "demo.yaml")
    except RubricError as error:
        assert error.findings and all(
            isinstance(f, Finding) and f.text("".join(text)) for f in error.findings
        )


_plain = st.recursive(
    st.one_of(
        st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12),
        st.sampled_from(
            [
                "no",
                "1.10",
                "2026-01-12",
                "012",
                "12:30",
                "1e-1",
                "",
                " x",
                "~",
                "null",
                "true",
                "{a}",
                "a: b",
                "- x",
                "#x",
                "cafe\u0301",
                "next\x85line",
                "'",
                '"',
            ]
        ),
        st.integers(-(10**6), 10**6),
        st.floats(allow_nan=False, allow_infinity=False, width=32),
        st.booleans(),
        st.none(),
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "on", "1", "x y"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(_plain)
def test_what_we_write_we_read_back(value: object) -> None:
    from axiomrm.rubrics.read import plain
    from axiomrm.rubrics.yaml_nodes import Reader

    reader = Reader(to_yaml({"v": value}), "demo.yaml")
    assert plain(reader.read()) == nfc({"v": value})
    assert reader.findings == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("languages: [en]", "languages: [en, no]"),
        ("weight: 2", "wieght: 2"),
        ("weight: 2", "judge: {knd: llm}"),
        ("derivation: given", "derivation: 2026-01-12"),
        ("derivation: given", "derivation: 12"),
    ],
)
def test_fix_mends_what_is_mechanical(old: str, new: str) -> None:
    text, mended = fix(GOOD.replace(old, new), "demo.yaml")
    assert len(mended) == 1
    assert read_text(text, "demo.yaml").findings == ()


def test_fix_leaves_wording_and_clean_files_alone() -> None:
    assert fix(GOOD, "demo.yaml") == (GOOD, ())
    vague = GOOD.replace("Names the deadline", "Is a good reply")
    assert fix(vague, "demo.yaml") == (vague, ())


def test_fix_mends_a_section_and_then_the_keys_that_its_name_hid() -> None:
    wrong = GOOD.replace("theorems:", "theorms:").replace("derivation:", "derivaton:")
    wrong = wrong.replace("statement: Names", "statment: Names").replace("axioms:", "axoms:")
    text, mended = fix(wrong.replace("type: premise", "typ: premise"), "demo.yaml")
    assert text == GOOD
    assert sorted(f.message.split("'")[1] for f in mended) == [
        "axoms",
        "derivaton",
        "statment",
        "theorms",
        "typ",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("theorems:", "axoms: []\ntheorems:"),  # there is a section of that name
        ("    weight: 2\n", "    weight: 2\n    wieght: 3\n"),
        ("    weight: 2\n", "    wieght: much\n"),  # nor does a word become a weight
        ("theorems:", "turn_feature: [1]\ntheorems:"),
        ("derivation:", "description:"),  # another word, not mistyped
        ("    weight: 2\n", "    weigth: 2\n    wieght: 3\n"),  # two for one place
        ("version: 1.0.0", "version: 1.10"),  # an error in quotes too
        ("version: 1.0.0", "version: 1.10, colour: red"),
        ("languages: [en]", "imports: [no]"),
        ("[ax.base]", "[no]"),
        ("    weight: 2\n", "    applies_when: no\n"),
        ("axioms:", "features: {f: {type: int, range: [0, 1], default: no}}\naxioms:"),
    ],
)
def test_fix_does_not_guess(old: str, new: str) -> None:
    wrong = GOOD.replace(old, new)
    assert fix(wrong, "demo.yaml") == (wrong, ())


@pytest.mark.parametrize(("word", "value"), [("no", "false"), ("Yes", "true"), ("on", "true")])
@pytest.mark.parametrize("section", ["features", "turn_features"])
def test_fix_makes_the_default_of_a_truth_value_one(word: str, value: str, section: str) -> None:
    probe = "" if section == "features" else ", probe: has_code"
    text = GOOD.replace("axioms:", f"{section}: {{f: {{type: bool{probe}, default: {word}}}}}\naxioms:")
    fixed, mended = fix(text, "demo.yaml")
    assert fixed == text.replace(f"default: {word}", f"default: {value}")
    assert [f.hint for f in mended] == [f"the feature is a truth value: write {value}"]


def test_a_default_of_the_wrong_type_is_found_at_the_default() -> None:
    text = GOOD.replace("axioms:", 'features:\n  f: {type: bool, default: "no"}\naxioms:')
    (found,) = _findings(text)
    assert (found.code, found.line, found.col) == ("E106", 4, text.splitlines()[3].index('"no"') + 1)


def test_a_mistyped_kind_of_a_judge_is_named() -> None:
    (found,) = _findings(GOOD.replace("weight: 2", "judge: {knd: constraint}"))
    assert found.message == "unknown field 'knd'; did you mean 'kind'?"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("wieght", "weight"),
        ("knid", "kind"),
        ("weigh", "weight"),
        ("kite", None),
        ("vots", None),
    ],
)
def test_near_is_near_and_one(typed: str, meant: str | None) -> None:
    assert near(typed, ["weight", "kind", "votes", "vote"]) == meant


def test_fix_keeps_the_quotes_of_a_key() -> None:
    text = '{"schema": "atr/1", "rubrc": {"id": "demo", "versoin": "1.0.0"}}'
    fixed, mended = fix(text, "demo.json")
    assert fixed == text.replace("rubrc", "rubric").replace("versoin", "version")
    assert len(mended) == 2


def test_json_is_read_too_even_with_tabs() -> None:
    text = '{\n\t"schema": "atr/1",\n\t"rubric": {"id": "demo", "version": "1.0.0"}\n}'
    assert Rubric.loads(text, "demo.json").id == "demo"
