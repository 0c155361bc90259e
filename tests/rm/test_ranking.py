"""``compare`` and ``rank`` put two candidates in the same order."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.rm import Judgement, RewardModel
from axiomrm.rm.ranking import ahead, ranked
from axiomrm.rubrics import Rubric


def judged(reward: float | None, key: tuple[bool, float, float] | None, id: str = "") -> Judgement:
    return Judgement(id=id, reward=reward, interval=(0, 1), coverage=1, gate=None, rank_key=key)


def order(*judgements: Judgement, tie_band: float = 0.05) -> list[tuple[str, int | None]]:
    return [(r.judgement.id, r.place) for r in ranked(judgements, tie_band)]


def test_a_capped_good_answer_stands_before_an_uncapped_useless_one() -> None:
    idle = judged(0.2, (True, 1.0, 0.2), "idle")
    solved = judged(0.9, (True, 0.9, 1.0), "solved")  # a soft axiom caps it
    assert ahead(idle, solved, 0.05) == "b"
    assert order(idle, solved) == [("solved", 1), ("idle", 2)]


def test_a_hard_violation_loses_and_gate_and_base_break_ties_only() -> None:
    broken = judged(0.9, (False, 0.0, 0.9), "broken")
    plain, capped = judged(0.5, (True, 1.0, 0.5), "plain"), judged(0.5, (True, 0.5, 0.9), "capped")
    better = judged(0.5, (True, 0.5, 1.0), "better")
    places = order(broken, capped, plain, better)
    assert places == [("plain", 1), ("better", 1), ("capped", 1), ("broken", 4)]
    assert order(judged(None, (True, 1, 1), "none"), plain) == [("plain", 1), ("none", None)]


shares = st.sampled_from([0.0, 0.2, 0.25, 0.5, 0.9, 1.0])
JUDGEMENTS = st.lists(st.builds(judged, shares, st.tuples(st.booleans(), shares, shares)), max_size=6)


@given(JUDGEMENTS)
def test_no_neighbours_in_a_ranking_are_compared_the_other_way(judgements: list[Judgement]) -> None:
    for first, second in pairwise(ranked(judgements, 0.05)):
        assert ahead(first.judgement, second.judgement, 0.05) in ("a", "tie")


CAPPED = """
schema: atr/1
rubric: {id: capped, version: 1.0.0}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
  - id: ax.clean
    statement: No filler.
    type: soft
    cap: 0.9
    on_cannot_assess: skip
    detector: {kind: programmatic, fn: excludes, args: {strings: [sorry]}}
theorems:
  - id: th.done
    derived_from: [ax.help]
    derivation: purpose
    statement: The refund is named.
    weight: 4
    judge: {kind: programmatic, fn: contains, args: {strings: [refunded]}}
  - id: th.polite
    derived_from: [ax.help]
    derivation: purpose
    statement: Greets.
    judge: {kind: programmatic, fn: contains, args: {strings: [Hello]}}
"""


def test_compare_and_rank_name_the_same_winner() -> None:
    def answer(id: str, text: str) -> Trajectory:
        said = (Message(role="user", content="refund?"), Message(role="assistant", content=text))
        return Trajectory(id=id, messages=said)

    judge, rubric = RewardModel.programmatic(), Rubric.loads(CAPPED, "capped.yaml")
    idle = answer("idle", "Hello. I cannot help.")  # 1/5
    solved = answer("solved", "Hello, sorry. Your order was refunded.")  # min(.9, 5/5)
    assert judge.compare(idle, solved, rubric).winner == "b"
    found = judge.rank([idle, solved], rubric)
    assert [(r.judgement.id, r.judgement.reward) for r in found] == [("solved", 0.9), ("idle", 0.2)]
