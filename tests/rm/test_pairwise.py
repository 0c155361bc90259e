import random
from collections.abc import Sequence
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.errors import DataError
from axiomrm.rm import RewardModel, VerdictRequest
from axiomrm.rm.pairwise import (
    LABELS,
    Ask,
    Compare,
    PairRequest,
    compare_pairs,
    oriented,
    rubric_question,
    tournament,
)
from axiomrm.rubrics import Rubric

RUBRIC = """
schema: atr/1
rubric: {id: two, version: 1.0.0}
defaults: {weight: 1, judge: {kind: llm}}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
  - {id: ax.calm, statement: Stays calm., type: soft, cap: 0.5, detector: {kind: llm}}
theorems:
  - {id: th.done, derived_from: [ax.help], derivation: purpose, statement: The request is settled., weight: 2}
  - {id: th.rude, derived_from: [ax.help], derivation: manners, statement: Is rude., polarity: penalty, weight: 3}
"""
ASK = Message(role="user", content="May I have a refund?")


def said(*texts: str, name: str = "t") -> Trajectory:
    """The same request, then agent and user by turns."""
    roles: tuple[Any, Any] = ("assistant", "user")
    return Trajectory(
        messages=(ASK, *(Message(role=roles[i % 2], content=t) for i, t in enumerate(texts))), id=name
    )


def scored(label: str, p: float = 0.8) -> Scored:
    rest = (1 - p) / 2
    q = {token: p if token == label else rest for token in LABELS.values}
    return Scored(value=sum(q[t] * v for t, v in LABELS.values.items()), label=label, distribution=q)


def replies(*verdicts: Verdict) -> Any:
    return lambda asked: list(verdicts)


PAIR = PairRequest(said("Yes."), said("No."), "Which is better?")


def test_both_orders_agree_on_a_winner_or_it_is_a_tie() -> None:
    # a first: A (value .8 + .1/2 = .85); b first: B (value .15), which is a again
    (agreed,) = compare_pairs([PAIR], replies(scored("A"), scored("B")))
    assert (agreed.winner, agreed.consistent) == ("a", True)
    assert agreed.p_a == pytest.approx(0.85)
    (conflict,) = compare_pairs([PAIR], replies(scored("A"), scored("A")))
    assert (conflict.winner, conflict.consistent) == ("tie", False)
    assert conflict.p_a == pytest.approx(0.5)
    (half,) = compare_pairs([PAIR], replies(scored("A"), scored("T")))
    assert (half.winner, half.consistent) == ("tie", False)
    (tie,) = compare_pairs([PAIR], replies(scored("T"), scored("T")))
    assert (tie.winner, tie.consistent) == ("tie", True)
    assert tie.p_a == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("missing", "reason"),
    [(Failed(kind="timeout", detail="late"), "late"), (CannotAssess(reason="no order"), "no order")],
)
def test_one_missing_order_leaves_no_winner(missing: Verdict, reason: str) -> None:
    for both in ((missing, scored("A")), (scored("A"), missing)):
        (found,) = compare_pairs([PAIR], replies(*both))
        assert (found.winner, found.p_a, found.consistent, found.reason) == (None, None, None, reason)


def test_the_judge_sees_what_both_share_once_and_then_each_answer() -> None:
    a, b = said("Wait.", "ok", "Done."), said("Wait.", "ok", "No.", "why?", "Rules.")
    first, second = oriented(PairRequest(a, b, "Which?"), "a"), oriented(PairRequest(a, b, "Which?"), "b")
    assert [m.content for m in first.trajectory.messages[1:]] == [
        "Wait.",
        "ok",
        "Done.",
        "No.",
        "why?",
        "Rules.",
    ]
    assert first.criterion.ask.startswith("Answer A is turn t2. Answer B is turns t3 to t4.")
    assert second.criterion.ask.startswith("Answer A is turns t2 to t3. Answer B is turn t4.")
    assert first.turn is None and first.criterion.labels.tokens == ("A", "B", "T", "X")


def test_equal_recordings_and_prefixes_still_have_an_answer_each() -> None:
    a, longer = said("Yes."), said("Yes.", "and?", "Done.")
    same = oriented(PairRequest(a, a, "Which?"), "a")
    assert [m.content for m in same.trajectory.messages[1:]] == ["Yes.", "Yes."]
    assert (
        "A is turn t1. Answer B is turns t2 to t3."
        in oriented(PairRequest(a, longer, "?"), "a").criterion.ask
    )
    with pytest.raises(DataError, match="no agent message"):
        oriented(PairRequest(a, Trajectory(messages=(ASK,)), "?"), "a")


