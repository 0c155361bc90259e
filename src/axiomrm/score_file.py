"""Scoring a file of conversations: resumable, one judgement a row, bad records apart.

While it runs, ``OUT.partial`` grows (see ``score_partial``). At the end rows and rejected records are written
atomically from it. A partial file of another rubric, judge or setting is refused, and so is an output of
another rubric, judge or calibrator: neither is mixed or replaced. A run whose judge is away stops before its
failures are kept (see ``score_outage``).
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from axiomrm.data.jsonl import Rejected, refuse_other_forms
from axiomrm.data.reading import stream_records
from axiomrm.data.trajectory import canonical_json
from axiomrm.data.verdict import Failed
from axiomrm.data.writing import atomic_file, check_output, check_rejected, write_jsonl
from axiomrm.errors import ConfigError, DataError, JudgeError
from axiomrm.rm.judgement import Judgement, ScoreRow
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_outage import reason, unfinished
from axiomrm.score_partial import Partial
from axiomrm.score_records import Candidates, candidates
from axiomrm.score_summary import INPUT_KINDS, Summary, items_for_a_model

BATCH = 8
"""Records judged together, and at most lost by a kill."""


class Progress(NamedTuple):
    """How far a run is."""

    judged: int
    """Conversations judged by this run."""
    records: int
    """Records dealt with, those of earlier runs included."""
    resumed: int
    """Records of earlier runs."""
    total: int | None
    """Records of the input, unreadable ones included; ``None``: known only at the end."""
    seconds: float
    """Since this run began."""


class _Job(NamedTuple):
    logs: Path
    rubric: Rubric
    judge: RewardModel
    target: Path
    limit: int | None

    def identity(self, sha256: str) -> dict[str, Any]:
        """What must be equal for a run to go on."""
        return {
            "logs": str(self.logs.resolve()),
            "sha256": sha256,
            "rubric_hash": self.rubric.hash,
            "limit": self.limit,
            **self.judge.settings,
            "judge_revision": self.judge.judge_revision,
        }

    def run(self, sha256: str) -> str:
        """Hash of what decides the rows."""
        decides = {name: value for name, value in self.identity(sha256).items() if name != "logs"}
        return hashlib.sha256(canonical_json(decides).encode()).hexdigest()[:16]


class _Input(NamedTuple):
    sha256: str
    lines: int | None
    """Lines that hold something; ``None``: a single document."""


def score_file(
    logs: str | Path,
    rubric: Rubric,
    judge: RewardModel,
    target: str | Path,
    *,
    limit: int | None = None,
    replace: bool = False,
    keep_going: bool = False,
    told: Callable[[Progress], None] | None = None,
) -> Summary:
    """Score a file into ``target``; rejected records go to ``*.rejected.jsonl`` beside it.

    A run that was stopped, even by ``kill -9``, goes on when it is started again with the same arguments, and
    judges again what its judge was away for.

    Args:
        logs: chat logs, ``traj`` records or pair records.
        rubric: one rubric for all.
        judge: with or without a model.
        target: the output; appears whole or not at all.
        limit: read at most so many records.
        replace: whether scores of another input, rubric, judge or setting in ``target`` may go.
        keep_going: do not stop where the judge is away; its failures are final rows.
        told: called after each batch.

    Raises:
        JudgeError: the engine left a whole batch unanswered; what was judged before is kept.
        DataError: there is no such file, it is no JSONL file, or nothing in it could be read.
        ConfigError: ``target`` or its partial file belongs to other input, rubric, judge or settings.
    """
    job = _Job(Path(logs), rubric, judge, Path(target), limit)
    _check_paths(job.logs, job.rubric, job.target)
    found = _looked_at(job.logs)
    if not replace:
        _check_existing(job, job.run(found.sha256))
    watched = judge.engine is not None and not keep_going
    return _run(job, found, items_for_a_model(rubric) if watched else frozenset(), told)


def _run(
    job: _Job, found: _Input, watched: frozenset[str], told: Callable[[Progress], None] | None
) -> Summary:
    start, before, bad = time.monotonic(), dict(job.judge.usage), list[Rejected]()
    total = found.lines if None in (job.limit, found.lines) else min(job.limit or 0, found.lines or 0)
    summary = Summary(frozenset() if job.judge.engine else items_for_a_model(job.rubric))
    partial_path = job.target.with_name(job.target.name + ".partial")
    with Partial(partial_path, job.identity(found.sha256), BATCH, unfinished) as partial:
        for output in (job.target, rejected_path(job.target)):
            for left in job.target.parent.glob(f".{output.name}.*.tmp"):
                left.unlink(missing_ok=True)  # of a run that was killed while it wrote the output
        again, last_line = frozenset(partial.again), partial.last_line
        done = summary.resumed = partial.records - len(again)
        records = islice(stream_records(job.logs, candidates, bad), job.limit)
        todo = ((line, held) for line, held in records if line in again or line > last_line)
        while group := list(islice(todo, BATCH)):
            entries = _entries(group, job)
            if lost := reason(entries, watched):
                raise JudgeError(f"{job.logs}: {lost}; {_kept(partial)}")
            partial.append(entries)
            done += len(group)
            summary.judged += sum(len(entry["rows"]) + len(entry["rejected"]) for entry in entries)
            if told is not None:
                seconds = time.monotonic() - start
                told(Progress(summary.judged, done + len(bad), summary.resumed, total, seconds))
        summary.rejected = [item._asdict() for item in bad]
        _publish(partial, job, summary, job.run(found.sha256))
    summary.usage = {name: count - before.get(name, 0) for name, count in job.judge.usage.items()}
    summary.seconds = time.monotonic() - start
    return summary


def _kept(partial: Partial) -> str:
    kept = f"{partial.records} records are kept in {partial.path}: the same command goes on from there"
    what = kept if partial.records else "no record is kept yet: give the same command again"
    return f"{what} when the judge is back, or with keep_going=True (--keep-going), which keeps such failures"


def _looked_at(logs: Path) -> _Input:
    digest, lines = hashlib.sha256(), 0
    with logs.open("rb") as handle:
        refuse_other_forms(handle, logs)
        for line in handle:
            digest.update(line)
            lines += bool(line.strip())
    if not lines:
        raise DataError(f"{logs}: empty; one conversation a line is expected")
    return _Input(digest.hexdigest(), None if logs.suffix == ".json" else lines)


def _check_paths(logs: Path, rubric: Rubric, target: Path) -> None:
    if not logs.is_file():
        raise DataError(f"{logs}: {_what_it_is(logs)}; a file is expected")
    if target.is_dir():  # "." has no name beside which a file could stand
        raise ConfigError(f"--out {target}: a folder; name a file in it")
    beside = rejected_path(target)
    check_output(target, [logs, *rubric.files], (beside, target.with_name(target.name + ".partial")))
    check_rejected(beside, f"--out {target}")


def _what_it_is(path: Path) -> str:
    kinds = {
        "there is no such file": not path.exists(),
        "a folder": path.is_dir(),
        "a pipe, which cannot be read twice": path.is_fifo(),
        "a socket": path.is_socket(),
    }
    return next((name for name, holds in kinds.items() if holds), "a device")


def _check_existing(job: _Job, run: str) -> None:
    """An output of another input, rubric, judge or setting is not replaced, nor is a file of another kind."""
    target = job.target
    if not target.is_file() or not target.stat().st_size:
        return
    with target.open("rb") as handle:
        line = handle.readline()
    try:
        row = json.loads(line)
        judgement = row["judgement"] if row["schema"] == "axiomrm/score-1" else {}
        held = [judgement[name] for name in ("rubric_hash", "judge_revision", "calibration")]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(
            f"--out {target}: exists and is no output of axiomrm score; name another file"
        ) from None
    mine = (job.rubric.hash, job.judge.judge_revision, job.judge.settings["calibration"])
    for name, theirs, ours in zip(("rubric", "judge", "calibrator"), held, mine, strict=True):
        if theirs != ours:
            raise ConfigError(
                f"--out {target}: holds scores by {_named(name, theirs)}, these would be by "
                f"{_named(name, ours)} ({job.rubric.id}): name another file, or --replace it"
            )
    if row.get("run", run) not in ("", run):
        raise ConfigError(
            f"--out {target}: holds scores of another input (it names {row['file']}), limit or setting; "
            "name another file, or --replace it"
        )


def _named(what: str, digest: str) -> str:
    return f"{what} {digest[:12]}" if digest else f"no {what}"


def rejected_path(target: Path) -> Path:
    """Where the rejected rows of an output stand."""
    return target.with_name(f"{target.name.removesuffix('.jsonl').removesuffix('.scored')}.rejected.jsonl")


def _entries(group: list[tuple[int, Candidates]], job: _Job) -> list[dict[str, Any]]:
    """One entry a record: its line, its rows and what of it was rejected."""
    file = str(job.logs)
    flat = [(line, side, trajectory) for line, found in group for side, trajectory in found]
    named = [t if t.id else t.model_copy(update={"id": f"{Path(file).name}:{line}"}) for line, _, t in flat]
    entries: dict[int, dict[str, Any]] = {
        line: {"line": line, "rows": [], "rejected": []} for line, _ in group
    }
    results = job.judge.score_many(named, job.rubric, batch=len(named))
    for (line, side, _), trajectory, result in zip(flat, named, results, strict=True):
        failure = result if isinstance(result, Failed) else _unreadable(result)
        if failure is not None:
            place = {"file": file, "line": line, "id": trajectory.id, "side": side}
            entries[line]["rejected"].append({**place, "kind": failure.kind, "reason": failure.detail})
        elif isinstance(result, Judgement):
            # Tokens are shared by a batch and spared by a cache: they are the run's, not the row's.
            own = {name: n for name, n in result.usage.items() if name not in job.judge.usage}
            own_result = result.model_copy(update={"usage": own})
            row = ScoreRow(file=file, line=line, id=trajectory.id, side=side, judgement=own_result)
            entries[line]["rows"].append(row.model_dump(mode="json", by_alias=True))
    return list(entries.values())


def _publish(partial: Partial, job: _Job, summary: Summary, run: str) -> None:
    """Write the outputs from the partial file, then remove it."""
    beside = rejected_path(job.target)
    with atomic_file(job.target) as handle:
        for row in _rows(partial, summary):
            handle.write(json.dumps({**row, "run": run}, ensure_ascii=False) + "\n")
        if summary.rejected:
            write_jsonl(beside, sorted(summary.rejected, key=lambda row: int(row["line"])))
        else:
            beside.unlink(missing_ok=True)
        if not summary.records:
            partial.remove()
            first = summary.rejected[0] if summary.rejected else {"line": 1, "reason": "holds no record"}
            others = len(summary.rejected) - 1
            more = f" (and {others} more; see {beside})" if others > 0 else ""
            raise DataError(f"{job.logs}:{first['line']}: {first['reason']}{more}")
    partial.remove()


def _rows(partial: Partial, summary: Summary) -> Iterator[dict[str, Any]]:
    for entry in partial.entries():
        summary.records += 1
        summary.rejected += entry["rejected"]
        for row in entry["rows"]:
            summary.count(Judgement.model_validate(row["judgement"]))
            yield row


def _unreadable(judgement: Judgement) -> Failed | None:
    """The reason, if there are verdicts and each of them failed for the input's sake."""
    verdicts = [verdict for _, _, verdict in judgement.all_verdicts()]
    failures = [v for v in verdicts if isinstance(v, Failed) and v.kind in INPUT_KINDS]
    return failures[0] if failures and len(failures) == len(verdicts) else None
