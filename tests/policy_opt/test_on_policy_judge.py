"""A judge's numbers on a policy's turns, worked by hand."""

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Outcome, ToolCall, Trajectory

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
study: Any = importlib.import_module("on_policy_judge")


def rollout(name: str, outcome: float, right: list[bool | None]) -> Trajectory:
    """A call, a question and a closing text."""
    said = (
        Message(role="assistant", tool_calls=(ToolCall(name="find", arguments={}),)),
        Message(role="assistant", content="Which one?"),
        Message(role="assistant", content="It is done."),
    )
    labels = [{} if value is None else {"sd.step": {"value": value}} for value in right]
    told = {"labels": labels, "assessments": ["ok" if value else "wrong" for value in right]}
    return Trajectory(messages=said, id=name, group_id=name[0], outcome=Outcome(score=outcome), metadata=told)


ROLLOUTS = [
    rollout("a#0", 1.0, [True, True, True]),
    rollout("a#1", 0.0, [False, None, False]),
    rollout("b#0", 0.0, [True, None, None]),
    rollout("b#1", 0.0, [False, None, None]),
]
SCORES = [np.array(row) for row in ([0.9, 0.4, 0.8], [0.6, 0.7, 0.9], [0.3, 0.5, 0.5], [0.1, 0.5, 0.5])]


def test_agreement_and_ranking_of_outcomes() -> None:
    found = study.Scored(SCORES, ROLLOUTS)
    every = found.statistics(np.ones(2))
    # right: .9 .4 .8 .3, two of four at .5 or more; wrong: .6 .9 .1, one of three below
    assert every["balanced_accuracy"] == pytest.approx((2 / 4 + 1 / 3) / 2)
    # pairs won against .6: .9 .8; against .9: one tie; against .1: all four
    assert every["auc"] == pytest.approx((2 + 0.5 + 4) / 12)
    assert every["auc_closing"] == 0.0 and np.isnan(every["auc_question"])
    # means .70 (outcome 1) and .73 (outcome 0); the outcomes of b do not differ
    assert every["discrimination"] == pytest.approx(-1.0)
    only_b = found.statistics(np.array([0.0, 2.0]))
    assert np.isnan(only_b["discrimination"]) and only_b["auc"] == 1.0
    assert found.by_kind()["wrong"] == {"n": 3, "agrees": pytest.approx(0.3333)}


def test_the_oracles_word_on_closings_alone() -> None:
    oracle = [np.array(row) for row in ([1, 1, 1], [0, np.nan, 0], [1, 1, 1], [0, 1, 1])]
    mended = study.repaired(SCORES, oracle, ROLLOUTS, "closing")
    assert [row.tolist() for row in mended[:2]] == [[0.9, 0.4, 1.0], [0.6, 0.7, 0.0]]
    assert study.Scored(mended, ROLLOUTS).statistics(np.ones(2))["discrimination"] == pytest.approx(1.0)
