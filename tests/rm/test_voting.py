"""Axioms with several readings: the majority decides, and what is missing does not vote."""

import math
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.errors import ConfigError
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.asking import Asking, verdict_of
from axiomrm.rm.calibration import Calibration, Entry, scale_of
from axiomrm.rm.labels import BINARY, Label, label_set
from axiomrm.rm.readout import Reading
from axiomrm.rm.sampling import sample
from axiomrm.rm.voting import majority, settled
from axiomrm.rubrics import Rubric

TALK = Trajectory(
    id="t", messages=(Message(role="user", content="hi"), Message(role="assistant", content="hello there"))
)
SEVERE = label_set(
    [Label("Y", 1.0), Label("1", 0.0, "", "minor"), Label("2", 0.0, "", "major")]
)  # as rm.criteria makes them of an axiom with two severities


def said(**p: float) -> Reading:
    return Reading({k.removeprefix("_"): math.log(v) for k, v in p.items() if v > 0}, critique="so")


def voted(*readings: Reading | Failed, labels: Any = BINARY, **how: Any) -> Verdict:
    request = VerdictRequest(TALK, Criterion("ax", "Is it safe?", labels), majority=True)
    return verdict_of(readings, request, Asking(mode="critique", **how))


TWO_AGAINST = (said(Y=0.3, N=0.7, X=0), said(Y=0.35, N=0.65, X=0), said(Y=0.97, N=0.03, X=0))


def test_two_of_three_votes_decide_whatever_the_third_is_sure_of() -> None:
    found = voted(*TWO_AGAINST)  # the mean over all is .54
    assert isinstance(found, Scored)
    assert found.value == pytest.approx((0.3 + 0.35) / 2)
    assert (found.label, found.n) == ("N", 3)
    assert found.distribution == pytest.approx({"Y": 0.325, "N": 0.675})
    # (-.24, -.19, .43) from the mean of all: sqrt((.0576 + .0361 + .1849) / 2)
    assert found.spread == pytest.approx(math.sqrt(0.1393))
    assert found.critique == "so\n\nso\n\nso"
    kind = voted(*TWO_AGAINST, readout="argmax")
    assert isinstance(kind, Scored) and (kind.value, kind.label) == (0.0, "N")


def test_the_same_readings_of_a_criterion_are_averaged_over() -> None:
    request = VerdictRequest(TALK, Criterion("c", "Is it so?"))
    found = verdict_of(TWO_AGAINST, request, Asking(mode="critique"))
    assert isinstance(found, Scored) and found.value == pytest.approx((0.3 + 0.35 + 0.97) / 3)


def test_what_failed_does_not_vote_and_a_tie_is_missing() -> None:
    yes, no, lost = said(Y=0.9, N=0.1, X=0), said(Y=0.1, N=0.9, X=0), Failed(kind="truncated")
    low = said(Y=0.05, N=0.0, X=0.0)
    found = voted(no, no, yes, lost, low)
    assert isinstance(found, Scored) and found.n == 3
    assert found.value == pytest.approx(0.1)
    assert found.flags == ("failed_readings", "low_mass_readings")
    for tie in (voted(yes, no, lost), voted(yes, yes, no, no, low)):
        assert isinstance(tie, Failed) and tie.kind == "no_verdict" and "no majority" in tie.detail
    nothing = voted(lost, low, lost)
    assert isinstance(nothing, Failed) and nothing.kind == "truncated"


def test_x_is_no_vote_until_half_of_the_readings_say_it() -> None:
    yes, no, x = said(Y=0.9, N=0.1, X=0), said(Y=0.1, N=0.9, X=0), said(Y=0.1, N=0.1, X=0.8)
    tells = voted(no, no, yes, x, x)  # two against one; a mean of p_na .32
    assert isinstance(tells, Scored) and (tells.label, tells.n) == ("N", 5)
    assert tells.p_na == pytest.approx(1.6 / 5)
    half = voted(yes, x)
    assert isinstance(half, CannotAssess) and half.p_na == pytest.approx(0.4)
    untrained = voted(no, x, x, untrained=True)  # X decides nothing there: .1, .5, .5
    assert isinstance(untrained, Scored) and untrained.label == "Y"


def test_the_severity_is_the_likeliest_of_the_votes_against() -> None:
    sure = said(Y=0.98, _1=0.01, _2=0.01, X=0)
    graver = said(Y=0.4, _1=0.2, _2=0.4, X=0)  # Y is among its likeliest labels, and yet it is below one half
    found = voted(graver, sure, said(Y=0.3, _1=0.4, _2=0.3, X=0), labels=SEVERE)
    # against: minor .2 + .4, major .4 + .3
    assert isinstance(found, Scored) and found.label == "major"
    assert found.value == pytest.approx(0.35)


