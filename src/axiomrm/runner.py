"""Running a list of stages in a run folder so that it can be killed at any moment and started again.

``runs/<name>/`` holds ``config.yaml`` (resolved), ``manifest.json`` (what the run is made from),
``events.jsonl`` and one folder a stage. A stage folder holds the stage's own files, ``start.json`` (written
first) and ``done.json`` (written last, atomically): metrics, hashes of the outputs, and the hash of all that
earlier stages had put out. A stage with a ``done.json`` is not run again unless an earlier stage's outputs
changed; one without is entered again and goes on from its own files.
"""

import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from axiomrm.config import RunConfig, save_config
from axiomrm.data.trajectory import finite_json
from axiomrm.data.writing import atomic_file, json_line
from axiomrm.errors import ConfigError
from axiomrm.manifest import build_manifest, check_same_run, read_manifest, write_manifest
from axiomrm.progress import Reporter, Silent
from axiomrm.runlock import GUARD, LOCK, run_lock
from axiomrm.stage_context import Stage, StageContext
from axiomrm.stage_files import (
    StageRecord,
    clean_partial,
    output_hashes,
    read_record,
    upstream_hash,
    write_record,
)

__all__ = ["Interrupted", "RunResult", "Stage", "StageContext", "read_run", "run_one", "run_pipeline"]

BEFORE_MANIFEST = {LOCK, GUARD, "config.yaml"}


class Interrupted(KeyboardInterrupt):
    """A run was stopped, by what is its cause, after it had begun: started again, it goes on."""


@dataclass(frozen=True)
class RunResult:
    """A run as far as it went."""

    run_dir: Path
    records: Mapping[str, StageRecord]

    @property
    def metrics(self) -> dict[str, dict[str, Any]]:
        """Metrics by finished stage."""
        return {name: dict(record.metrics) for name, record in self.records.items()}


def run_pipeline(
    stages: Sequence[Stage],
    config: RunConfig,
    runs_root: Path,
    *,
    fresh: bool = False,
    until: str | None = None,
    accept_code_change: bool = False,
    reporter: Reporter | None = None,
) -> RunResult:
    """Run what is not done yet.

    Args:
        stages: in order; each may read what earlier ones put out.
        config: the run; ``config.name`` is the folder under ``runs_root``.
        runs_root: made if absent.
        fresh: delete what an earlier run left in the folder.
        until: last stage to run.
        accept_code_change: go on with a run that other code or library versions began; the manifest
            records both.
        reporter: told what happens.

    Raises:
        ConfigError: the folder belongs to another configuration, is in use, or is no run folder; or a stage
            that is still to come refuses the configuration; or a launcher started several processes.
        Interrupted: Ctrl-C or a signal, once the run can go on from its folder.
    """
    _refuse_launchers()
    wanted = _up_to(stages, until)
    run_dir = runs_root / config.name
    _check_config(wanted, config, run_dir, fresh=fresh)
    manifest = build_manifest(config)  # before anything is made or deleted: it refuses an absent base
    _make_folder(run_dir, runs_root)
    with run_lock(run_dir):
        _prepare(run_dir, config, manifest, fresh=fresh, accept_code_change=accept_code_change)
        return RunResult(run_dir, _run_to_the_end(wanted, config, run_dir, reporter or Silent()))


def run_one(stage: Stage, run_dir: Path, config: RunConfig, reporter: Reporter | None = None) -> StageRecord:
    """Run one stage of an existing run again, from nothing, on what others finished (for the report)."""
    reporter = reporter or Silent()
    with run_lock(run_dir):
        finished = {name: record for name, record in read_run(run_dir).records.items() if name != stage.name}
        try:
            shutil.rmtree(run_dir / stage.name, ignore_errors=True)
            return _run_stage(stage, _context(run_dir, stage.name, config, finished, reporter), (1, 1))
        finally:
            reporter.close()


def read_run(run_dir: Path) -> RunResult:
    """The finished stages of a run folder, in the order in which they finished.

    Raises:
        ConfigError: no run folder.
    """
    if read_manifest(run_dir) is None:
        raise ConfigError(
            f"{run_dir}: not a run folder (no manifest.json); start one with: axiomrm run CONFIG"
        )
    found = {done.parent.name: read_record(done.parent) for done in run_dir.glob("*/done.json")}
    records = {name: record for name, record in found.items() if record is not None}
    return RunResult(run_dir, dict(sorted(records.items(), key=lambda item: item[1].finished_at)))


def _up_to(stages: Sequence[Stage], until: str | None) -> list[Stage]:
    names = [stage.name for stage in stages]
    if until is None:
        return list(stages)
    if until not in names:
        raise ConfigError(f"there is no stage {until!r}; stages: {', '.join(names)}")
    return list(stages[: names.index(until) + 1])


def _refuse_launchers() -> None:
    if (processes := os.environ.get("WORLD_SIZE", "1")) not in ("", "1"):
        raise ConfigError(
            f"WORLD_SIZE={processes}: the pipeline runs in one process; for several give "
            "PolicyTrainer an Accelerator in a script of your own (docs/policy.md, Large models)"
        )


def _check_config(stages: Sequence[Stage], config: RunConfig, run_dir: Path, *, fresh: bool) -> None:
    """Let every stage that is still to come refuse the configuration."""
    for stage in stages:
        if stage.check is not None and (fresh or not (run_dir / stage.name / "done.json").exists()):
            stage.check(config)


