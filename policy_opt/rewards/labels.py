"""Rewards that people or another model wrote down (RLHF, RLAIF), from a JSONL file.

One label a line: ``id`` of the trajectory, ``turn`` (0-based; absent or ``null`` = the whole trajectory),
``reward``, ``source`` (``human`` or ``ai``), and optionally ``rater`` and ``content_hash``
(``Trajectory.content_hash``): a label whose hash is another text's is not used. Several labels of one unit
are averaged; of one rater the first for a text counts. Training repeats a run's rollouts with their ids, so
labels given between two starts of the same run are found by the second. Who labels is the judge's version
(``human``, ``ai`` or both), so that more labels of the same kind leave replayed rollouts, their baselines and
scales as they are.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from axiomrm.data.jsonl import Rejected, read_records, shorten
from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import DataError
from axiomrm.policy_opt.records import LARGEST
from axiomrm.policy_opt.rewards.base import TurnScores

Source = Literal["human", "ai"]
FIELDS = ("id", "turn", "reward", "source", "rater", "content_hash")


class Label(NamedTuple):
    """One line."""

    id: str
    turn: int | None
    reward: float
    source: Source
    rater: str = ""
    content_hash: str = ""


class LabelReward:
    """Looks rewards up; a unit without a label is missing, never 0."""

    def __init__(self, labels: Sequence[Label], revision: str, rejected: Sequence[Rejected] = ()) -> None:
        self.revision, self.rejected = revision, list(rejected)
        """``rejected``: lines that were not used, with file, line and reason."""
        self._by_unit: dict[tuple[str, int | None], list[Label]] = defaultdict(list)
        for label in labels:
            self._by_unit[label.id, label.turn].append(label)
        self.has_turns = any(label.turn is not None for label in labels)
        self.has_wholes = any(label.turn is None for label in labels)

    @classmethod
    def read(cls, path: str | Path, source: Literal["any", "human", "ai"] = "any") -> "LabelReward":
        """Labels of a file; bad lines stand in ``rejected``.

        Args:
            path: JSONL.
            source: only labels of people, only those of a model, or both.

        Raises:
            DataError: there is no such file, or no usable label in it.
        """
        labels, rejected = read_labels(path)
        wanted = [label for label in labels if source in ("any", label.source)]
        if not wanted:
            first = f"; first rejected: {rejected[0]}" if rejected else ""
            raise DataError(f"{path}: no usable label of source {source!r} among {len(labels)}{first}")
        return cls(wanted, "+".join(sorted({label.source for label in wanted})), rejected)

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[TurnScores]:
        """One answer a trajectory."""
        return [self._scores(trajectory) for trajectory in trajectories]

    def _scores(self, trajectory: Trajectory) -> TurnScores:
        units = [self._reward(trajectory, t) for t in range(len(trajectory.turns))]
        absent = "cannot_assess:no label" if self.has_turns else "not_asked:labels"
        return TurnScores(
            turns=units,
            reasons=[absent if math.isnan(value) else None for value in units],
            judge_revision=self.revision,
            rubric_hash="labels",
            trajectory=self._reward(trajectory, None),
            mixed=self.has_wholes,
            level="both"
            if self.has_turns and self.has_wholes
            else "turn"
            if self.has_turns
            else "trajectory",
        )

    def _reward(self, trajectory: Trajectory, turn: int | None) -> float:
        found = [
            label.reward
            for label in self._by_unit.get((trajectory.id, turn), ())
            if label.content_hash in ("", trajectory.content_hash)
        ]
        return float(np.mean(found)) if found else math.nan


def read_labels(path: str | Path) -> tuple[list[Label], list[Rejected]]:
    """All labels of a file, and the lines that hold none with their reasons.

    Raises:
        DataError: there is no such file.
    """
    labels: list[Label] = []
    rejected: list[Rejected] = []
    seen: dict[tuple[str, int | None, str, str], dict[str, int]] = defaultdict(dict)
    for item in read_records(path):
        if isinstance(item, Rejected):
            rejected.append(item)
            continue
        try:
            label = _label(item.value)
            texts = seen[label.id, label.turn, label.source, label.rater]
            line = _earlier(texts, label.content_hash)
            if label.rater and line is not None:
                raise DataError(f"rater {label.rater!r} has labelled this unit on line {line}")
        except DataError as error:
            rejected.append(Rejected(str(path), item.line, str(error)))
            continue
        texts[label.content_hash] = item.line
        labels.append(label)
    return labels, rejected


def _earlier(texts: Mapping[str, int], text: str) -> int | None:
    """Line of the first label of the same text; a label without a hash is one of every text."""
    same = (line for known, line in texts.items() if known == text or "" in (known, text))
    return next(same, None)


def _label(row: Mapping[str, Any]) -> Label:
    unknown = sorted(set(row) - set(FIELDS))
    if unknown:
        raise DataError(f"unknown keys {unknown!r}; a label has {', '.join(FIELDS)}")
    name, turn, reward = row.get("id"), row.get("turn"), row.get("reward")
    if not isinstance(name, str) or not name:
        raise DataError(f"id: expected the trajectory's id, found {shorten(name)}")
    if turn is not None and (not isinstance(turn, int) or isinstance(turn, bool) or turn < 0):
        raise DataError(f"turn: expected null or a number from 0, found {shorten(turn)}")
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not -LARGEST <= reward <= LARGEST:
        raise DataError(
            f"reward: expected a finite number of at most {LARGEST:g} in size, found {shorten(reward)}"
        )
    source = row.get("source")
    if source not in ("human", "ai"):
        raise DataError(f"source: expected 'human' or 'ai', found {shorten(source)}")
    texts = {key: row.get(key, "") for key in ("rater", "content_hash")}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise DataError(f"{key}: expected text, found {shorten(text)}")
    return Label(name, turn, float(reward), source, **texts)
