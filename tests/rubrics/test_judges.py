"""Programmatic judges and the presets, with numbers worked by hand from RUBRICS.md section 9."""

from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Outcome, Task, ToolCall, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.errors import ConfigError
from axiomrm.rubrics import JUDGES, Rubric, aggregate, judge


def _recorded(metrics: dict[str, Any], reference: Any = None, n_turns: int = 1) -> Trajectory:
    messages = [Message(role="user", content="do it")]
    messages += [Message(role="assistant", content=f"step {i}") for i in range(n_turns)]
    task = Task(reference=reference)
    return Trajectory(messages=tuple(messages), task=task, outcome=Outcome(score=1.0, metrics=metrics))


def _reward(name: str, trajectory: Trajectory) -> float | None:
    active = Rubric.load(name).bind({})
    return aggregate(active, {i.id: judge(i, trajectory) for i in active.judged}).reward


CODE = {
    "tests_passed": 8,
    "tests_total": 10,
    "runs": True,
    "changed_paths": ["src/a.py", "src/b.py", "README.md"],
    "steps": 12,
}
RAG = {
    "answer": "The Eiffel Tower",
    "retrieved_ids": ["d1", "d2", "d7", "d9"],
    "relevant_ids": ["d1", "d2", "d3"],
    "retrievals": 4,
}
DATA = {
    "result": [["x", 1]],
    "query_parses": True,
    "query_executes": True,
    "rows_scanned": 100_000,
    "statement_kinds": ["SELECT"],
}


def test_the_code_preset_gives_the_number_worked_by_hand() -> None:
    # 0.6·8/10 + 0.2·1 − 0.1·(3−1)/(10−1) − 0.1·(12−5)/(30−5) = 0.48 + 0.2 − 0.0222 − 0.028
    assert _reward("code_agent", _recorded(CODE)) == pytest.approx(0.48 + 0.2 - 0.2 / 9 - 0.028, abs=1e-9)


def test_changed_tests_close_the_gate_of_the_code_preset() -> None:
    touched = {**CODE, "changed_paths": ["src/a.py", "tests/unit/test_a.py"]}
    assert _reward("code_agent", _recorded(touched)) == pytest.approx(-0.2)


def test_the_rag_preset_gives_the_number_worked_by_hand() -> None:
    # right 0.4 + 0.3·2/3 + 0.2·2/4 − 0.1·(4−1)/(8−1)
    got = _reward("rag_agent", _recorded(RAG, "eiffel tower"))
    assert got == pytest.approx(0.4 + 0.2 + 0.1 - 0.3 / 7, abs=1e-9)


def test_the_data_preset_gives_the_number_worked_by_hand() -> None:
    # wrong 0 + 0.2 + 0.2 − 0.1·(5−3)/(6−3) on log10
    got = _reward("data_agent", _recorded(DATA, {"result": [["x", 2]]}))
    assert got == pytest.approx(0.4 - 0.2 / 3, abs=1e-9)
    assert (
        _reward("data_agent", _recorded({**DATA, "statement_kinds": ["select", "DELETE"]}, {"result": []}))
        == -0.1
    )


TOOLS = (
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "required": ["id"],
     "properties": {"id": {"type": "integer"}}, "additionalProperties": False}}},
)  # fmt: skip


def _calls(*names: tuple[str, dict[str, Any]], expected: list[str] | None = None) -> Trajectory:
    messages = [Message(role="user", content="go")]
    for i, (name, arguments) in enumerate(names):
        call = ToolCall(name=name, arguments=arguments, id=f"c{i}")
        extra = {"expected_tools": expected} if expected is not None else {}
        messages.append(Message(role="assistant", tool_calls=(call,), extra=extra))
        messages.append(Message(role="tool", tool_call_id=f"c{i}", content="ok"))
    return Trajectory(messages=tuple(messages), tools=TOOLS)


def _turn_reward(trajectory: Trajectory, turn: int) -> float | None:
    active = Rubric.load("process_shaping").bind({}).at_turn(trajectory.before(turn))
    return aggregate(active, {i.id: judge(i, trajectory, turn) for i in active.judged}).reward


