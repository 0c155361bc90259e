"""Scoring a file of conversations: resumable, one judgement a row, bad records apart.

While it runs, ``OUT.partial`` grows by one line a record, so a killed run goes on where it was: records that
stand there whole are not judged again. At the end rows and rejected records are written atomically from it.
A partial file of another input, rubric, judge or limit is refused.
"""

import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

from axiomrm.data.jsonl import Rejected
from axiomrm.data.openai_chat import to_messages, to_trajectory
from axiomrm.data.reading import stream_records
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.data.writing import atomic_file, write_jsonl
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.judgement import Judgement, ScoreRow, outcome
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric

BATCH = 8
"""Records judged together, and at most lost by a kill."""
INPUT_KINDS = frozenset({"context_overflow", "bad_input"})
"""Failures of the record and not of the judge."""
Side = Literal["a", "b"] | None
Candidates = list[tuple[Side, Trajectory]]


@dataclass
class Summary:
    """What a run did, resumed parts included."""

    records: int = 0
    scored: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    """By outcome, of the conversations that were scored; rejected ones are counted apart."""
    rewards: list[float] = field(default_factory=list)
    resumed: int = 0
    """Records that an earlier, killed run had judged."""
    judged: int = 0
    """Conversations judged by this run."""
    seconds: float = 0.0

    @property
    def failure_share(self) -> float:
        """Failed verdicts over all verdicts, without those whose input could not be read."""
        failed = sum(n for kind, n in self.verdicts.items() if _counts_as_failure(kind))
        total = sum(self.verdicts.values()) - sum(self.verdicts[f"failed:{kind}"] for kind in INPUT_KINDS)
        return failed / total if total else 0.0


def score_file(
    logs: Path,
    rubric: Rubric,
    judge: RewardModel,
    target: Path,
    limit: int | None = None,
    told: Callable[[int], None] | None = None,
) -> Summary:
    """Score a file into ``target``; rejected records go to ``*.rejected.jsonl`` beside it.

    Args:
        logs: chat logs, ``traj`` records or pair records.
        rubric: one rubric for all.
        judge: with or without a model.
        target: the output; appears whole or not at all.
        limit: read at most so many records.
        told: called after each batch with the number of conversations that this run has judged.

    Raises:
        DataError: there is no such file, or nothing in it could be read.
        ConfigError: ``OUT.partial`` belongs to other input or settings.
    """
    _check_paths(logs, target)
    summary, bad, start = Summary(), list[Rejected](), time.monotonic()
    partial = target.with_name(target.name + ".partial")
    identity = {
        "logs": str(logs.resolve()),
        "sha256": _digest(logs),
        "rubric_hash": rubric.hash,
        "judge_revision": judge.judge_revision,
        "limit": limit,
    }
    done = _resumed(partial, identity)
    summary.resumed = len(done)
    records = islice(stream_records(logs, candidates, bad), limit)
    fresh = ((line, found) for line, found in records if line not in done)
    with _appending(partial, identity) as handle:
        while group := list(islice(fresh, BATCH)):
            for entry in _entries(group, rubric, judge, str(logs)):
                handle.write(json.dumps(entry, ensure_ascii=False) + "\n")
                summary.judged += len(entry["rows"]) + len(entry["rejected"])
            handle.flush()
            os.fsync(handle.fileno())
            if told is not None:
                told(summary.judged)
    summary.rejected = [item._asdict() for item in bad]
    _publish(partial, target, summary)
    summary.seconds = time.monotonic() - start
    if not summary.records and bad:
        raise DataError(f"{bad[0]} (and {len(bad) - 1} more; see {rejected_path(target)})")
    return summary


def _digest(path: Path) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _check_paths(logs: Path, target: Path) -> None:
    """Nothing that is read may be written over, and the output must be a file."""
    if not logs.is_file():
        raise DataError(
            f"{logs}: {'a folder' if logs.is_dir() else 'there is no such file'}; a file is expected"
        )
    if target.is_dir():
        raise ConfigError(f"--out {target}: a folder; name a file in it")
    written = {
        p.resolve() for p in (target, rejected_path(target), target.with_name(target.name + ".partial"))
    }
    if logs.resolve() in written:
        raise ConfigError(f"--out {target}: would overwrite the input {logs}; name another file")