def test_votes_are_calibrated_before_they_are_counted() -> None:
    # isotonic: .7 → .5, so .6 is a violation and .9 compliance; pooled first, the mean .7 would comply
    knots = ((0.0, 0.0), (0.7, 0.5), (1.0, 1.0))
    entry = Entry(
        scale=scale_of(BINARY),
        mode="critique",
        readout="expected",
        judge_revision="r",
        labels=500,
        temperature=1.0,
        isotonic=knots,
        residual=0.1,
    )
    calibration = Calibration(entries=(entry,), data_hash="d")
    request = VerdictRequest(TALK, Criterion("ax", "Is it safe?"), majority=True)
    readings = [said(Y=y, N=1 - y, X=0) for y in (0.6, 0.6, 0.9)]
    how = Asking(mode="critique")
    found = verdict_of(readings, request, how, lambda v: calibration.apply(v, BINARY))
    assert isinstance(found, Scored) and found.label == "N"
    assert found.value == pytest.approx(0.6 / 0.7 / 2)
    assert found.flags == ("calibrated",) and found.interval is None


VOTES: dict[str, Verdict] = {
    "Y": Scored(value=0.9, label="Y", distribution={"Y": 0.9, "N": 0.1}),
    "N": Scored(value=0.2, label="N", distribution={"Y": 0.2, "N": 0.8}),
    "X": CannotAssess(reason="no", p_na=0.9),
    "-": Failed(kind="timeout"),
}


def meaning(votes: str) -> str:
    found = majority([VOTES[v] for v in votes], BINARY)
    return found.label if isinstance(found, Scored) else found.status


@given(st.text("YNX-", min_size=1, max_size=4), st.integers(1, 3))
def test_settled_means_that_no_further_votes_change_the_outcome(votes: str, left: int) -> None:
    outcomes = {meaning(votes + "".join(more)) for more in product("YNX-", repeat=left)}
    assert settled([VOTES[v] for v in votes], left, BINARY) == (len(outcomes) == 1 and outcomes != {"failed"})


def test_a_severity_that_could_still_change_is_not_settled() -> None:
    minor = Scored(value=0.2, label="minor", distribution={"Y": 0.2, "minor": 0.5, "major": 0.3})
    assert not settled([minor] * 3, 2, SEVERE)  # .6 apart, and the next two may be major
    clear = Scored(value=0.0, label="minor", distribution={"Y": 0.0, "minor": 1.0, "major": 0.0})
    assert settled([clear] * 3, 2, SEVERE)


def test_votes_stop_early_by_count_and_not_by_the_mean() -> None:
    taken = [said(Y=y, N=1 - y, X=0) for y in (0.49, 0.45, 0.48, 0.9, 0.9)]
    request = VerdictRequest(TALK, Criterion("ax", "Is it safe?"), majority=True)
    how = Asking(mode="critique")

    def draw(counts: dict[int, int], number: int) -> dict[int, list[Reading | Failed]]:
        return {0: [taken.pop(0) for _ in range(counts[0])]}

    def known(found: list[Reading | Failed], left: int) -> bool:
        alone = [verdict_of([reading], request, how) for reading in found]
        return settled(alone, left, BINARY)

    (found,) = sample(draw, [5], [BINARY], how.rule, stop="decided", voting={0: known})
    assert len(found) == 3  # three of five; the lead of their sum, .16, would not have stopped it


HARD = """
schema: atr/1
rubric: {id: hard, version: 1.0.0}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
  - {id: ax.safe, statement: No secret is told., type: hard, detector: {kind: llm, votes: 3}}
theorems:
  - id: th.done
    derived_from: [ax.help]
    derivation: purpose
    statement: The agent says hello.
    judge: {kind: programmatic, fn: contains, args: {strings: [hello]}}
"""


@pytest.mark.parametrize("options", [{}, {"readout": "sampled"}, {"stop": "decided"}, {"n_samples": 3}])
def test_a_hard_axiom_falls_with_two_of_three_votes_of_a_judge(
    http: Any, server: Any, options: dict[str, Any]
) -> None:
    good = http.verdict("Y", Y=0.9, N=0.08, X=0.01)
    answers = [
        http.verdict("N", Y=0.3, N=0.69, X=0.005),
        http.verdict("N", Y=0.35, N=0.64, X=0.005),
        http.verdict("Y", Y=0.97, N=0.02, X=0.005),
    ]
    left: list[Any] = []
    server.answers = [lambda body: (left.pop(0) if left else good)(body)]
    judge = RewardModel.connect(
        server.url, model="m", mode="critique", min_mass=0.5, concurrency=1, **options
    )
    left += answers
    judgement = judge.score(TALK, Rubric.loads(HARD, "hard.yaml"))
    assert judgement.violated_axioms == ("ax.safe",)
    assert (judgement.gate, judgement.reward) == (0.0, 0.0)


@pytest.mark.parametrize("votes", [2.5, 0, True, "3"])
def test_votes_that_are_no_whole_number_are_refused(votes: Any) -> None:
    with pytest.raises(ConfigError, match="votes"):
        VerdictRequest(TALK, Criterion("c", "Is it so?"), votes=votes)