def test_process_shaping_gives_the_numbers_worked_by_hand() -> None:
    look = ("look", {"id": 1})
    twice = _calls(look, look, look, expected=["look"])
    assert _turn_reward(twice, 0) == pytest.approx(0.15)
    assert _turn_reward(twice, 1) == pytest.approx(0.15 - 0.1)  # right, well formed, redundant
    assert _turn_reward(twice, 2) == pytest.approx(
        0.15 - 0.5
    )  # closes the third repetition: loop, not also redundant


def test_a_cycle_of_two_is_a_loop_where_it_closes_the_third_time() -> None:
    a, b = ("look", {"id": 1}), ("look", {"id": 2})
    trajectory = _calls(a, b, a, b, a, b, a)
    loops = [JUDGES["loop"](trajectory, t, {}) for t in range(7)]
    assert [v.value for v in loops if isinstance(v, Scored)] == [0, 0, 0, 0, 0, 1, 1]


def test_a_state_change_makes_a_repeated_call_new() -> None:
    trajectory = _calls(("look", {"id": 1}), ("set", {"id": 1}), ("look", {"id": 1}))
    plain, changed = (
        JUDGES["redundant_step"](trajectory, 2, {}),
        JUDGES["redundant_step"](trajectory, 2, {"changing": ["set"]}),
    )
    assert isinstance(plain, Scored) and plain.value == 1
    assert isinstance(changed, Scored) and changed.value == 0


@pytest.mark.parametrize(
    ("arguments", "value"),
    [({"id": 1}, 1), ({"id": "1"}, 0), ({}, 0), ({"id": 1, "x": 2}, 0), ({"id": True}, 0), ({"id": 1.0}, 1)],
)
def test_arguments_are_held_against_the_schema(arguments: dict[str, Any], value: int) -> None:
    verdict = JUDGES["args_well_formed"](_calls(("look", arguments)), 0, {})
    assert isinstance(verdict, Scored) and verdict.value == value


def test_tool_order_needs_a_first_call_that_succeeded() -> None:
    args = {"first": "verify", "then": ["refund"]}
    good = _calls(("verify", {}), ("refund", {}))
    bad = _calls(("refund", {}), ("verify", {}))
    failed = good.model_copy(
        update={
            "messages": tuple(
                m.model_copy(update={"content": "Error: no match"}) if m.tool_call_id == "c0" else m
                for m in good.messages
            )
        }
    )
    values = [JUDGES["tool_order"](t, None, args) for t in (good, bad, failed, _calls(("look", {})))]
    assert [v.value for v in values if isinstance(v, Scored)] == [1, 0, 0, 1]


MISSING = [
    "tests_passed",
    "runs_ok",
    "tests_untouched",
    "rows_scanned",
    "retrieval_recall",
    "query_syntax_ok",
    "query_executes",
]


@pytest.mark.parametrize("name", MISSING)
def test_missing_evidence_is_no_number_and_a_crashed_runner_is_a_failure(name: str) -> None:
    args = {"free": 1, "max": 2} if name == "rows_scanned" else {}
    assert isinstance(JUDGES[name](_recorded({}), None, args), CannotAssess)
    crashed = JUDGES[name](_recorded({"runner_error": "killed"}), None, args)
    assert isinstance(crashed, Failed) and crashed.kind == "infrastructure"


@pytest.mark.parametrize(
    "metrics", [{"tests_passed": 1, "tests_total": 0}, {"tests_passed": 0, "tests_total": None}]
)
def test_no_test_run_is_not_zero(metrics: dict[str, Any]) -> None:
    assert isinstance(JUDGES["tests_passed"](_recorded(metrics), None, {}), CannotAssess)


@pytest.mark.parametrize(
    "metrics",
    [
        {"tests_passed": -1, "tests_total": 3},
        {"tests_passed": "3", "tests_total": 3},
        {"tests_passed": 4, "tests_total": 3},
        {"tests_passed": float("nan"), "tests_total": 3},
    ],
)
def test_a_broken_record_is_a_failure(metrics: dict[str, Any]) -> None:
    assert isinstance(JUDGES["tests_passed"](_recorded(metrics), None, {}), Failed)


