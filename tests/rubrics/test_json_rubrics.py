"""Rubrics written as JSON: all that ``json.dumps`` writes is read, with places in the file."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axiomrm.errors import RubricError
from axiomrm.rubrics import Rubric
from axiomrm.rubrics.read import Document, plain, read_text
from axiomrm.rubrics.text_form import nfc

ODD = "Says 😀 and \x7f, \x85, \u2028, \\ud83d, \" / 'é' <tab>\t."


def _tree(statement: str) -> dict[str, Any]:
    theorem = {"id": "th.a", "derived_from": ["ax.a"], "derivation": "d", "statement": statement, "weight": 2}
    axiom = {"id": "ax.a", "statement": "Helps.", "type": "premise"}
    header = {"id": "demo", "version": "1.0.0"}
    return {"schema": "atr/1", "rubric": header, "axioms": [axiom], "theorems": [theorem]}


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("indent", [None, 1, "\t"])
@pytest.mark.parametrize("file", ["demo.json", "rubric.yaml"])
def test_what_json_dumps_writes_is_read(
    ascii_only: bool, indent: int | str | None, file: str, tmp_path: Path
) -> None:
    text = json.dumps(_tree(ODD), ensure_ascii=ascii_only, indent=indent)
    assert Rubric.loads(text, file).theorems[0].statement == ODD
    path = tmp_path / "demo.json"
    path.write_text(text, encoding="utf-8")
    assert Rubric.load(path).hash == Rubric.loads(text, file).hash


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**16), 10**16)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=8)
    | st.sampled_from(["no", "012", "12:30", "2026-01-12", "<<", "😀\x7f\x00", "//"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "<<", "é😀", ""]), inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(_values, st.booleans(), st.sampled_from([None, 0, 2]))
def test_any_json_has_the_values_that_json_gives_it(value: Any, ascii_only: bool, indent: int | None) -> None:
    document = read_text(json.dumps({"v": value}, ensure_ascii=ascii_only, indent=indent), "demo.json")
    assert plain(document.root) == nfc({"v": value})


def _read(text: str) -> Document:
    return read_text(text, "demo.json")


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ('{"a": "\\ud83d\\ude00", "a": 1}', (1, 23), "key 'a' stands twice, first at line 1"),
        ('{\n "a": "\\ud83d"\n}', (2, 7), "half of a surrogate pair"),
        ('{"a": 12345678901234567890}', (1, 7), "a number of that size"),
        ('{"a": "\\ud83d\\ude00"\n "b": 1}', (2, 2), "expected ',' or '}', found '\"b\"'"),
        ('{"a": "😀", "b": [1, 2\n', (2, 1), "expected ',' or ']', found the end of the text"),
        ('{"a": "\\ud83d\\ude00 \n', (1, 7), "the text in quotes is not JSON"),
        ('{"a": "\\ud83d\\ude00", "b": nope, "c": "\x7f"}', (1, 28), "expected a value, found 'nope'"),
        ('{"a": "\\ud83d\\ude00",}', (1, 22), "expected a key in quotes, found '}'"),
        ('{"a": "\\ud83d\\ude00"} {}', (1, 23), "expected the end of the text, found '{'"),
        ("[" * 21 + "]" * 21, (1, 21), "nested deeper than 20"),
    ],
)
def test_a_fault_names_its_place(text: str, place: tuple[int, int], says: str) -> None:
    (finding,) = [f for f in _read(text).findings if says in f.message]
    assert (finding.code, finding.line, finding.col) == ("E100", *place)


def test_places_behind_an_emoji_are_those_of_the_file() -> None:
    text = json.dumps({"title": "😀", **_tree("x")}, indent=1).replace(
        '"weight": 2', '"weight": 2, "wieght": 3'
    )
    (finding,) = [f for f in _read(text).findings if "wieght" in f.message]
    row = text.split("\n")[finding.line - 1]
    assert row[finding.col - 1 :].startswith('"wieght"') and "did you mean 'weight'" in finding.message
    with pytest.raises(RubricError, match=r"demo.json:\d+:\d+: E100 unknown field 'title'"):
        Rubric.loads(text, "demo.json")


@pytest.mark.parametrize("text", ['{"a": 1,}', "{a: 1}", "a: 1\n", '{"a": 1} # a remark', '{"a": "b\tc"}'])
def test_yaml_in_a_json_file_is_read_as_before(text: str) -> None:
    assert plain(_read(text).root) in ({"a": 1}, {"a": "b c"})
