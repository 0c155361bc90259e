"""The condition language: grammar, Kleene logic, canonical text, limits, fuzz."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axiomrm.rubrics.expr import And, Expr, ExprError, Implies, Literally, Not, Or, Test, evaluate, parse
from axiomrm.rubrics.expr_text import decimal_text, unparse


@pytest.mark.parametrize(
    ("text", "env", "value"),
    [
        ("a and b or c", {"a": False, "b": True, "c": True}, True),
        ("not a and b", {"a": False, "b": True}, True),
        ("a implies b implies c", {"a": True, "b": True, "c": False}, False),
        ("n >= 2 and n <= 3", {"n": 3}, True),
        ("n != 2", {"n": 2.0}, False),
        ("x == 0.1", {"x": 0.1}, True),
        ("d in {orders, billing}", {"d": "orders"}, True),
        ("d not in {orders}", {"d": "orders"}, False),
        ('d == "two words"', {"d": "two words"}, True),
        ("n == 1", {"n": True}, False),
        ("a", {"a": None}, None),
        ("a and b", {"a": None, "b": False}, False),
        ("a or b", {"a": None, "b": True}, True),
        ("a or b", {"b": False}, None),
        ("a implies b", {"a": None, "b": True}, True),
        ("n > 3", {"n": None}, None),
        ("true", {}, True),
        ("stated.tone == formal", {"stated.tone": "formal"}, True),
    ],
)
def test_conditions_evaluate_under_kleene_logic(
    text: str, env: dict[str, bool | float | str | None], value: bool | None
) -> None:
    assert evaluate(parse(text), env) is value


@pytest.mark.parametrize(
    ("text", "offset", "word"),
    [
        ("", 0, "the end"),
        ("a and", 5, "the end"),
        ("a = 1", 2, "'='"),
        ("f(x)", 0, "called like a function"),
        ("a.b.c()", 0, "called like a function"),
        ("__import__('os')", 0, "unexpected"),
        ("a == b == c", 7, "after the end"),
        ("a && b", 2, "'&'"),
        ("n >= 1e-3", 5, "1e-3"),
        ("n in {}", 6, "'}'"),
        ("a + 1 == 2", 2, "'+'"),
        ("(a", 2, "')'"),
        ("a)", 1, "after the end"),
        ("x == lambda: 1", 11, "':'"),
    ],
)
def test_errors_name_place_and_word(text: str, offset: int, word: str) -> None:
    with pytest.raises(ExprError) as caught:
        parse(text)
    assert word in caught.value.message
    assert caught.value.offset == offset or word == "unexpected"


@pytest.mark.parametrize(
    "text",
    ["(" * 10_000 + "a" + ")" * 10_000, "not " * 40 + "a", "(" * 33 + "a" + ")" * 33, "a and " * 200 + "a"],
)
def test_depth_and_length_are_bounded(text: str) -> None:
    with pytest.raises(ExprError):
        parse(text)


def test_depth_31_still_parses() -> None:
    assert parse("(" * 31 + "a" + ")" * 31) == parse("a")


@settings(max_examples=1500, deadline=None)
@given(st.one_of(st.text(max_size=60), st.text(alphabet='abn()<>=!{}, ".019_andortifmples', max_size=60)))
def test_any_text_parses_or_raises_expr_error_only(text: str) -> None:
    try:
        tree = parse(text)
    except ExprError as error:
        assert error.message and 0 <= error.offset <= len(text)
    else:
        assert parse(unparse(tree)) == tree


_tests = st.builds(
    lambda name, op, value: Test(name, op, (value,)),
    st.sampled_from(["a", "b.c", "len_words"]),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in"]),
    st.one_of(
        st.integers(-9, 99).map(Decimal),
        st.decimals("-2", "2", places=3),
        st.booleans(),
        st.sampled_from(["x", "in", "two words", 'say "hi"']),
    ),
)
_trees: st.SearchStrategy[Expr] = st.recursive(
    st.one_of(_tests, st.booleans().map(Literally)),
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(Implies, inner, inner),
        st.lists(inner, min_size=2, max_size=3).map(lambda x: And(tuple(x))),
        st.lists(inner, min_size=2, max_size=3).map(lambda x: Or(tuple(x))),
    ),
    max_leaves=6,
)


@settings(max_examples=600, deadline=None)
@given(_trees)
def test_canonical_text_is_stable_and_means_the_same(tree: Expr) -> None:
    text = unparse(tree)
    if len(text) > 500:
        return
    again = parse(text)
    assert unparse(again) == text
    env: dict[str, int | float | str] = {"a": 1, "b.c": "x", "len_words": 3.5}
    assert evaluate(again, env) == evaluate(tree, env)


@pytest.mark.parametrize(
    ("number", "text"), [("1.50", "1.5"), ("1E-6", "0.000001"), ("-0", "0"), ("100", "100"), ("1E+2", "100")]
)
def test_numbers_have_one_spelling(number: str, text: str) -> None:
    assert decimal_text(Decimal(number)) == text
