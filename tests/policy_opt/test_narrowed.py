"""Turn rewards without some criteria."""

import math
from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.errors import DataError
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode, TurnScores, apply_scores
from axiomrm.policy_opt.rewards.narrowed import Narrowed, narrow, narrowed

NAN = math.nan
ANSWER = TurnScores(
    turns=[0.75, NAN, 0.25, 0.5],
    reasons=[None, "failed:timeout", None, None],
    judge_revision="judge-1",
    rubric_hash="abc",
    parts=[{"step": 0.5, "filler": 0.25}, {"step": NAN, "filler": 0.25}, {"step": 0.25, "filler": NAN}, {}],
)


def blank(turns: int) -> TrajectoryRecord:
    logps = np.zeros(1, dtype=np.float32)
    steps = [StepRecord("t", t, 0, t, t + 1, 0, logps) for t in range(turns)]
    return TrajectoryRecord("t", "task", "g", [np.arange(turns, dtype=np.int32)], steps, 0)


def test_a_turn_keeps_what_the_others_gave_and_a_missing_one_stays_missing() -> None:
    found = narrowed(ANSWER, {"filler"})
    # The third turn has nothing from filler and the fourth tells no parts: both are as they were.
    assert found.turns == pytest.approx([0.5, NAN, 0.25, 0.5], nan_ok=True)
    assert repr(found.parts) == repr([{"step": 0.5}, {"step": NAN}, {"step": 0.25}, {}])
    assert found.reasons == ANSWER.reasons and found.judge_revision == "judge-1 without filler"
    assert narrowed(found, {"filler", "step"}).judge_revision == "judge-1 without filler, step"


def test_records_are_narrowed_as_answers_are_and_the_environments_own_rewards_stay() -> None:
    one, two = blank(4), blank(4)
    one.steps[3].r_local, two.steps[3].r_local = 0.9, 0.9
    text = Trajectory(messages=(Message(role="assistant", content="hi"),))
    apply_scores([Episode(one, text)], [ANSWER])
    narrow(one, {"filler"})
    apply_scores([Episode(two, text)], [narrowed(ANSWER, {"filler"})])
    assert repr(one) == repr(two)
    assert one.steps[3].r_local == 0.9 and one.steps[3].judge_revision == ""


def test_a_source_is_narrowed_by_what_is_left_out_at_the_time() -> None:
    left_out: set[str] = set()
    source = Narrowed(lambda trajectories: [ANSWER for _ in trajectories], left_out)
    read = [Trajectory(id="a", messages=(Message(role="assistant", content="hi"),))]
    assert source(read)[0] is ANSWER
    left_out.add("filler")
    assert source(read)[0].turns[0] == 0.5
    nothing: Any = lambda trajectories: ["no answer"]  # noqa: E731
    broken = Narrowed(nothing, left_out)
    with pytest.raises(DataError, match="trajectory 'a'"):
        broken(read)
