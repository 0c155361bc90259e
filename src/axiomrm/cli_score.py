"""``axiomrm score``: chat logs or preference pairs in, one judgement a line out."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from axiomrm.data.jsonl import Rejected
from axiomrm.data.openai_chat import to_messages, to_trajectory
from axiomrm.data.reading import stream_records
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.data.writing import atomic_file, write_jsonl
from axiomrm.errors import DataError
from axiomrm.rm.judgement import Judgement, ScoreRow, outcome
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric

BATCH = 32
FAILURE_LIMIT = 0.05
"""Share of failed verdicts above which the exit code is 1; input that no judge could read does not count."""
INPUT_KINDS = frozenset({"context_overflow", "bad_input"})
Side = Literal["a", "b"] | None


@dataclass
class Summary:
    """What a run did."""

    records: int = 0
    scored: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    """By outcome, of the conversations that were scored; rejected ones are counted apart."""
    rewards: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def failure_share(self) -> float:
        """Failed verdicts over all verdicts, without those whose input could not be read."""
        failed = sum(n for kind, n in self.verdicts.items() if _counts_as_failure(kind))
        total = sum(self.verdicts.values()) - sum(self.verdicts[f"failed:{kind}"] for kind in INPUT_KINDS)
        return failed / total if total else 0.0


def score(
    logs: Annotated[Path, typer.Argument(help="chat logs (OpenAI format) or pairs (context, a, b), JSONL")],
    rubric: Annotated[str, typer.Option("--rubric", "-r", help="library name or YAML file")],
    model: Annotated[str | None, typer.Option(help="checkpoint folder, hub id, or URL of a server")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="read at most so many records")] = None,
    mode: Annotated[str, typer.Option(help="direct or critique")] = "direct",
    out: Annotated[Path | None, typer.Option(help="output; default: LOGS.scored.jsonl, here")] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16")] = "float32",
    served_model: Annotated[str, typer.Option(help="model name at a server")] = "",
    patience: Annotated[float, typer.Option(min=0.1, help="seconds for one answer of a server")] = 60.0,
) -> None:
    """Score each conversation with a rubric; without --model only its programmatic and constraint items."""
    if mode not in ("direct", "critique"):
        raise typer.BadParameter(f"{mode!r} is neither 'direct' nor 'critique'", param_hint="--mode")
    judge = _judge(model, mode, dtype, served_model, patience)
    target = out or Path(f"{logs.stem}.scored.jsonl")
    summary = score_file(logs, Rubric.load(rubric), judge, target, limit)
    for line in report(summary, target, judge):
        typer.echo(line)
    if judge.engine is not None and summary.failure_share > FAILURE_LIMIT:
        raise typer.Exit(1)


def score_file(
    logs: Path, rubric: Rubric, judge: RewardModel, target: Path, limit: int | None = None
) -> Summary:
    """Score a file; rows appear in ``target`` whole or not at all, rejected ones in ``*.rejected.jsonl``.

    Raises:
        DataError: there is no such file, or nothing in it could be read.
    """
    summary, bad = Summary(), list[Rejected]()
    start = time.monotonic()
    records = islice(stream_records(logs, candidates, bad), limit)
    with atomic_file(target) as handle:
        while group := list(islice(records, BATCH)):
            summary.records += len(group)
            for row in _rows(group, rubric, judge, str(logs), summary):
                handle.write(row.model_dump_json(by_alias=True) + "\n")
    summary.rejected = [item._asdict() for item in bad] + summary.rejected
    summary.seconds = time.monotonic() - start
    beside = rejected_path(target)
    if summary.rejected:
        write_jsonl(beside, summary.rejected)
    else:
        beside.unlink(missing_ok=True)
    if not summary.records and bad:
        raise DataError(f"{bad[0]} (and {len(bad) - 1} more; see {beside})")
    return summary


def candidates(record: Mapping[str, Any]) -> list[tuple[Side, Trajectory]]:
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


def report(summary: Summary, target: Path, judge: RewardModel) -> Iterator[str]:
    """The summary, line by line."""
    total = sum(summary.verdicts.values())
    rate = summary.scored / summary.seconds if summary.seconds else 0.0
    took = f"{summary.seconds:.1f} s ({rate:.2f}/s)"
    yield f"{summary.scored} conversations of {summary.records} records scored in {took}"
    for kind, count in sorted(summary.verdicts.items()):
        yield f"  verdicts {kind}: {count} ({count / total:.1%})"
    if judge.engine is None and total:
        yield "  without --model: items that need a judge model have no verdict"
    elif judge.asking.untrained:
        yield "  this model was never trained as a judge: min_mass 0, verdicts flagged untrained_judge"
    known = len(summary.rewards)
    mean = f"mean {sum(summary.rewards) / known:.3f}" if known else "no mean"
    yield f"  rewards: {known} of {summary.scored}, {mean}"
    if summary.rejected:
        kinds = Counter(str(row.get("kind", "unreadable")) for row in summary.rejected)
        listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        yield f"  rejected: {len(summary.rejected)} ({listed}) in {rejected_path(target)}"
    yield f"written: {target}"


def rejected_path(target: Path) -> Path:
    """Where the rejected rows of an output stand."""
    return target.with_name(f"{target.name.removesuffix('.jsonl').removesuffix('.scored')}.rejected.jsonl")


def _judge(model: str | None, mode: Any, dtype: str, served_model: str, patience: float) -> RewardModel:
    if model is None:
        return RewardModel.programmatic()
    if model.startswith(("http://", "https://")):
        return RewardModel.connect(model, model=served_model, mode=mode, deadline_s=patience)
    return RewardModel.from_pretrained(model, mode=mode, dtype=dtype)


def _rows(
    group: list[tuple[int, list[tuple[Side, Trajectory]]]],
    rubric: Rubric,
    judge: RewardModel,
    file: str,
    summary: Summary,
) -> Iterator[ScoreRow]:
    flat = [(line, side, trajectory) for line, found in group for side, trajectory in found]
    named = [t if t.id else t.model_copy(update={"id": f"{Path(file).name}:{line}"}) for line, _, t in flat]
    results = judge.score_many(named, rubric, batch=len(named))
    for (line, side, _), trajectory, result in zip(flat, named, results, strict=True):
        failure = result if isinstance(result, Failed) else _unreadable(result)
        if failure is not None:
            place = {"file": file, "line": line, "id": trajectory.id, "side": side}
            summary.rejected.append({**place, "kind": failure.kind, "reason": failure.detail})
        elif isinstance(result, Judgement):
            summary.scored += 1
            summary.verdicts.update(outcome(verdict) for _, _, verdict in result.all_verdicts())
            summary.rewards += [] if result.reward is None else [result.reward]
            yield ScoreRow(file=file, line=line, id=trajectory.id, side=side, judgement=result)


def _unreadable(judgement: Judgement) -> Failed | None:
    """The reason, if there are verdicts and each of them failed for the input's sake."""
    verdicts = [verdict for _, _, verdict in judgement.all_verdicts()]
    failures = [v for v in verdicts if isinstance(v, Failed) and v.kind in INPUT_KINDS]
    return failures[0] if failures and len(failures) == len(verdicts) else None


def _counts_as_failure(kind: str) -> bool:
    return kind.startswith("failed:") and kind.removeprefix("failed:") not in INPUT_KINDS


def schema_text() -> str:
    """The published JSON Schema of a row, as it stands in ``rm/schema/score-1.json``."""
    from axiomrm.rm.judgement import score_schema

    return json.dumps(score_schema(), indent=1, sort_keys=True) + "\n"