def _make_folder(run_dir: Path, runs_root: Path) -> None:
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        why = "a file is in the way" if in_the_way else error.strerror or error
        raise ConfigError(f"--runs-dir {runs_root}: {run_dir} cannot be a folder, {why}") from error


def _prepare(
    run_dir: Path, config: RunConfig, manifest: dict[str, Any], *, fresh: bool, accept_code_change: bool
) -> None:
    """Make the folder this run's own, or refuse."""
    for leftover in run_dir.glob(".*.tmp"):
        leftover.unlink()
    old = None if fresh else read_manifest(run_dir)
    if fresh:
        _delete_run(run_dir)
    elif old is None:
        _refuse_strangers(run_dir)
    if old is not None:
        manifest = check_same_run(run_dir, old, manifest, accept_code_change=accept_code_change)
    save_config(config, run_dir / "config.yaml")
    if manifest != old:
        write_manifest(run_dir, manifest)


def _delete_run(run_dir: Path) -> None:
    if not (run_dir / "manifest.json").exists():
        _refuse_strangers(run_dir)
    for path in run_dir.iterdir():
        if path.name in (LOCK, GUARD, "manifest.json"):
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    (run_dir / "manifest.json").unlink(
        missing_ok=True
    )  # last: without it the folder is not deletable any more


def _refuse_strangers(run_dir: Path) -> None:
    strangers = sorted(
        p.name for p in run_dir.iterdir() if p.name not in BEFORE_MANIFEST and not p.name.endswith(".tmp")
    )
    if strangers:
        raise ConfigError(
            f"{run_dir}: holds {strangers[:3]!r} but no manifest.json: no run folder; use another --name"
        )


def _run_to_the_end(
    stages: Sequence[Stage], config: RunConfig, run_dir: Path, reporter: Reporter
) -> dict[str, StageRecord]:
    try:
        return _run_stages(stages, config, run_dir, reporter)
    except KeyboardInterrupt as stop:
        raise Interrupted from stop
    finally:
        reporter.close()


def _run_stages(
    stages: Sequence[Stage], config: RunConfig, run_dir: Path, reporter: Reporter
) -> dict[str, StageRecord]:
    finished: dict[str, StageRecord] = {}
    for number, stage in enumerate(stages, start=1):
        context = _context(run_dir, stage.name, config, dict(finished), reporter)
        record = _finished_record(context)
        if record is None:
            record = _run_stage(stage, context, (number, len(stages)))
        else:
            reporter.skipped(stage.name, number, len(stages))
        finished[stage.name] = record
    return finished


def _context(
    run_dir: Path, stage: str, config: RunConfig, finished: Mapping[str, StageRecord], reporter: Reporter
) -> StageContext:
    return StageContext(run_dir, run_dir / stage, config, config.seed, finished, reporter)


def _finished_record(context: StageContext) -> StageRecord | None:
    """The record of a stage that need not run; a stage made from other outputs is emptied first."""
    record = read_record(context.stage_dir)
    upstream = upstream_hash(context.finished)
    begun = context.stage_dir / "start.json"
    if begun.exists() and json.loads(begun.read_text(encoding="utf-8"))["upstream"] != upstream:
        shutil.rmtree(context.stage_dir)
        return None
    if record is None:
        return None
    changed = [n for n, h in output_hashes(context.stage_dir).items() if record.outputs.get(n) != h]
    gone = [name for name in record.outputs if not (context.stage_dir / name).exists()]
    if changed or gone:
        raise ConfigError(
            f"{context.stage_dir / (changed + gone)[0]}: {'changed' if changed else 'deleted'} after the "
            f"stage finished; delete the folder {context.stage_dir} to run it again, or use --fresh"
        )
    return record


def _run_stage(stage: Stage, context: StageContext, position: tuple[int, int]) -> StageRecord:
    resumed = (context.stage_dir / "start.json").exists()
    context.stage_dir.mkdir(exist_ok=True)
    clean_partial(context.stage_dir)
    if not resumed:
        with atomic_file(context.stage_dir / "start.json") as handle:
            json.dump({"stage": stage.name, "upstream": upstream_hash(context.finished)}, handle)
    _event(context, "resumed" if resumed else "started")
    context.reporter.started(stage.name, *position, resumed)
    context.kill_point("start")
    started = time.perf_counter()
    metrics = finite_json(dict(stage.run(context)))  # as a later process will read them
    seconds = time.perf_counter() - started
    context.kill_point("end")
    record = StageRecord(
        stage=stage.name,
        metrics=metrics,
        outputs=output_hashes(context.stage_dir),
        upstream=upstream_hash(context.finished),
        seconds=seconds,
        peak_rss_mib=_peak_rss_mib(),
        resumed=resumed,
        finished_at=_now(),
    )
    write_record(context.stage_dir, record)
    context.kill_point("done")
    _event(context, "finished")
    context.reporter.finished(stage.name, metrics, seconds)
    return record


def _event(context: StageContext, what: str) -> None:
    with (context.run_dir / "events.jsonl").open("a", encoding="utf-8") as handle:
        handle.write(json_line({"at": _now(), "stage": context.stage, "event": what, "pid": os.getpid()}))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _peak_rss_mib() -> float:
    """Greatest resident size of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
