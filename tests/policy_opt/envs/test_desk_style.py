import random

import pytest

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.policy_opt.envs.service_desk import sample_task
from axiomrm.policy_opt.envs.service_desk.style import (
    QUESTIONS,
    behaviour,
    style_label,
    styled_rollouts,
)
from axiomrm.rubrics.rubric import Rubric
from axiomrm.rubrics.templates import variants


def _said(*texts: str) -> Trajectory:
    """Texts with a tool call between them."""
    messages = []
    for text in texts:
        messages += [Message(role="assistant", content=text), Message(role="user", content="ok")]
        messages += [Message(role="assistant", tool_calls=(ToolCall(name="stock"),))]
    return Trajectory(messages=tuple(messages))


@pytest.fixture(scope="module")
def rollouts() -> list[Trajectory]:
    return styled_rollouts([sample_task("train", i) for i in range(60)], random.Random(1))


def test_every_question_that_a_profile_can_ask_has_an_oracle_and_the_reverse() -> None:
    rubric = Rubric.load("service_desk_steps")
    asked = {v.statement for t in rubric.templates for _, v in variants(t)}
    assert asked == set(QUESTIONS)


def test_opposite_questions_have_opposite_answers(rollouts: list[Trajectory]) -> None:
    by_habit: dict[str, list[str]] = {}
    for ask, (habit, _) in QUESTIONS.items():
        by_habit.setdefault(habit, []).append(ask)
    flip = {"Y": "N", "N": "Y", "X": "X"}
    for one, other in by_habit.values():
        for trajectory in rollouts:
            a, b = style_label(trajectory, one), style_label(trajectory, other)
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                assert b.label == flip[a.label] and a.note == b.note


def test_labels_are_common_enough_to_train_and_test_on(rollouts: list[Trajectory]) -> None:
    for ask in QUESTIONS:
        labels = [found.label for t in rollouts if (found := style_label(t, ask)) is not None]
        assert len(labels) > 0.6 * len(rollouts)
        assert min(labels.count("Y"), labels.count("N")) > 0.25 * len(labels)


def test_quotes_are_copied_from_the_turn_they_name(rollouts: list[Trajectory]) -> None:
    quotes = 0
    for trajectory in rollouts:
        for ask in QUESTIONS:
            found = style_label(trajectory, ask)
            for turn, quote in found.quotes if found is not None else ():
                assert quote in trajectory.turns[turn].action.content and len(quote) >= 12
                quotes += 1
    assert quotes > 1000


def test_length_is_the_mean_over_replies_with_a_margin() -> None:
    short, long = " ".join("w" * 11), " ".join("w" * 15)
    assert style_label(_said(short), "Are the replies short?").label == "Y"  # type: ignore[union-attr]  # 11 words
    assert style_label(_said(long), "Are the replies short?").label == "N"  # type: ignore[union-attr]  # 15 words
    assert style_label(_said(short, long), "Are the replies short?") is None  # 13 on average


@pytest.mark.parametrize(
    ("text", "tone"),
    [
        ("I am afraid this cannot be done, order P83 is shipped.", "formal"),  # "done," alone is casual
        ("Done, order P83 is cancelled.", "casual"),
        ("Kofi, order C98 is arrived.", None),
        ("Okay, thank you.", None),
    ],
)
def test_tone_is_read_off_the_words(text: str, tone: str | None) -> None:
    found = style_label(_said(text), "Are the replies casual?")
    expected = None if tone is None else "Y" if tone == "casual" else "N"
    assert (found.label if found is not None else None) == expected


def test_two_tones_in_one_dialogue_have_no_label() -> None:
    mixed = _said("Sure thing. What is your pin?", "Thank you for your patience.")
    assert style_label(mixed, "Are the replies formal?") is None
    assert behaviour(mixed)["casual"] == 0.5


def test_questions_at_once_one_by_one_or_too_few_to_tell() -> None:
    both = _said("What is your name and your pin?")
    single = _said("What is your name?", "What is your pin?")
    assert style_label(both, "Are the questions asked all at once?").label == "Y"  # type: ignore[union-attr]  # two facts
    assert style_label(single, "Are the questions asked one by one?").label == "Y"  # type: ignore[union-attr]  # two turns
    few = style_label(_said("What is your name?"), "Are the questions asked one by one?")
    assert few is not None and few.label == "X" and not few.quotes
    assert behaviour(_said("What is your name?"))["batched"] is None


def test_an_agent_that_says_nothing_cannot_be_judged_by_its_style() -> None:
    silent = Trajectory(messages=(Message(role="assistant", tool_calls=(ToolCall(name="stock"),)),))
    assert {style_label(silent, ask).label for ask in QUESTIONS} == {"X"}  # type: ignore[union-attr]  # always a label
    assert set(behaviour(silent).values()) == {None}
    assert style_label(silent, "Is the sky blue?") is None


def test_names_and_next_steps() -> None:
    talk = _said("Maria, the lamp is here. You will get a message from us soon.", "Good, that is all.")
    assert behaviour(talk)["named"] == behaviour(talk)["next_steps"] == 0.5
    named = style_label(talk, "Is the user's name left out?")
    assert named is not None and (named.label, named.note) == ("N", "it says Maria")
    told = style_label(talk, "Is what comes next told?")
    assert told is not None and told.quotes == ((0, "You will get a message from us soon."),)
