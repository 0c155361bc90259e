"""Two answers side by side: the judge sees both, in both orders, and says A, B or T.

Both recordings are shown as one: what they share, then the rest of the one and the rest of the other; the
question names their turns, whose numbers graded text cannot forge. ``p_a`` is the mean over orders of A = 1,
T = 0.5, B = 0. Both orders must agree on a winner: order alone moves verdicts by many points (2606.19544).

A pairwise verdict knows only what the judge is asked: programmatic items, axioms' gates and weights belong to
pointwise judgements.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.errors import DataError
from axiomrm.rm.asking import Asking, VerdictRequest
from axiomrm.rm.engines.base import Engine, Sampling
from axiomrm.rm.foreign_judges import in_both_orders
from axiomrm.rm.judgement import Outcome, PairVerdict, TournamentPlace
from axiomrm.rm.labels import pair_labels
from axiomrm.rm.prompt import Criterion, JudgePrompter
from axiomrm.rubrics import ActiveRubric

LABELS = pair_labels()
MOST_IN_TOURNAMENT = 8
"""Candidates: n of them cost n (n - 1) readings."""
Ask = Callable[[Sequence[VerdictRequest]], list[Verdict]]
Compare = Callable[[Sequence["PairRequest"]], list[PairVerdict]]
_SIDES: dict[str, Outcome] = {"A": "a", "B": "b", "T": "tie"}
_MIRRORED: dict[Outcome, Outcome] = {"a": "b", "b": "a", "tie": "tie"}


class PairRequest(NamedTuple):
    """One comparison."""

    a: Trajectory
    b: Trajectory
    ask: str
    """What to compare by."""
    guidelines: str = ""


def rubric_question(active: ActiveRubric) -> str:
    """The comparison that a bound rubric asks for: its applicable statements, heaviest first."""
    items = sorted((i for i in active.items if i.judge.kind == "llm"), key=lambda i: -i.weight)
    rules = [axiom.statement for axiom in active.axioms if axiom.judge.kind == "llm"]
    wanted = [i.statement if i.polarity == "reward" else f"(a fault) {i.statement}" for i in items]
    if not rules and not wanted:
        raise DataError("a pairwise comparison needs criteria for a judge model, and none applies here")
    return "\n".join(["Which answer meets these better?", *(f"- {text}" for text in (*rules, *wanted))])


def compare_pairs(requests: Sequence[PairRequest], ask: Ask) -> list[PairVerdict]:
    """One verdict a comparison, in order; all readings go to ``ask`` together.

    Args:
        requests: each is asked twice, with either side first.
        ask: answers verdict requests, e.g. ``RewardModel.verdicts``.

    Raises:
        DataError: a side without any agent message.
    """
    both = [oriented(r, first) for r in requests for first in ("a", "b")]
    found = ask(both)
    return [_verdict(found[2 * i], found[2 * i + 1]) for i in range(len(requests))]


def foreign_pairs(
    requests: Sequence[PairRequest], engine: Engine, prompter: JudgePrompter, how: Asking
) -> list[PairVerdict]:
    """The same by a judge of another school, whose adapter shows the two answers apart.

    Args:
        requests: as for ``compare_pairs``.
        engine: the judge.
        prompter: lays out its prompts.
        how: names the adapter; with its budget, temperature and seed.
    """
    pairs = [(_apart(r), r.b) for r in requests]
    sampling = Sampling(how.max_notes_tokens, how.temperature, how.seed)
    found = in_both_orders(engine, prompter, pairs, sampling, how.adapter)
    return [_verdict(a_first, b_first) for a_first, b_first in found]


def _apart(request: PairRequest) -> VerdictRequest:
    """About the first answer: everything after what the two recordings share."""
    shared = _shared(request.a.messages, request.b.messages)
    turn = sum(m.is_action for m in shared)
    asked = Criterion("pair", request.ask, LABELS)
    return VerdictRequest(request.a, asked, turn, request.guidelines, view="hindsight")


def oriented(request: PairRequest, first: str) -> VerdictRequest:
    """The question with one side shown first."""
    one, two = (request.a, request.b) if first == "a" else (request.b, request.a)
    shared = _shared(one.messages, two.messages)
    names = []
    at = sum(m.is_action for m in shared)
    for letter, messages in (("A", one.messages), ("B", two.messages)):
        turns = sum(m.is_action for m in messages[len(shared) :])
        if not turns:
            raise DataError(f"pair {request.a.id!r}, {request.b.id!r}: answer {letter} has no agent message")
        names.append(_turns(letter, at, at + turns))
        at += turns
    text = f"{names[0]} {names[1]} Each continues the same conversation; B does not follow A.\n{request.ask}"
    messages = (*one.messages, *two.messages[len(shared) :])
    shown = one.model_copy(update={"messages": messages, "turn_rewards": None})
    return VerdictRequest(shown, Criterion("pair", text, LABELS), None, request.guidelines)


def tournament(
    candidates: Sequence[Trajectory], question: str, guidelines: str, compare: Compare
) -> list[TournamentPlace]:
    """Every candidate against every other in both orders; the best first.

    Args:
        candidates: 2 to ``MOST_IN_TOURNAMENT``, of one task.
        question: what to compare by.
        guidelines: the rubric's text for all criteria.
        compare: one verdict a comparison, in order.

    Returns:
        Places by mean points over the comparisons that have an outcome; those with none stand last.

    Raises:
        DataError: too many candidates, or one without any turn.
    """
    if len(candidates) > MOST_IN_TOURNAMENT:
        raise DataError(
            f"{len(candidates)} candidates: a pairwise tournament takes at most {MOST_IN_TOURNAMENT}; "
            "rank them pointwise, or the best of them"
        )
    games = list(combinations(range(len(candidates)), 2))
    asked = [PairRequest(candidates[i], candidates[j], question, guidelines) for i, j in games]
    points: list[list[float]] = [[] for _ in candidates]
    for (i, j), verdict in zip(games, compare(asked), strict=True):
        if verdict.winner is not None:
            won = {"a": 1.0, "b": 0.0, "tie": 0.5}[verdict.winner]
            points[i].append(won)
            points[j].append(1 - won)
    means = [sum(p) / len(p) if p else None for p in points]
    return _placed(means, [len(p) for p in points])


def _placed(means: Sequence[float | None], compared: Sequence[int]) -> list[TournamentPlace]:
    known = [m for m in means if m is not None]
    order = sorted(range(len(means)), key=lambda i: (means[i] is None, -(means[i] or 0.0), i))
    return [
        TournamentPlace(
            index=i,
            place=None if (mean := means[i]) is None else 1 + sum(other > mean for other in known),
            points=mean,
            compared=compared[i],
        )
        for i in order
    ]


def _verdict(a_first: Verdict, b_first: Verdict) -> PairVerdict:
    orders = (a_first, b_first)
    for verdict in orders:
        if not isinstance(verdict, Scored) or verdict.label not in _SIDES:
            return PairVerdict(winner=None, orders=orders, reason=_why_missing(verdict))
    assert isinstance(a_first, Scored) and isinstance(b_first, Scored)
    one, two = _SIDES[a_first.label], _MIRRORED[_SIDES[b_first.label]]
    return PairVerdict(
        winner=one if one == two else "tie",
        p_a=(a_first.value + 1 - b_first.value) / 2,
        consistent=one == two,
        orders=orders,
    )


def _why_missing(verdict: Verdict) -> str:
    if isinstance(verdict, Failed):
        return verdict.detail
    return verdict.reason if isinstance(verdict, CannotAssess) else f"label {verdict.label!r} names no side"


def _shared(a: Sequence[Message], b: Sequence[Message]) -> list[Message]:
    """The messages that both begin with; each keeps a turn of its own, with the results of its calls."""
    n = 0
    while n < min(len(a), len(b)) and a[n] == b[n]:
        n += 1
    while n and not all(_stands_alone(messages[n:]) for messages in (a, b)):
        n -= 1
    return list(a[:n])


def _stands_alone(rest: Sequence[Message]) -> bool:
    return any(m.is_action for m in rest) and rest[0].role != "tool"


def _turns(letter: str, start: int, stop: int) -> str:
    if stop - start == 1:
        return f"Answer {letter} is turn t{start + 1}."
    return f"Answer {letter} is turns t{start + 1} to t{stop}."
