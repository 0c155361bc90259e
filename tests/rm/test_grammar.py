import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.data.verdict import Failed
from axiomrm.rm.grammar import Answer, Quote, answer_text, parse, parse_items
from axiomrm.rm.labels import BINARY, choice_labels, level_labels, pair_labels

SETS = [
    BINARY,
    pair_labels(),
    level_labels([(i / 6, "") for i in range(7)]),
    choice_labels([(c, 0.5, "") for c in "abcdef"]),
]


@pytest.mark.parametrize("labels", SETS)
def test_what_is_rendered_is_parsed(labels: object) -> None:
    for token in labels.tokens:  # type: ignore[attr-defined]
        for notes in (None, "calm 3 of 5, Y or N; verdict[other]=1"):
            text = answer_text(token, "gamu", notes, [Quote(0, 'say "no" twice')])
            found = parse(text, labels.tokens, "gamu")  # type: ignore[attr-defined]
            assert isinstance(found, Answer)
            assert found.label == token
            assert found.quotes == (() if notes is None else (Quote(0, 'say "no" twice'),))


def test_notes_come_before_the_verdict_line() -> None:
    text = answer_text("Y", "gamu", "fine")
    assert text == "notes: fine\nquote none\nverdict[gamu]=Y"
    found = parse(text, BINARY.tokens, "gamu")
    assert isinstance(found, Answer)
    assert (found.notes, found.at) == ("fine", text.index("verdict"))


def test_the_offset_survives_characters_that_are_stripped_or_widened() -> None:
    text = "<think>verdict[gamu]=N</think>\u200bno\ufb01t\r\n**ｖｅｒｄｉｃｔ［gamu］＝Y**"
    found = parse(text, BINARY.tokens, "gamu")
    assert isinstance(found, Answer)
    assert (found.label, found.at) == ("Y", text.index("**"))


@pytest.mark.parametrize(
    "line",
    [
        "verdict[gamu]=Y",
        "  verdict[gamu]=Y\t",
        "**verdict[gamu]=Y**",
        "verdict[gamu]=**Y**",
        "verdict[gamu]= Y\r",
        "verdict[gamu]=\u2060Y",
        "Verdict[gamu]=Y",
    ],
)
def test_harmless_dress_is_read(line: str) -> None:
    found = parse(f"notes: x\nquote none\n{line}\n", BINARY.tokens, "gamu")
    assert isinstance(found, Answer)
    assert found.label == "Y"


@pytest.mark.parametrize(
    "text",
    [
        "verdict[gami]=Y",  # another nonce
        "> verdict[gamu]=Y",
        "```\nverdict[gamu]=Y\n```",
        "~~~\nverdict[gamu]=Y",  # a fence that never closes
        "````\n```\nverdict[gamu]=Y\n````",
        "so verdict[gamu]=Y",
        "verdict[gamu.1]=Y",  # an item of joint mode
        "verdict[gamu]:Y",
        "Y",
        "verdict=Y",
    ],
)
def test_what_is_no_verdict_line_is_never_read(text: str) -> None:
    found = parse(text, BINARY.tokens, "gamu")
    assert isinstance(found, Failed)
    assert found.kind == "no_verdict"


@pytest.mark.parametrize("label", ["", "Y.", "YN", "yes", "NOT Y", "Y/N", "4", "<label>", "Y N"])
def test_an_illegal_last_label_fails_without_retreat(label: str) -> None:
    found = parse(f"verdict[gamu]=N\nverdict[gamu]={label}\n", BINARY.tokens, "gamu")
    assert isinstance(found, Failed)
    assert found.kind == "illegal_label"


def test_a_budget_that_ends_in_the_verdict_line_is_truncation() -> None:
    cut = parse("notes: x\nverdict[gamu]=N", BINARY.tokens, "gamu", "length")
    whole = parse("notes: x\nverdict[gamu]=N\n", BINARY.tokens, "gamu", "length")
    assert isinstance(cut, Failed) and cut.kind == "truncated"
    assert isinstance(whole, Answer) and whole.label == "N"


@given(st.text(max_size=200))
def test_random_text_never_parses(text: str) -> None:
    assert isinstance(parse(text, BINARY.tokens, "zuquqoxy"), Failed)


@given(st.text(max_size=80), st.sampled_from(BINARY.tokens))
def test_whatever_stands_before_a_fresh_line_the_last_line_decides(before: str, label: str) -> None:
    found = parse(f"{before}\n\nverdict[gamu]={label}", BINARY.tokens, "gamu")
    # A fence or a thinking block that was opened before may hide the line; another label may not.
    assert isinstance(found, Failed) or found.label == label


def test_joint_items_fail_alone_and_strangers_are_counted() -> None:
    text = "verdict[gamu.1]=Y\nverdict[gamu.2]=Q\nverdict[gamu.9]=Y\nverdict[gamu]=N"
    found, ignored = parse_items(text, BINARY.tokens, "gamu", [1, 2, 3])
    assert isinstance(found[1], Answer) and found[1].label == "Y"
    kinds = [f.kind for f in (found[2], found[3]) if isinstance(f, Failed)]
    assert kinds == ["illegal_label", "incomplete"]
    assert ignored == 1
