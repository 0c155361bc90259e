"""A caller in Python that hands the judge the wrong thing is told what it was and what is wanted."""

from collections.abc import Callable
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.errors import ConfigError
from axiomrm.rm import RewardModel
from axiomrm.rubrics import Rubric

JUDGE = RewardModel.programmatic()
SHAPING = Rubric.load("process_shaping")
TALK = Trajectory(
    id="a", messages=(Message(role="user", content="q"), Message(role="assistant", content="a"))
)
NO_RUBRIC = r"found 'process_shaping' \(str\), expected a Rubric; Rubric.load\('process_shaping'\) loads one"
NO_TALK = r"found 'hello' \(str\), expected a Trajectory; "
CALLS: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "score": (JUDGE.score, "score: trajectory: ", "score: "),
    "score_many": (lambda t, r: list(JUDGE.score_many([t], r)), r"score_many: trajectories\[0\]: ", "score_many: "),
    "stream": (lambda t, r: list(JUDGE.score_many(iter([t]), r)), "score_many: trajectories: ", "score_many: "),
    "compare": (lambda t, r: JUDGE.compare(TALK, t, r), r"compare: candidates\[1\]: ", "compare: "),
    "pairwise": (lambda t, r: JUDGE.compare(TALK, t, r, mode="pairwise"), r"compare: candidates\[1\]: ", "compare: "),
    "rank": (lambda t, r: JUDGE.rank([TALK, t], r), r"rank: candidates\[1\]: ", "rank: "),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_text_for_a_trajectory_and_a_name_for_a_rubric_are_refused(name: str) -> None:
    call, talk_place, rubric_place = CALLS[name]
    with pytest.raises(ConfigError, match=f"^{talk_place}{NO_TALK}"):
        call("hello", SHAPING)
    with pytest.raises(ConfigError, match=f"^{rubric_place}rubric: {NO_RUBRIC}"):
        call(TALK, "process_shaping")


@pytest.mark.parametrize("bad", ["hello", TALK, 3, {}], ids=["text", "one", "number", "dict"])
def test_what_holds_no_trajectories_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"^score_many: trajectories: found .*expected several Trajectory"):
        list(JUDGE.score_many(bad, SHAPING))


def test_a_rubric_that_is_not_bound_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^judge: pairs\[0\]\[1\]: found Rubric.*rubric.bind\("):
        JUDGE.judge([(TALK, SHAPING)])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"^judge: pairs\[0\]: found .*expected a pair"):
        JUDGE.judge([TALK])  # type: ignore[list-item]
    assert JUDGE.judge([]) == []
