"""``axiomrm score``: chat logs or preference pairs in, one judgement a line out."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import Summary, rejected_path, score_file

FAILURE_LIMIT = 0.05
"""Share of failed verdicts above which the exit code is 1; input that no judge could read does not count."""
TOLD_EVERY_S = 10.0


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
    """Score each conversation with a rubric; without --model only its programmatic and constraint items.

    A killed run goes on where it was when the same command is given again.
    """
    if mode not in ("direct", "critique"):
        raise typer.BadParameter(f"{mode!r} is neither 'direct' nor 'critique'", param_hint="--mode")
    loaded = Rubric.load(rubric)
    judge = _judge(model, mode, dtype, served_model, patience)
    target = out or Path(f"{logs.stem}.scored.jsonl")
    summary = score_file(logs, loaded, judge, target, limit, _teller())
    for line in report(summary, target, judge):
        typer.echo(line)
    if judge.engine is not None and summary.failure_share > FAILURE_LIMIT:
        raise typer.Exit(1)


def report(summary: Summary, target: Path, judge: RewardModel) -> Iterator[str]:
    """The summary, line by line."""
    total = sum(summary.verdicts.values())
    rate = summary.judged / summary.seconds if summary.seconds else 0.0
    took = f"{summary.seconds:.1f} s ({rate:.2f}/s)"
    again = f"; {summary.resumed} records were judged before" if summary.resumed else ""
    yield f"{summary.scored} conversations of {summary.records} records scored in {took}{again}"
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


def _judge(model: str | None, mode: Any, dtype: str, served_model: str, patience: float) -> RewardModel:
    if model is None:
        return RewardModel.programmatic()
    if model.startswith(("http://", "https://")):
        return RewardModel.connect(model, model=served_model, mode=mode, deadline_s=patience)
    return RewardModel.from_pretrained(model, mode=mode, dtype=dtype)


def _teller() -> Callable[[int], None]:
    """Says on standard error how far the run is, at most every ten seconds."""
    start = last = time.monotonic()

    def tell(records: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= TOLD_EVERY_S:
            last = now
            typer.echo(f"  {records} conversations after {now - start:.0f} s", file=sys.stderr)

    return tell


def schema_text() -> str:
    """The published JSON Schema of a row, as it stands in ``rm/schema/score-1.json``."""
    from axiomrm.rm.judgement import score_schema

    return json.dumps(score_schema(), indent=1, sort_keys=True) + "\n"