def test_a_result_is_never_torn_from_its_call() -> None:
    from axiomrm.data.trajectory import ToolCall

    call = Message(role="assistant", content="", tool_calls=(ToolCall(id="c1", name="look"),))

    def talk(result: str) -> Trajectory:
        tool = Message(role="tool", content=result, tool_call_id="c1")
        return Trajectory(messages=(ASK, call, tool, Message(role="assistant", content=result)))

    found = oriented(PairRequest(talk("7"), talk("8"), "Which?"), "a")
    assert [m.role for m in found.trajectory.messages] == ["user", *["assistant", "tool", "assistant"] * 2]


def test_the_question_names_rules_then_statements_by_weight_and_faults_as_faults() -> None:
    rubric = Rubric.loads(RUBRIC, "two.yaml")
    assert rubric_question(rubric.bind({})).splitlines()[1:] == [
        "- Stays calm.",
        "- (a fault) Is rude.",
        "- The request is settled.",
    ]


def longer_wins(asked: Sequence[VerdictRequest]) -> list[Verdict]:
    """A fair judge in both orders: the longer answer is better."""

    def one(request: VerdictRequest) -> Verdict:
        first, second = (len(m.content) for m in request.trajectory.messages[-2:])
        return scored("A" if first > second else "B" if second > first else "T")

    return [one(r) for r in asked]


def asking(ask: Ask) -> Compare:
    return lambda requests: compare_pairs(requests, ask)


def test_a_tournament_places_by_points_and_equal_points_share_a_place() -> None:
    found = tournament([said("ab"), said("abcd"), said("xy"), said("abc")], "?", "", asking(longer_wins))
    assert [(p.index, p.place, p.points, p.compared) for p in found] == [
        (1, 1, 1.0, 3),
        (3, 2, pytest.approx(2 / 3), 3),
        (0, 3, pytest.approx(0.5 / 3), 3),
        (2, 3, pytest.approx(0.5 / 3), 3),
    ]


def test_a_judge_that_always_prefers_the_first_ranks_nobody_first() -> None:
    found = tournament(
        [said("a"), said("b"), said("c")], "?", "", asking(lambda asked: [scored("A") for _ in asked])
    )
    assert [p.place for p in found] == [1, 1, 1]


def test_a_missing_comparison_counts_for_neither_and_one_without_any_has_no_place() -> None:
    def fails_on_b(asked: Sequence[VerdictRequest]) -> list[Verdict]:
        bad = Failed(kind="timeout")
        found = zip(asked, longer_wins(asked), strict=True)
        return [bad if any(m.content == "bbb" for m in r.trajectory.messages) else v for r, v in found]

    found = tournament([said("a"), said("bbb"), said("cc")], "?", "", asking(fails_on_b))
    assert [(p.index, p.place, p.points, p.compared) for p in found] == [
        (2, 1, 1.0, 1),
        (0, 2, 0.0, 1),
        (1, None, None, 0),
    ]
    with pytest.raises(DataError, match="at most 8"):
        tournament([said("a")] * 9, "?", "", asking(longer_wins))


@pytest.fixture(scope="module")
def judge(tiny_llama: Any, tiny_tokenizer: Any) -> RewardModel:
    return RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.0, untrained=True)


def test_swapping_a_and_b_mirrors_a_real_judge_and_leaves_the_global_generator_alone(
    judge: RewardModel,
) -> None:
    rubric = Rubric.loads(RUBRIC, "two.yaml")
    a, b = said("Sure, it is on its way."), said("I will not do that for you.")
    state = random.getstate()
    one, two = (judge.compare(*pair, rubric, mode="pairwise") for pair in ((a, b), (b, a)))
    ranks = [judge.rank([a, b, a], rubric, mode="pairwise") for _ in range(2)]
    assert random.getstate() == state and ranks[0] == ranks[1]
    assert one.p_a is not None and two.p_a is not None
    assert one.p_a == pytest.approx(1 - two.p_a, abs=1e-5)
    assert (one.winner, two.winner) in {("a", "b"), ("b", "a"), ("tie", "tie")}
    assert one.consistent == two.consistent
    places = {p.index: p.place for p in ranks[0]}
    assert places[0] == places[2]
    missing = RewardModel.programmatic().compare(a, b, rubric, mode="pairwise")
    assert (missing.winner, missing.reason) == (None, "this reward model has no judge model")
