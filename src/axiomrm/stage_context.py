"""What a stage of the pipeline is, and what it sees of its run.

Test hook: ``AXIOMRM_KILL_AT=<stage>:<point>[:<n>]`` makes the n-th ``kill_point`` of that name end the
process with SIGKILL. The runner itself has the points ``start``, ``end`` (before ``done.json``) and ``done``.
"""

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from axiomrm.config import RunConfig
from axiomrm.data.writing import atomic_file, json_line
from axiomrm.errors import ConfigError, DataError
from axiomrm.progress import Reporter, Silent
from axiomrm.stage_files import StageRecord

Metrics = Mapping[str, Any]


@dataclass
class StageContext:
    """What a stage sees of its run."""

    run_dir: Path
    stage_dir: Path
    """Exists; holds what an earlier attempt of this stage left."""
    config: RunConfig
    seed: int
    finished: Mapping[str, StageRecord] = field(default_factory=dict)
    """Records of the earlier stages."""
    reporter: Reporter = field(default_factory=Silent)
    _hits: dict[str, int] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        """This stage's name."""
        return self.stage_dir.name

    def artifact(self, stage: str, name: str) -> Path:
        """A file or folder that an earlier stage put out.

        Raises:
            ConfigError: that stage has not finished.
            DataError: it finished without such a file.
        """
        if stage not in self.finished:
            raise ConfigError(
                f"{self.stage} needs {stage}/{name}, but stage {stage!r} has not finished in {self.run_dir}"
            )
        path = self.run_dir / stage / name
        if not path.exists():
            raise DataError(f"{path}: not there although stage {stage!r} finished; run with --fresh")
        return path

    def metrics_of(self, stage: str) -> dict[str, Any] | None:
        """What an earlier stage returned; ``None``: it has not finished."""
        return dict(self.finished[stage].metrics) if stage in self.finished else None

    def progress(self, message: str, done: int, total: int | None) -> None:
        """Tell the user how far this stage is."""
        self.reporter.advanced(self.stage, message, done, total)

    @property
    def metrics_path(self) -> Path:
        """``metrics.jsonl`` of this stage."""
        return self.stage_dir / "metrics.jsonl"

    def log_metrics(self, row: Metrics) -> None:
        """Append one row to ``metrics.jsonl``; NaN is written as ``null``."""
        with self.metrics_path.open("a", encoding="utf-8") as handle:
            handle.write(json_line(row, str(self.metrics_path)))

    def logged_metrics(self) -> list[dict[str, Any]]:
        """The rows so far, those of interrupted attempts included."""
        if not self.metrics_path.exists():
            return []
        with self.metrics_path.open(encoding="utf-8") as handle:  # str.splitlines cuts at U+2028 and U+0085
            return [json.loads(line) for line in handle]

    def rewind_metrics(self, keep: Callable[[dict[str, Any]], bool]) -> None:
        """Drop rows that will be logged again, e.g. those after the checkpoint a stage resumes from."""
        rows = self.logged_metrics()
        with atomic_file(self.metrics_path) as handle:
            handle.writelines(json_line(row) for row in rows if keep(row))

    def kill_point(self, name: str) -> None:
        """Test hook: dies here with SIGKILL if ``AXIOMRM_KILL_AT`` asks for it."""
        wanted = os.environ.get("AXIOMRM_KILL_AT")
        if not wanted:
            return
        self._hits[name] = self._hits.get(name, 0) + 1
        if wanted in (f"{self.stage}:{name}", f"{self.stage}:{name}:{self._hits[name]}"):
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Stage:
    """One step of the pipeline."""

    name: str
    """Also its folder."""
    run: Callable[[StageContext], Metrics]
    """Does the work, going on from its own files in ``stage_dir``; returns the metrics for ``done.json``."""
    check: Callable[[RunConfig], None] | None = None
    """Refuses what would fail only when the stage's turn comes; asked before the first stage runs."""
