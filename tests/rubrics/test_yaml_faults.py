"""A text that is no YAML: the message names the opening place, what was found and what was expected."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.errors import DataError
from axiomrm.rubrics.convert.entry import load_yaml
from axiomrm.rubrics.read import read_text
from axiomrm.rubrics.yaml_faults import yaml_fault

HEAD = "schema: atr/1\naxioms:\n  - id: ax.a\n"
FAULTS = [
    ("    caps: [1, 2\n    type: soft\n", (4, 11), "'[' at line 4, column 11 is not closed", "':' at line 5, column 9"),
    ("    caps: {a: 1,\n      b: 2\n", (4, 11), "'{' at line 4, column 11 is not closed: expected ',' or '}'", "the end"),
    ("    caps: [{a: 1}\n      {b: 2}]\n", (4, 11), "expected ',' or ']'", "'{' at line 5, column 7"),
    ("    caps: [1, 2}\n", (4, 11), "'[' at line 4, column 11 is not closed", "'}' at line 4, column 16"),
    ("    caps: {a: 1 b: 2}\n", (4, 18), "in the '{' at line 4, column 11: expected ',' or '}'", "':' at line 4"),
    ("    caps: [1]]\n", (4, 14), "']' at line 4, column 14 closes nothing", ""),
    ("    caps: [1] and more\n", (4, 11), "text after the ']' that closes '['", "'and' at line 4, column 15"),
    ('    text: "x is\n    type: soft\n', (4, 11), 'the quote " at line 4, column 11 is not closed', "the end"),
    ('    text: "x is\n    kind: "y"\n', (4, 11), 'is closed only at line 5, column 12', "'y\"' at line 5"),
    ("    text: 'it isn't so'\n", (4, 11), "text after a closing quote '", "'t' at line 4, column 19"),
    ('    text: "a \\q"\n', (4, 14), r"unknown escape \q", ""),
    ("    text\n    type: soft\n", (4, 5), "'text' has no ':'", "'type:' at line 5, column 5"),
    ("    text: a: b\n", (4, 12), "': ' inside an unquoted text", ""),
    ("      text: a\n", (4, 7), "indented deeper than", "line 3, column 9"),
    ("  text: a\n", (4, 3), "the list of line 3, column 3 goes on with '- '", "'text:' at line 4, column 3"),
    ("    text: @you\n", (4, 11), "a text cannot start with '@you'", ""),
    ("    text: a\x01b\n", (4, 12), "a character U+0001", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "place", "says", "found"), FAULTS)
def test_a_fault_names_its_place_and_what_was_found(
    text: str, place: tuple[int, int], says: str, found: str
) -> None:
    (finding,) = read_text(HEAD + text, "r.yaml").findings
    assert (finding.line, finding.col) == place, finding
    assert says in finding.message and f"{found}" in finding.message
    assert finding.hint


def test_a_rubric_to_convert_is_read_with_the_same_words() -> None:
    with pytest.raises(DataError, match=r"^f\.yaml:1:4: not YAML: '\[' at line 1, column 4 is not closed"):
        load_yaml("a: [1\nb: 2\n", "f.yaml")


@given(st.text(st.sampled_from(list("ab:,-[]{}\"'\\ \n\t|>#&*!%@?\x01")), max_size=40))
def test_any_text_that_no_loader_takes_has_a_fault_inside_it(text: str) -> None:
    try:
        list(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.YAMLError as error:
        fault = yaml_fault(error, text)
        assert 1 <= fault.line <= text.count("\n") + 1 and fault.col >= 1 and fault.length >= 1
        assert fault.message and fault.hint
