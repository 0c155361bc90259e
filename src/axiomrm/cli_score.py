"""``axiomrm score``: chat logs or preference pairs in, one judgement a line out."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import Progress, rejected_path, score_file
from axiomrm.score_summary import Summary, items_for_a_model

FAILURE_LIMIT = 0.05
"""Share of failed verdicts above which the exit code is 1; input that no judge could read does not count."""
TOLD_EVERY_S = 10.0
MODES = ("direct", "critique")


def score(
    logs: Annotated[Path, typer.Argument(help="chat logs (OpenAI format) or pairs (context, a, b), JSONL")],
    rubric: Annotated[str, typer.Option("--rubric", "-r", help="library name or YAML file")],
    model: Annotated[str | None, typer.Option(help="checkpoint folder, hub id, or URLs of servers")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="read at most so many records")] = None,
    mode: Annotated[str, typer.Option(help="direct or critique")] = "direct",
    joint: Annotated[int, typer.Option(min=1, help="criteria asked in one prompt, at most")] = 1,
    out: Annotated[Path | None, typer.Option(help="output; default: LOGS.RUBRIC.scored.jsonl, here")] = None,
    replace: Annotated[bool, typer.Option(help="replace scores by another rubric or judge")] = False,
    cache: Annotated[
        str | None,
        typer.Option(help="keep readings: SQLite file, postgresql:// URL, 'on' (default place) or 'off'"),
    ] = None,
    engine: Annotated[str, typer.Option(help="for a local model: transformers or vllm")] = "transformers",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or auto")] = "float32",
    served_model: Annotated[str, typer.Option(help="model name at a server")] = "",
    tokenizer: Annotated[str | None, typer.Option(help="of a server's model: it is sent token ids")] = None,
    patience: Annotated[float, typer.Option(min=0.1, help="seconds for one answer of a server")] = 60.0,
    concurrency: Annotated[int, typer.Option(min=1, help="requests in flight at each server")] = 8,
    rpm: Annotated[float | None, typer.Option(help="requests a minute to each server")] = None,
) -> None:
    """Score each conversation with a rubric; without --model only its programmatic and constraint items.

    A killed run goes on where it was when the same command is given again. Readings of a local model are kept
    in the user's cache unless --cache says otherwise; those of a server only if it says so, because what
    model stands behind a URL can change.
    """
    if mode not in MODES:
        raise typer.BadParameter(f"{mode!r} is neither 'direct' nor 'critique'", param_hint="--mode")
    if not logs.exists():
        raise DataError(f"{logs}: no such file")
    loaded = Rubric.load(rubric)
    if model is None:
        _say_what_needs_a_model(loaded)
    local = {"dtype": dtype, **({} if engine == "transformers" else {"engine": engine})}
    server = {"model": served_model, "tokenizer": tokenizer, "concurrency": concurrency, "rpm": rpm}
    judge = _judge(model, mode, local, {**server, "deadline_s": patience}).with_settings(joint=joint)
    judge = _cached(judge, cache, model)
    target = out or Path(f"{logs.stem}.{loaded.id}.scored.jsonl")
    summary = score_file(logs, loaded, judge, target, limit=limit, replace=replace, told=_teller())
    for line in report(summary, target, judge):
        typer.echo(line)
    if summary.failure_share > FAILURE_LIMIT:
        typer.echo(f"more than {FAILURE_LIMIT:.0%} of the verdicts failed", err=True)
        raise typer.Exit(1)


def report(summary: Summary, target: Path, judge: RewardModel) -> Iterator[str]:
    """The summary, line by line."""
    yield from summary.lines()
    if judge.engine is not None and judge.asking.untrained:
        yield "  this model was never trained as a judge: min_mass 0, verdicts flagged untrained_judge"
    if summary.rejected:
        kinds = Counter(str(row.get("kind", "unreadable")) for row in summary.rejected)
        listed = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
        yield f"  rejected: {len(summary.rejected)} ({listed}) in {rejected_path(target)}"
    yield f"written: {target}"


def _say_what_needs_a_model(rubric: Rubric) -> None:
    needing = items_for_a_model(rubric)
    if not needing:
        return
    judged = [item for item in (*rubric.axioms, *rubric.theorems) if getattr(item, "type", "") != "premise"]
    said = f"no model given: {len(needing)} of {len(judged)} items of rubric {rubric.id!r} need one: --model"
    if len(needing) == len(judged):
        raise ConfigError(f"{said} FOLDER, hub id or URL")
    typer.echo(f"{said} (the others are judged)", err=True)


def _judge(model: str | None, mode: Any, local: Mapping[str, Any], server: Mapping[str, Any]) -> RewardModel:
    if model is None:
        return RewardModel.programmatic()
    if model.startswith(("http://", "https://")):
        return RewardModel.connect(model.split(","), mode=mode, **server)
    if _looks_like_a_path(model) and not Path(model).is_dir():
        what = "is a file, not a folder" if Path(model).is_file() else "there is no such folder"
        raise ConfigError(f"--model {model}: {what}; expected a checkpoint folder, a hub id or a URL")
    return RewardModel.from_pretrained(model, mode=mode, **local)


def _looks_like_a_path(model: str) -> bool:
    """A hub id is NAME or OWNER/NAME; what starts in a folder that exists is meant as a path."""
    parts = model.split("/")
    return len(parts) > 2 or parts[0] in ("", ".", "..", "~") or (len(parts) == 2 and Path(parts[0]).is_dir())


def _cached(judge: RewardModel, cache: str | None, model: str | None) -> RewardModel:
    if judge.engine is None or cache == "off" or (cache is None and (model or "").startswith("http")):
        return judge
    from axiomrm.rm.cache import with_cache
    from axiomrm.rm.cache_sql import default_place

    try:
        return with_cache(judge, default_place() if cache in (None, "on") else cache)
    except ConfigError as error:
        if cache is not None:
            raise
        typer.echo(f"no readings are kept: {error}", err=True)
        return judge


def _teller() -> Callable[[Progress], None]:
    """Says on standard error how far the run is, how fast and how long it will take, every ten seconds."""
    last = time.monotonic()

    def tell(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= TOLD_EVERY_S:
            last = time.monotonic()
            typer.echo(progress_line(progress), file=sys.stderr)

    return tell


def progress_line(progress: Progress) -> str:
    """Records done, rate, and time left where the number of records is known."""
    rate = (progress.records - progress.resumed) / progress.seconds if progress.seconds else 0.0
    of = "" if progress.total is None else f" of {progress.total}"
    left = ""
    if progress.total is not None and rate:
        seconds = max(0, progress.total - progress.records) / rate
        left = f", {seconds / 60:.0f} min left" if seconds >= 120 else f", {seconds:.0f} s left"
    return f"  {progress.records}{of} records, {rate:.2f}/s{left}"


def schema_text() -> str:
    """The published JSON Schema of a row, as it stands in ``rm/schema/score-1.json``."""
    from axiomrm.rm.judgement import score_schema

    return json.dumps(score_schema(), indent=1, sort_keys=True) + "\n"
