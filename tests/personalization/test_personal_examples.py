"""Rows of the personal stage: balanced, and dense in questions a recording."""

import random
from collections import Counter, defaultdict

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.synthesis.judge_examples import whole_dialogues
from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.personalization.examples import OracleLabel, personal_examples
from axiomrm.personalization.simulate import draw_users
from axiomrm.rubrics import Rubric

RUBRIC = Rubric.load("service_desk_steps")


def recordings(n: int) -> list[Trajectory]:
    said = (Message(role="user", content="hello"), Message(role="assistant", content="what is your name"))
    return [Trajectory(messages=said, id=str(i), task_id="t", task=Task(id="t")) for i in range(n)]


def coin(trajectory: Trajectory, ask: str) -> OracleLabel:
    """A right answer for every question: that of the recording."""
    return OracleLabel("Y" if int(trajectory.id) % 2 else "N", "")


def rows(n: int, per_label: int) -> list[JudgeExample]:
    users = draw_users(20, random.Random(0), prefix="train")
    return personal_examples(
        recordings(n), users, random.Random(1), rubric=RUBRIC, label_of=coin, per_label=per_label
    )


def test_every_question_has_as_many_yes_as_no() -> None:
    by_question: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows(24, 4):
        by_question[row.ask][row.label] += 1
    assert len(by_question) >= 6
    assert all(counts == {"Y": 4, "N": 4} for counts in by_question.values())


def test_the_questions_are_asked_about_the_same_few_recordings() -> None:
    found = rows(24, 4)
    asks = {row.ask for row in found}
    assert len({row.trajectory.id for row in found}) == 8  # 4 of Y and 4 of N, for all questions
    assert len(found) == 8 * len(asks)


def test_a_replay_takes_whole_dialogues() -> None:
    found = rows(24, 10)
    asks = len({row.ask for row in found})
    replay = whole_dialogues(found, 3 * asks, random.Random(2))
    assert Counter(Counter(row.trajectory.id for row in replay).values()) == {asks: 3}
    assert len(whole_dialogues(found, 10 * len(found), random.Random(2))) == len(found)
    assert whole_dialogues(found, 0, random.Random(2)) == []
