import pytest

from axiomrm.data.verdict import Failed, Scored
from axiomrm.rm.foreign import bracket_pair, json_score, result_line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"score": 3}', 0.5),
        ('first {"score": 5} then {"score": 1, "why": "a } in {text}"}', 0.0),
        ('{"why": {"score": 5}, "score": 2}', 0.25),
        ('{braces} in prose, then {"score": 4.0}', 0.75),
    ],
)
def test_the_last_top_level_object_gives_the_score(text: str, value: float) -> None:
    found = json_score(text, (1, 5))
    assert isinstance(found, Scored)
    assert found.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"score": 3} {"pass": true}', "no_verdict"),  # no retreat to an earlier object
        ('{"score": 6}', "illegal_label"),
        ('{"score": true}', "illegal_label"),
        ('{"score": Infinity}', "illegal_label"),
        ('{"score": "3"}', "illegal_label"),
        ('{"score": 1, "score": 5}', "illegal_label"),  # doubled key
        ('{"score": 3,}', "illegal_label"),  # malformed, last
        ('{"score": 5, "inner": {"score": 2}', "no_verdict"),  # never closed: the inner one must not decide
        ('{"a":' * 20000, "no_verdict"),
        ('{"score": ' + "9" * 5000 + "}", "illegal_label"),
        ("[3]", "no_verdict"),
    ],
)
def test_no_number_comes_from_a_json_reply_that_does_not_hold_one(text: str, kind: str) -> None:
    found = json_score(text, (1, 5))
    assert isinstance(found, Failed)
    assert found.kind == kind


def test_a_json_reply_cut_by_the_budget_is_truncated() -> None:
    found = json_score('{"score": 5, "why": "beca', (1, 5), "length")
    assert isinstance(found, Failed) and found.kind == "truncated"


def test_result_lines() -> None:
    good = result_line("Feedback: [RESULT] 5 was my first idea.\nFeedback: fine. [RESULT] 2", (1, 5))
    assert isinstance(good, Scored) and good.value == pytest.approx(0.25)
    for text in (
        "[RESULT] 4/5",
        "[RESULT] four",
        "[RESULT]",
        "[RESULT] 3 or 4",
        "[RESULT] 0",
        "[RESULT] nan",
    ):
        found = result_line(text, (1, 5))
        assert isinstance(found, Failed) and found.kind == "illegal_label", text
    cut = result_line("[RESULT] 1", (1, 10), "length")  # perhaps the 1 of a 10
    assert isinstance(cut, Failed) and cut.kind == "truncated"


def test_bracket_pairs() -> None:
    good = bracket_pair("[[A]] quotes the user.\n> [[A]]\nSo [[B]]", ["A", "B", "C"])
    assert isinstance(good, Scored) and (good.label, good.value) == ("B", 0.0)
    tie = bracket_pair("[[C]]", ["A", "B", "C"])
    assert isinstance(tie, Scored) and tie.value == 0.5
    for text, kind in (
        ("[A]", "no_verdict"),
        ("[[A]] no: [[D]]", "illegal_label"),
        ("[[A or B]]", "illegal_label"),
    ):
        found = bracket_pair(text, ["A", "B", "C"])
        assert isinstance(found, Failed) and found.kind == kind, text
