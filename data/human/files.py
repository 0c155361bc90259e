"""Loaders for data sets in the project's file schema: one JSON object a line, named by its ``kind``.

``pair``: ``context`` (messages), ``a``, ``b``, ``label`` (1 = a is better, 2 = b, 0 = tie). ``traj``:
``context`` (messages with tools), ``label`` (1 = task passed, 0 = failed). ``score``: ``context``, ``a`` (the
judged answer, absent where the whole dialogue is judged), ``scores`` by criterion, ``rater``. All: ``id``,
``set``, ``group`` (keep a group on one side of a split); other keys go to ``metadata``. The files lie in the
folder named by ``AXIOMRM_DATA``, else in ``../shared/data`` beside the checkout.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from axiomrm.data.jsonl import ReadResult, shorten
from axiomrm.data.openai_chat import to_messages
from axiomrm.data.reading import stream_records
from axiomrm.data.trajectory import Message, Outcome, PreferencePair, Trajectory
from axiomrm.errors import DataError

Label = Literal["a", "b", "tie"]
T = TypeVar("T")

_PAIR_KEYS = frozenset({"id", "group", "kind", "context", "a", "b", "label"})
_LABELS: dict[int, Label] = {0: "tie", 1: "a", 2: "b"}
_NOT_APPLICABLE = {"llm_rubric": frozenset({"Q1", "Q3", "Q4", "Q5"})}
"""Set to the criteria whose score 0 means "not applicable", not "worst"."""


@dataclass(frozen=True)
class HumanScores:
    """One person's scores of a dialogue, or of its last answer."""

    trajectory: Trajectory
    scores: dict[str, float | None]
    """In the set's own scale; ``None``: the criterion does not apply."""
    group: str
    """The split key."""
    rater: str = ""


def data_folder() -> Path:
    """The folder with the data files.

    Raises:
        DataError: there is none.
    """
    named = os.environ.get("AXIOMRM_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data"
    if not folder.is_dir():
        source = f"AXIOMRM_DATA={named!r}" if named else f"AXIOMRM_DATA is not set, and the default {folder}"
        raise DataError(
            f"no folder with data sets: {source} does not exist; set AXIOMRM_DATA to their folder"
        )
    return folder


def load_pairs(name: str, folder: str | Path | None = None) -> ReadResult[PreferencePair]:
    """The pairs of data set ``name`` (``"hh_harmless"``), or of a file given by its path.

    Raises:
        DataError: no such data set.
    """
    return _load(_file(name, folder), _pair)


def load_trajectories(name: str, folder: str | Path | None = None) -> ReadResult[Trajectory]:
    """The trajectories of data set ``name`` (``"tau_air"``); ``outcome.score`` is the checker's label.

    Raises:
        DataError: no such data set.
    """
    return _load(_file(name, folder), _trajectory)


def load_scores(name: str, folder: str | Path | None = None) -> ReadResult[HumanScores]:
    """The scored dialogues of data set ``name`` (``"llm_rubric"``), or of a file given by its path.

    Raises:
        DataError: no such data set.
    """
    return _load(_file(name, folder), _scores)


def _load(path: Path, parse: Callable[[Mapping[str, Any]], T]) -> ReadResult[T]:
    result: ReadResult[T] = ReadResult()
    result.records.extend(found for _, found in stream_records(path, parse, result.rejected))
    return result


def _file(name: str, folder: str | Path | None) -> Path:
    if name.endswith(".jsonl"):
        return Path(name)
    folder = Path(folder) if folder is not None else data_folder()
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        known = sorted(p.stem for p in folder.glob("*.jsonl"))
        raise DataError(f"no data set {name!r} in {folder}; there are: {', '.join(known) or 'none'}")
    return path


def _pair(record: Mapping[str, Any]) -> PreferencePair:
    _check_kind(record, "pair")
    label = record.get("label")
    if label not in (0, 1, 2) or isinstance(label, bool):
        raise DataError(f"label: {shorten(label)} is not 1 (a is better), 2 (b is better) or 0 (tie)")
    for side in ("a", "b"):
        if not isinstance(record.get(side), str):
            raise DataError(f"{side}: expected the text of an answer, found {shorten(record.get(side))}")
    return PreferencePair(
        context=to_messages(record.get("context"), "context"),
        a=record["a"],
        b=record["b"],
        label=_LABELS[int(label)],
        id=_text(record, "id"),
        group=_text(record, "group"),
        metadata={key: value for key, value in record.items() if key not in _PAIR_KEYS},
    )


def _trajectory(record: Mapping[str, Any]) -> Trajectory:
    _check_kind(record, "traj")
    label = record.get("label")
    if label not in (None, 0, 1) or isinstance(label, bool):
        raise DataError(f"label: {shorten(label)} is not 1 (passed), 0 (failed) or null (not checked)")
    group = _text(record, "group")
    known = {"id", "group", "kind", "context", "label"}
    return Trajectory(
        messages=to_messages(record.get("context"), "context"),
        id=_text(record, "id"),
        task_id=group,
        group_id=group,
        outcome=None if label is None else Outcome(score=float(label)),
        metadata={key: value for key, value in record.items() if key not in known},
    )


def _scores(record: Mapping[str, Any]) -> HumanScores:
    _check_kind(record, "score")
    given, answer, group = record.get("scores"), record.get("a"), _text(record, "group")
    if not isinstance(given, dict) or not given:
        raise DataError(f"scores: expected an object of criterion to number, found {shorten(given)}")
    if not isinstance(answer, str | None):
        raise DataError(f"a: expected the text of an answer, found {shorten(answer)}")
    blank = _NOT_APPLICABLE.get(record.get("set", ""), frozenset())
    known = {"id", "group", "kind", "context", "a", "scores", "rater"}
    said = () if answer is None else (Message(role="assistant", content=answer),)
    return HumanScores(
        trajectory=Trajectory(
            messages=(*_dialogue(record.get("context")), *said),
            id=_text(record, "id"),
            group_id=group,
            metadata={key: value for key, value in record.items() if key not in known},
        ),
        scores={criterion: _score(value, criterion, blank) for criterion, value in given.items()},
        group=group,
        rater=str(record.get("rater", "")),
    )


def _dialogue(context: Any) -> tuple[Message, ...]:
    """A dialogue or fact given as one text under a role of its own becomes a user message of that name."""
    if isinstance(context, list):
        context = [
            {"role": "user", "name": item["role"], "content": item.get("content")}
            if isinstance(item, dict) and item.get("role") in ("dialogue", "knowledge")
            else item
            for item in context
        ]
    return to_messages(context, "context")


def _score(value: Any, criterion: str, blank: frozenset[str]) -> float | None:
    try:
        number = math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise DataError(f"scores.{criterion}: expected a number, found {shorten(value)}")
    return None if number == 0 and criterion in blank else number


def _check_kind(record: Mapping[str, Any], kind: str) -> None:
    if record.get("kind") != kind:
        raise DataError(f"kind: {shorten(record.get('kind'))} is not {kind!r}")


def _text(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise DataError(f"{key}: expected text, found {shorten(value)}")
    return value
