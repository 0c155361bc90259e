"""A criterion's own ``judge: {mode}`` counts where the caller sets no mode."""

import logging
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Scored
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm import modes as modes_module
from axiomrm.rubrics import Rubric

TALK = Trajectory(
    id="t", messages=(Message(role="user", content="hi"), Message(role="assistant", content="hello there"))
)


def rubric(one_theorem: str, judge: str) -> Rubric:
    return Rubric.loads(one_theorem.replace("{kind: llm}", judge), "one.yaml")


@pytest.fixture(scope="module")
def judge(tiny_llama: Any, tiny_tokenizer: Any) -> RewardModel:
    return RewardModel.from_model(
        tiny_llama, tiny_tokenizer, min_mass=0.0, max_notes_tokens=4, untrained=True
    )


def said(judge: RewardModel, asked: Rubric) -> tuple[str, int]:
    verdict = judge.score(TALK, asked).verdicts["th.done"]
    assert isinstance(verdict, Scored)
    return verdict.mode, verdict.n


def test_a_mode_in_the_rubric_counts_unless_the_caller_sets_one(judge: RewardModel, one_theorem: str) -> None:
    for mode, n in (("critique", 3), ("direct", 1)):
        asked = rubric(one_theorem, f"{{kind: llm, mode: {mode}, votes: 3}}")
        assert said(judge, asked) == (mode, n)
        for set_, k in (("critique", 3), ("direct", 1)):
            assert said(judge.with_settings(mode=set_), asked) == (set_, k)
        assert said(judge.with_settings(mode="critique").with_settings(mode=None), asked) == (mode, n)
        assert said(judge.with_settings(mode="gated", gate=2.0), asked) == ("critique", 3)


def test_where_nobody_says_anything_the_judge_answers_directly(judge: RewardModel, one_theorem: str) -> None:
    assert said(judge, rubric(one_theorem, "{kind: llm}")) == ("direct", 1)
    direct = judge.with_settings(mode="direct")
    assert (judge.mode, judge.judge_revision) == ("direct", direct.judge_revision)
    assert (judge.settings["mode"], direct.settings["mode"]) == (None, "direct")  # runs are not mixed
    assert judge.with_settings(**judge.settings | {"calibration": None}).settings == judge.settings


def test_requests_of_both_modes_keep_their_order(judge: RewardModel) -> None:
    modes: list[Any] = ["critique", None, "direct", "critique"]
    asked = [VerdictRequest(TALK, Criterion(f"c{i}", f"Is it {i}?"), mode=m) for i, m in enumerate(modes)]
    found = judge.verdicts(asked)
    assert [v.mode for v in found if isinstance(v, Scored)] == ["critique", "direct", "direct", "critique"]
    alone = [judge.verdicts([request])[0] for request in asked]
    assert [v.label for v in found if isinstance(v, Scored)] == [
        v.label for v in alone if isinstance(v, Scored)
    ]


def test_a_rubric_that_writes_no_mode_keeps_its_hash(one_theorem: str) -> None:
    plain = rubric(one_theorem, "{kind: llm, votes: 3}")
    assert plain.hash.startswith("f6d8184942f9fc40")  # as before the field was read
    written = {mode: rubric(one_theorem, f"{{kind: llm, votes: 3, mode: {mode}}}").hash for mode in MODES}
    assert len({plain.hash, *written.values()}) == 3


MODES = ("critique", "direct")


def test_votes_that_a_direct_judge_does_not_take_are_said_once(
    judge: RewardModel, one_theorem: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modes_module, "_SAID", set())
    voting = rubric(one_theorem, "{kind: llm, votes: 3}")
    with caplog.at_level(logging.WARNING, "axiomrm.rm.modes"):
        for how in (judge.with_settings(mode="critique"), judge.with_settings(n_samples=2)):
            how.score(TALK, voting)
        assert not caplog.messages
        for _ in range(2):
            judge.score(TALK, voting)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("th.done: the rubric asks for several votes, but a direct reading")