def candidates(record: Mapping[str, Any]) -> Candidates:
    """The conversations in one record: one of a chat log or ``traj`` record, two of a pair record.

    Raises:
        DataError: neither form.
    """
    if "messages" in record:
        return [(None, to_trajectory(record))]
    if record.get("kind") == "traj":
        shown = {k: v for k, v in record.items() if k in ("id", "task", "outcome", "metadata", "tools")}
        return [(None, to_trajectory({**shown, "messages": record.get("context")}))]
    if not all(isinstance(record.get(side), str) for side in ("a", "b")) or "context" not in record:
        raise DataError(
            "expected a chat log ('messages'), a trajectory (kind 'traj' with 'context') or a pair "
            f"('context', 'a', 'b'), found keys {sorted(record)[:12]}"
        )
    context, name = to_messages(record["context"], "context"), str(record.get("id", ""))
    sides: tuple[Literal["a", "b"], ...] = ("a", "b")
    return [
        (side, Trajectory(messages=(*context, Message(role="assistant", content=record[side])), id=name))
        for side in sides
    ]


def rejected_path(target: Path) -> Path:
    """Where the rejected rows of an output stand."""
    return target.with_name(f"{target.name.removesuffix('.jsonl').removesuffix('.scored')}.rejected.jsonl")


def _entries(
    group: list[tuple[int, Candidates]], rubric: Rubric, judge: RewardModel, file: str
) -> list[dict[str, Any]]:
    """One entry a record: its line, its rows and what of it was rejected."""
    flat = [(line, side, trajectory) for line, found in group for side, trajectory in found]
    named = [t if t.id else t.model_copy(update={"id": f"{Path(file).name}:{line}"}) for line, _, t in flat]
    entries: dict[int, dict[str, Any]] = {
        line: {"line": line, "rows": [], "rejected": []} for line, _ in group
    }
    results = judge.score_many(named, rubric, batch=len(named))
    for (line, side, _), trajectory, result in zip(flat, named, results, strict=True):
        failure = result if isinstance(result, Failed) else _unreadable(result)
        if failure is not None:
            place = {"file": file, "line": line, "id": trajectory.id, "side": side}
            entries[line]["rejected"].append({**place, "kind": failure.kind, "reason": failure.detail})
        elif isinstance(result, Judgement):
            row = ScoreRow(file=file, line=line, id=trajectory.id, side=side, judgement=result)
            entries[line]["rows"].append(row.model_dump(mode="json", by_alias=True))
    return list(entries.values())


def _resumed(partial: Path, identity: Mapping[str, Any]) -> set[int]:
    """Lines of the records that stand whole in a partial file; what was cut by a kill is cut off."""
    if not partial.is_file():
        return set()
    whole = [line for line in partial.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    if not whole:
        partial.unlink()
        return set()
    if json.loads(whole[0]) != identity:
        raise ConfigError(
            f"{partial} was begun with another input, rubric, judge or limit: "
            "finish that run or delete the file"
        )
    os.truncate(partial, sum(map(len, whole)))
    return {int(json.loads(line)["line"]) for line in whole[1:]}


def _appending(partial: Path, identity: Mapping[str, Any]) -> IO[str]:
    partial.parent.mkdir(parents=True, exist_ok=True)
    fresh = not partial.is_file()
    handle = partial.open("a", encoding="utf-8", newline="\n")
    if fresh:
        handle.write(json.dumps(dict(identity)) + "\n")
        handle.flush()
    return handle


def _publish(partial: Path, target: Path, summary: Summary) -> None:
    with atomic_file(target) as handle:
        for entry in _read(partial):
            summary.records += 1
            summary.rejected += entry["rejected"]
            for row in entry["rows"]:
                judgement = Judgement.model_validate(row["judgement"])
                summary.scored += 1
                summary.verdicts.update(outcome(verdict) for _, _, verdict in judgement.all_verdicts())
                summary.rewards += [] if judgement.reward is None else [judgement.reward]
                handle.write(json.dumps(row, ensure_ascii=False) + "\n")
    beside = rejected_path(target)
    if summary.rejected:
        write_jsonl(beside, sorted(summary.rejected, key=lambda row: int(row["line"])))
    else:
        beside.unlink(missing_ok=True)
    partial.unlink()


def _read(partial: Path) -> Iterator[dict[str, Any]]:
    with partial.open(encoding="utf-8", newline="\n") as handle:
        next(handle)
        for line in handle:
            yield json.loads(line)


def _unreadable(judgement: Judgement) -> Failed | None:
    """The reason, if there are verdicts and each of them failed for the input's sake."""
    verdicts = [verdict for _, _, verdict in judgement.all_verdicts()]
    failures = [v for v in verdicts if isinstance(v, Failed) and v.kind in INPUT_KINDS]
    return failures[0] if failures and len(failures) == len(verdicts) else None


def _counts_as_failure(kind: str) -> bool:
    return kind.startswith("failed:") and kind.removeprefix("failed:") not in INPUT_KINDS
