"""Showing a run's progress: one bar in a terminal, plain lines elsewhere, nothing in a library call."""

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

PLAIN_EVERY_S = 10.0


class Reporter(Protocol):
    """Told what a run does."""

    def started(self, stage: str, number: int, total: int, resumed: bool) -> None:
        """A stage begins, or goes on from its own files if ``resumed``; numbers are 1-based."""

    def skipped(self, stage: str, number: int, total: int) -> None:
        """A stage had finished before."""

    def advanced(self, stage: str, message: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` steps; ``None``: how many is not known."""

    def finished(self, stage: str, metrics: Mapping[str, Any], seconds: float) -> None:
        """A stage is done and recorded."""

    def close(self) -> None:
        """The run ended, for whatever reason."""


class Silent:
    """Says nothing."""

    def started(self, stage: str, number: int, total: int, resumed: bool) -> None:
        """See `Reporter`."""

    def skipped(self, stage: str, number: int, total: int) -> None:
        """See `Reporter`."""

    def advanced(self, stage: str, message: str, done: int, total: int | None) -> None:
        """See `Reporter`."""

    def finished(self, stage: str, metrics: Mapping[str, Any], seconds: float) -> None:
        """See `Reporter`."""

    def close(self) -> None:
        """See `Reporter`."""


class Lines:
    """One line an event; steps of a stage at most every ten seconds and when complete."""

    def __init__(self, write: Callable[[str], object], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._last = clock()

    def started(self, stage: str, number: int, total: int, resumed: bool) -> None:
        """See `Reporter`."""
        self._last = self._clock()
        self._write(f"[{number}/{total}] {stage}: {'goes on where it was stopped' if resumed else 'started'}")

    def skipped(self, stage: str, number: int, total: int) -> None:
        """See `Reporter`."""
        self._write(f"[{number}/{total}] {stage}: finished before")

    def advanced(self, stage: str, message: str, done: int, total: int | None) -> None:
        """See `Reporter`."""
        now = self._clock()
        if now - self._last >= PLAIN_EVERY_S:
            self._last = now
            of = "" if total is None else f"/{total}"
            self._write(f"  {stage}: {message} {done}{of}")

    def finished(self, stage: str, metrics: Mapping[str, Any], seconds: float) -> None:
        """See `Reporter`."""
        self._write(f"  {stage}: done in {seconds:.1f} s{headline(metrics)}")

    def close(self) -> None:
        """See `Reporter`."""


class Bar:
    """A rich bar for the stage at work; finished stages stay as lines above it."""

    def __init__(self, console: Console) -> None:
        self._lines = Lines(lambda text: console.print(text, markup=False, highlight=False))
        columns = (
            TextColumn("  {task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._progress = Progress(*columns, console=console, transient=True)
        self._task: TaskID | None = None

    def started(self, stage: str, number: int, total: int, resumed: bool) -> None:
        """See `Reporter`."""
        self._lines.started(stage, number, total, resumed)
        self._progress.start()
        self._task = self._progress.add_task(stage, total=None)

    def skipped(self, stage: str, number: int, total: int) -> None:
        """See `Reporter`."""
        self._lines.skipped(stage, number, total)

    def advanced(self, stage: str, message: str, done: int, total: int | None) -> None:
        """See `Reporter`."""
        if self._task is not None:
            self._progress.update(self._task, description=f"{stage}: {message}", completed=done, total=total)

    def finished(self, stage: str, metrics: Mapping[str, Any], seconds: float) -> None:
        """See `Reporter`."""
        self._drop()
        self._lines.finished(stage, metrics, seconds)

    def close(self) -> None:
        """See `Reporter`."""
        self._drop()
        self._progress.stop()

    def _drop(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


def reporter_for_terminal() -> Reporter:
    """A bar if standard error is a terminal, plain lines otherwise; standard output stays free."""
    console = Console(stderr=True)
    if console.is_terminal:
        return Bar(console)
    return Lines(lambda text: print(text, file=sys.stderr, flush=True))


def headline(metrics: Mapping[str, Any], most: int = 4) -> str:
    """The first few plain numbers among a stage's metrics, as text to append to a line."""
    numbers = [(k, v) for k, v in metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)]
    return "".join(
        f" · {key} {value:.3g}" if isinstance(value, float) else f" · {key} {value}"
        for key, value in numbers[:most]
    )
