"""Scored rows (``axiomrm/score-1``) with what their transcripts and labels say about them.

A row may carry, beside what ``axiomrm score`` writes, ``task_id``, ``policy_version``, ``outcome``,
``length`` and ``features``; otherwise they are taken from the transcript that ``file`` and ``line`` name,
if it is there.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from axiomrm.data.openai_chat import to_trajectory
from axiomrm.data.reading import stream_records
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Verdict
from axiomrm.errors import DataError

SCHEMA = "axiomrm/score-1"
_VERDICTS: TypeAdapter[dict[str, Verdict]] = TypeAdapter(dict[str, Verdict])
_EXCERPT = 300
Key = tuple[str, int, str, str]


@dataclass(frozen=True)
class Row:
    """One judgement of one conversation."""

    key: Key
    """File, line, id and side: the same conversation has the same key whoever judges it."""
    task: str
    """What is compared with what, and what the halves are dealt by."""
    verdicts: Mapping[str, Verdict]
    turns: tuple[Mapping[str, Verdict], ...] = ()
    judge: str = ""
    length: float | None = None
    """Words of all assistant messages."""
    turn_lengths: tuple[float, ...] = ()
    outcome: float | None = None
    label: float | None = None
    """A human's score of the conversation."""
    version: float | None = None
    """Of the policy that wrote it."""
    features: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""
    """Beginning of the last assistant message."""
    rubric_hash: str = ""
    """Of the rubric that it was scored with; empty: not recorded."""

    @property
    def name(self) -> str:
        """Id, with the side of a pair."""
        return f"{self.key[2]}/{self.key[3]}" if self.key[3] else self.key[2]


@dataclass(frozen=True)
class Rows:
    """All judgements, sorted by what they are for."""

    main: tuple[Row, ...]
    """One a conversation, by the judge that judged most of them."""
    repeats: Mapping[Key, tuple[Row, ...]]
    """Further judgements by the same judge."""
    second: Mapping[Key, Row]
    """By another judge."""


def read_rows(scores: Sequence[Path], labels: Path | None = None, transcripts: Sequence[Path] = ()) -> Rows:
    """Read scored files.

    Args:
        scores: output of ``axiomrm score``; the same conversation may stand in them several times.
        labels: JSONL of ``{id, score}``, a human's score of a conversation, larger is better.
        transcripts: chat logs to look in when the one that a row names is not there.

    Raises:
        DataError: a file or a line is not what it should be.
    """
    rows: list[Row] = []
    logs = _Logs(transcripts)
    for path in scores:
        rows += [_enriched(row, value, logs, path) for row, value in _read(path)]
    if labels is not None:
        given = _labels(labels)
        rows = [replace(r, label=given.get(r.name, given.get(r.key[2]))) for r in rows]
    return sort_rows(rows)


def sort_rows(rows: Sequence[Row]) -> Rows:
    """Main judgements, repetitions and those of a second judge."""
    counts = Counter(r.judge for r in rows)
    first = max(counts, key=lambda judge: counts[judge]) if counts else ""
    main: dict[Key, Row] = {}
    repeats: dict[Key, list[Row]] = {}
    second: dict[Key, Row] = {}
    for row in rows:
        if row.judge != first:
            second.setdefault(row.key, row)
        elif row.key in main:
            repeats.setdefault(row.key, []).append(row)
        else:
            main[row.key] = row
    return Rows(tuple(main.values()), {k: tuple(v) for k, v in repeats.items()}, second)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8'}") from error
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(value, dict):
            raise DataError(f"{path}:{number}: an object is needed, found {line[:60]!r}")
        yield number, value


def _read(path: Path) -> Iterator[tuple[Row, dict[str, Any]]]:
    for number, value in _lines(path):
        place = f"{path}:{number}"
        if value.get("schema") != SCHEMA:
            raise DataError(
                f"{place}: schema {value.get('schema')!r} is not {SCHEMA!r}; write rows with axiomrm score"
            )
        judgement = value.get("judgement")
        if not isinstance(judgement, dict):
            raise DataError(f"{place}: 'judgement' is missing")
        try:
            verdicts = _VERDICTS.validate_python(judgement.get("verdicts", {}))
            turns = tuple(_VERDICTS.validate_python(t["verdicts"]) for t in judgement.get("turns", ()))
        except (ValidationError, KeyError, TypeError) as error:
            raise DataError(
                f"{place}: verdicts cannot be read: {' '.join(str(error).split())[:200]}"
            ) from error
        key = (
            str(value.get("file", "")),
            int(value.get("line") or 0),
            str(value.get("id", "")),
            value.get("side") or "",
        )
        task = value.get("task_id") or value.get("group_id") or key[2]
        row = Row(
            key,
            str(task),
            verdicts,
            turns,
            str(judgement.get("judge_revision", "")),
            rubric_hash=str(judgement.get("rubric_hash", "")),
        )
        yield row, value


class _Logs:
    """Transcripts by file and line, each file read once."""

    def __init__(self, extra: Sequence[Path]) -> None:
        self.extra = tuple(extra)
        self.read: dict[Path, dict[int, Trajectory]] = {}

    def find(self, file: str, line: int, beside: Path) -> Trajectory | None:
        given = Path(file)
        named = [p for p in self.extra if p.name == given.name]
        for path in (given, beside.parent / given, beside.parent / given.name, *named):
            if file and path.is_file():
                if path not in self.read:
                    self.read[path] = dict(stream_records(path, to_trajectory, []))
                return self.read[path].get(line)
        return None


def _enriched(row: Row, value: Mapping[str, Any], logs: _Logs, scores: Path) -> Row:
    trajectory = logs.find(row.key[0], row.key[1], scores)
    found: dict[str, Any] = {}
    if trajectory is not None:
        words = tuple(float(len(t.action.content.split())) for t in trajectory.turns)
        found = {
            "task": trajectory.task_id or trajectory.task.id or trajectory.group_id or row.task,
            "length": sum(words),
            "turn_lengths": words,
            "outcome": trajectory.outcome.score if trajectory.outcome is not None else None,
            "version": number(trajectory.metadata.get("policy_version")),
            "features": trajectory.task.features,
            "text": trajectory.turns[-1].action.content[:_EXCERPT] if trajectory.turns else "",
        }
    for name, key in (("length", "length"), ("outcome", "outcome"), ("version", "policy_version")):
        if number(value.get(key)) is not None:
            found[name] = number(value[key])
    if isinstance(value.get("features"), dict):
        found["features"] = value["features"]
    if value.get("task_id"):
        found["task"] = str(value["task_id"])
    return replace(row, **found)


def number(value: Any) -> float | None:
    """A finite number, or ``None``; ``v12`` and ``"12"`` are 12."""
    if isinstance(value, str):
        try:
            value = float(value.strip().lower().removeprefix("v"))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _labels(path: Path) -> dict[str, float]:
    out: dict[str, float] = {}
    for line, value in _lines(path):
        score = number(value.get("score"))
        if not isinstance(value.get("id"), str) or score is None or isinstance(value.get("score"), str):
            raise DataError(
                f"{path}:{line}: a label is {{'id': text, 'score': number}}, found {str(value)[:80]}"
            )
        out[value["id"]] = score
    return out
