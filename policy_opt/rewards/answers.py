"""What a reward source answered, checked before anything is computed from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any, get_args

from axiomrm.data.jsonl import found_instead
from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import DataError
from axiomrm.policy_opt.records import LARGEST, too_large
from axiomrm.policy_opt.rewards.base import Episode, Level, TurnJudge, TurnScores

NUMBER = f"a finite number, or NaN for a missing one; at most {LARGEST:g} in size"


def ask(
    judge: TurnJudge,
    trajectories: Sequence[Trajectory],
    turns: Sequence[int] | None = None,
    source: str = "turn judge",
) -> list[TurnScores]:
    """The judge's answers, one a trajectory, their numbers (of any kind, as NumPy's) as Python's own floats.

    Args:
        judge: the source.
        trajectories: what it is asked about.
        turns: how many each has; ``None``: as many as the answer has rewards.
        source: the judge's name in messages.

    Raises:
        DataError: it answered for another number of trajectories or turns, with something that is no
            ``TurnScores``, or with infinity or what is larger than any reward; names trajectory, field, what
            was found and what was expected.
    """
    answers: Any = judge(trajectories)
    if not isinstance(answers, tuple | list):
        raise _wrong(source, answers, f"a list of {len(trajectories)} TurnScores")
    if len(answers) != len(trajectories):
        raise DataError(f"{source}: {len(answers)} answers for {len(trajectories)} trajectories")
    for index, (trajectory, answer) in enumerate(zip(trajectories, answers, strict=True)):
        _check(answer, turns[index] if turns else None, f"{source}, trajectory {trajectory.id!r}")
    return [_plain(answer) for answer in answers]


def number(found: Any, place: str) -> float:
    """A foreign function's number as Python's own float, which files can hold; NaN is a missing one.

    Raises:
        DataError: no number, or infinite or larger than any reward.
    """
    try:
        value = float(found) if isinstance(found, Real) else math.inf
    except OverflowError:  # a whole number beyond floats
        value = math.inf
    if too_large(value):
        raise _wrong(place, found, NUMBER)
    return value


def asked_about(
    judge: TurnJudge, episodes: Sequence[Episode], source: str = "turn judge"
) -> list[TurnScores]:
    """The judge's answers on episodes, a reward for each of their turns; raises as ``ask``."""
    turns = [len(episode.record.steps) for episode in episodes]
    return ask(judge, [episode.trajectory for episode in episodes], turns, source)


def _plain(answer: TurnScores) -> TurnScores:
    return replace(
        answer,
        turns=[float(value) for value in answer.turns],
        trajectory=float(answer.trajectory),
        coverage=[float(value) for value in answer.coverage],
        parts=[{name: float(value) for name, value in parts.items()} for parts in answer.parts],
        mixed=bool(answer.mixed),
    )


def _check(answer: Any, turns: int | None, place: str) -> None:
    if not isinstance(answer, TurnScores):
        raise _wrong(place, answer, "a TurnScores")
    if turns is None:
        turns = len(answer.turns) if isinstance(answer.turns, tuple | list) else 0
    least = {"turns": turns, "reasons": turns, "coverage": 0, "parts": 0, "critiques": 0}
    for name, shortest in least.items():
        found: Any = getattr(answer, name)
        if not isinstance(found, tuple | list) or len(found) not in (shortest, turns):
            raise _wrong(f"{place}: {name}", found, f"a list with one entry for each of {turns} turns")
    number(answer.trajectory, f"{place}: trajectory")
    _check_words(answer, place)
    for turn, value in enumerate(answer.turns):
        number(value, f"{place}: turns[{turn}]")
    for turn, value in enumerate(answer.coverage):
        number(value, f"{place}: coverage[{turn}]")
    for turn, parts in enumerate(answer.parts):
        _check_parts(parts, f"{place}: parts[{turn}]")
    for turn, texts in enumerate(answer.critiques):
        _check_texts(texts, f"{place}: critiques[{turn}]")


def _check_words(answer: TurnScores, place: str) -> None:
    for turn, reason in enumerate(answer.reasons):
        if not isinstance(reason, str | None):
            raise _wrong(f"{place}: reasons[{turn}]", reason, "text or None")
    for name in ("judge_revision", "rubric_hash"):
        if not isinstance(getattr(answer, name), str):
            raise _wrong(f"{place}: {name}", getattr(answer, name), "text")
    if answer.level not in get_args(Level):
        raise _wrong(f"{place}: level", answer.level, f"one of {', '.join(get_args(Level))}")


def _check_parts(parts: Any, place: str) -> None:
    if not isinstance(parts, Mapping):
        raise _wrong(place, parts, "a dict of part to number")
    for name, value in parts.items():
        number(value, f"{place}[{name!r}]")


def _check_texts(texts: Any, place: str) -> None:
    if not isinstance(texts, Mapping) or not all(isinstance(name, str) for name in texts):
        raise _wrong(place, texts, "a dict of criterion to text")
    for name, text in texts.items():
        if not isinstance(text, str):
            raise _wrong(f"{place}[{name!r}]", text, "text; a missing critique is left out")


def _wrong(place: str, found: object, expected: str) -> DataError:
    return DataError(f"{place}: {found_instead(found, expected)}")
