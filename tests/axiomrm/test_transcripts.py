"""Spot checks on the report's page: the extreme of each reason, with critiques and advantages, as text only."""

import math
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Outcome, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.eval.report import render_report
from axiomrm.eval.report_data import ReportData
from axiomrm.policy_opt.monitoring.spot_checks import read_spot_checks, write_spot_checks
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.stages.transcripts import spot_check_rows, transcript


def check(name: str, places: dict[str, int] | None, iteration: int = 1, why: str = "up") -> dict[str, Any]:
    told = {"id": name, "messages": [{"role": "assistant", "content": name}], "turn_rewards": [0.5]}
    row: dict[str, Any] = {"iteration": iteration, "why": why, "value": 0.5, "trajectory": told}
    return row if places is None else row | {"places": places}


def test_the_last_iteration_gives_the_extreme_of_each_reason_once() -> None:
    checks = [
        check("old", {"up": 1}, iteration=0),
        check("second", {"down": 1, "up": 2}),
        check("first", {"up": 1, "worst": 1}),
        check("third", {"up": 3}),
    ]
    rows = spot_check_rows({"train": checks, "idle": []})
    assert [(r["trajectory"]["id"], r["why"]) for r in rows] == [
        ("second", "iteration 2: down"),
        ("first", "iteration 2: up, worst"),
    ]


def test_rows_of_a_file_without_places_are_read() -> None:
    rows = spot_check_rows({"train": [check("a", None), check("b", None), check("c", None, why="down")]})
    assert [r["trajectory"]["id"] for r in rows] == ["a", "c"]
    assert transcript(rows[0], "arm").turns[0].critiques == {}


@pytest.mark.parametrize(
    ("reward", "reason", "verdict"),
    [
        (0.25, None, Scored(value=0.25)),
        (1.7, None, None),  # another scale: no share of a yes
        (None, "cannot_assess:coverage", CannotAssess(reason="coverage")),
        (None, "failed:timeout", Failed(kind="no_verdict", detail="failed:timeout")),
        (None, "not_asked:verifier", None),
        (None, None, None),
    ],
)
def test_a_reward_is_a_verdict_only_where_a_judge_gave_one(reward: Any, reason: Any, verdict: Any) -> None:
    row = {
        "trajectory": {"messages": [{"role": "assistant", "content": "a"}]},
        "rewards": [reward], "reasons": [reason], "oracle": [None],
    }  # fmt: skip
    (turn,) = transcript(row, "arm").turns
    assert turn.reward == reward and [v.verdict for v in turn.verdicts] == ([verdict] if verdict else [])


def test_the_page_shows_critiques_as_text_beside_their_turn(tmp_path: Path) -> None:
    said = tuple(Message(role="assistant", content=f"a{t}") for t in range(2))
    told = Trajectory(id="a", messages=said, outcome=Outcome(score=0.0))
    steps: Any = [_Step(0.9), _Step(math.nan, "cannot_assess:coverage")]
    hostile = 'fine\n<script>alert(1)</script> & "quoted"'
    texts = [{"<b>tone": hostile}, {}]
    path = tmp_path / "spot_checks.jsonl"
    write_spot_checks(
        path,
        0,
        [Episode(TrajectoryRecord("a", "t", "g", [], steps, 0), told, texts)],
        {"a": [-1.25, math.nan]},
    )
    shown = [transcript(row, "arm") for row in spot_check_rows({"train": read_spot_checks(path)})]
    assert [turn.critiques for turn in shown[0].turns] == texts
    page = render_report(ReportData(run="r", transcripts=tuple(shown)))
    assert "<script>alert" not in page and "<b>tone" not in page
    assert (
        '<li><span class="chip">&lt;b&gt;tone</span><span class="critique">fine\n&lt;script&gt;alert(1)'
        "&lt;/script&gt; &amp; &#34;quoted&#34;</span></li>"
    ) in page
    assert page.count('class="critique"') == 2  # and the reason of the missing verdict
    assert "advantage −1.25" in page and page.count(">advantage ") == 1
    assert "iteration 1: failed, but rewarded most, highest turn rewards, lowest advantage" in page


class _Step:
    """What spot checks read of a step."""

    def __init__(self, reward: float, missing: str | None = None) -> None:
        self.r_local, self.missing = reward, missing
        self.r_parts: dict[str, float] = {}