def test_nothing_retrieved_is_zero_or_one_with_a_label() -> None:
    nothing = _recorded({"retrieved_ids": [], "relevant_ids": ["a"]})
    unneeded = _recorded({"retrieved_ids": [], "relevant_ids": []})
    got = [JUDGES["retrieval_precision"](t, None, {}) for t in (nothing, unneeded)]
    assert [(v.value, v.label) for v in got if isinstance(v, Scored)] == [
        (0, "nothing_retrieved"),
        (1, "nothing_relevant"),
    ]


@pytest.mark.parametrize(
    ("args", "answer", "reference", "value"),
    [
        ({"mode": "exact"}, "42 ", "42", 0),
        ({"mode": "normalised"}, "The  Cat.", "cat", 1),
        ({"mode": "normalised"}, "cat", ["dog", "a cat"], 1),
        ({"mode": "numeric", "tolerance": 0.01}, "about 3.14", "3.1416", 1),
        ({"mode": "numeric"}, "no idea", "3", 0),
        ({"mode": "f1"}, "red green blue", "green blue", 2 * 2 / 5),
        ({"mode": "normalised"}, "-5", "5", 0),
        ({"mode": "normalised"}, "It fell: -12%", "it fell -12%.", 1),
        ({"mode": "normalised"}, "-12%", "12%", 0),
        ({"mode": "normalised"}, "\u22125", "-5", 1),  # the typographic minus
        ({"mode": "normalised"}, "\u2212$12.50", "$12.50", 0),
        ({"mode": "normalised"}, "-$12", "$-12", 1),
        ({"mode": "normalised"}, ".5", "5", 0),
        ({"mode": "normalised"}, "(-.5)", "-.5", 1),
        ({"mode": "normalised"}, "10-20", "10-20", 1),
        ({"mode": "normalised"}, "It is ...5 - well-known", "it is 5 well known", 1),
        ({"mode": "normalised"}, "x-5", "x 5", 1),  # a hyphen after a word is no sign
        ({"mode": "numeric"}, "costs 5 to 10-20", "20", 1),
        ({"mode": "numeric"}, "\u22125", "-5", 1),
        ({"mode": "numeric"}, "-$1,200.50", "-1200.5", 1),
        ({"mode": "numeric"}, ".5", "0.5", 1),
        ({"mode": "numeric"}, "+5", "5", 1),
        ({}, "+5", "5", 1),
        ({"mode": "f1"}, "+5", "5", 1),
        ({"mode": "f1"}, "-5", "5", 0),
        ({"mode": "f1"}, "minus -5 %", "minus -5%", 1),
    ],
)
def test_answers_are_compared_as_asked(
    args: dict[str, Any], answer: str, reference: Any, value: float
) -> None:
    verdict = JUDGES["answer_match"](_recorded({"answer": answer}, reference), None, args)
    assert isinstance(verdict, Scored) and verdict.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("args", "rows", "value"),
    [
        ({}, [[2, "b"], [1, "a"]], 1),
        ({"ordered": True}, [[2, "b"], [1, "a"]], 0),
        ({}, [[1.0000000001, "a"], [2, "b"]], 1),
        ({}, [[1, "a"]], 0),
        ({}, [{"n": 1, "t": "a"}, {"n": 2, "t": "b"}], 1),
    ],
)
def test_result_tables_are_compared_as_asked(args: dict[str, Any], rows: Any, value: int) -> None:
    verdict = JUDGES["result_match"](
        _recorded({"result": rows}, {"result": [[1, "a"], [2, "b"]]}), None, args
    )
    assert isinstance(verdict, Scored) and verdict.value == value


@pytest.mark.parametrize(
    ("rows", "reference", "value"),
    [
        ([{"x": 1, "y": 2}], [{"y": 1, "x": 2}], 0),
        ([{"x": 1, "y": 2}], [{"y": 2, "x": 1}], 1),
        ([{"n": 1, "t": "a"}, {"t": "b", "n": 2}], [{"t": "b", "n": 2}, {"t": "a", "n": 1}], 1),
        (
            [{"COUNT(*)": 1}],
            [{"n": 1}],
            1,
        ),  # other names: by position, as a query may name a column otherwise
        ([{"x": 1}], [{"z": 2}], 0),
        ([{"x": 1, "y": 2}], [{"x": 1}], 0),
        ([{"y": 1, "x": 2}], [[1, 2]], 1),  # a row without names: by position
        ([], [], 1),
    ],
)
def test_named_columns_are_compared_by_name(rows: Any, reference: Any, value: int) -> None:
    for args in ({}, {"ordered": len(rows) < 2}):
        verdict = JUDGES["result_match"](_recorded({"result": rows}, {"result": reference}), None, args)
        assert isinstance(verdict, Scored) and verdict.value == value


def _said(text: str, before: str = "hi") -> Trajectory:
    return Trajectory(
        messages=(Message(role="user", content=before), Message(role="assistant", content=text))
    )


@pytest.mark.parametrize(
    ("name", "args", "text", "value"),
    [
        ("format_valid", {"form": "json"}, '```json\n{"a": 1}\n```', 1),
        ("format_valid", {"form": "json"}, "{a: 1}", 0),
        ("format_valid", {"form": "yaml"}, "a: 1\nb: [2]", 1),
        ("format_valid", {"form": "regex", "pattern": r"\d+"}, "12a", 0),
        ("format_valid", {"form": "headings", "headings": ["A", "B"]}, "# a\ntext\n## b", 1),
        ("format_valid", {"form": "headings", "headings": ["B", "A"]}, "# a\ntext\n## b", 0),
        ("format_valid", {"form": "list", "min_items": 2}, "1. x\n2. y", 1),
        ("length_band", {"min": 2, "max": 3}, "one two three four", 0),
        ("length_band", {"max": 4}, "你好 ok fine", 1),
        ("contains", {"strings": ["Order", "42"]}, "order 42", 1),
        ("contains", {"strings": ["Order"], "case_sensitive": True}, "order 42", 0),
        ("excludes", {"strings": ["sorry"]}, "I am Sorry", 0),
        ("pii_reveal", {}, "write to jane@corp.example", 0),
        ("pii_reveal", {}, "the total is 1234 5678 9012 3456", 1),
        ("pii_reveal", {}, "card 4111 1111 1111 1111", 0),
    ],
)
def test_text_judges(name: str, args: dict[str, Any], text: str, value: int) -> None:
    verdict = JUDGES[name](_said(text), 0, args)
    assert isinstance(verdict, Scored) and verdict.value == value


def test_what_the_user_said_is_not_revealed() -> None:
    verdict = JUDGES["pii_reveal"](_said("I write to jane@corp.example", "I am jane@corp.example"), 0, {})
    assert isinstance(verdict, Scored) and verdict.value == 1


def test_cited_ids_must_have_been_retrieved() -> None:
    trajectory = _recorded({"retrieved_ids": ["d1"]}).model_copy(
        update={
            "messages": (
                Message(role="user", content="q"),
                Message(role="assistant", content="so it is [d1] [d9]"),
            )
        }
    )
    verdict = JUDGES["cites_sources"](trajectory, None, {})
    assert isinstance(verdict, Scored) and (verdict.value, verdict.label) == (0, "unknown_id")
    assert isinstance(JUDGES["cites_sources"](_said("[d1]"), None, {}), CannotAssess)


def test_arguments_that_do_not_fit_are_named() -> None:
    with pytest.raises(ConfigError, match=r"args\.before"):
        JUDGES["tool_order"](_said("x"), None, {"first": "a", "then": ["b"], "before": "c"})


def test_a_constraint_is_judged_on_its_facets_and_an_llm_item_is_refused() -> None:
    active = Rubric.load("support_agent").bind({"domain": "orders"})
    trajectory = _said("word " * 181)
    concise = next(i for i in active.items if i.id == "th.concise")
    verdict = judge(concise, trajectory, 0)
    assert isinstance(verdict, Scored) and verdict.value == 0 and "len_words=181" in verdict.critique
    with pytest.raises(ConfigError, match="needs a model"):
        judge(next(i for i in active.items if i.id == "th.resolved"), trajectory)
    with pytest.raises(ConfigError, match="evidence level is turn"):
        judge(concise, trajectory)
