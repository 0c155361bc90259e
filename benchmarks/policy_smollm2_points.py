"""The measured points of ``policy_smollm2.py``: a JSON line each, and what is said of one."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from axiomrm.data.trajectory import canonical_json
from axiomrm.eval.bootstrap import bootstrap, paired_difference
from axiomrm.eval.estimate import wilson

Point = dict[str, Any]


class Points:
    """The measured points, one line each; a line cut by a kill is none."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path, self.digest = path, digest

    def all(self) -> list[Point]:
        """Those of this run."""
        return [point for point in self._lines() if point["digest"] == self.digest]

    def digests(self) -> set[str]:
        """Every run in the file."""
        return {point["digest"] for point in self._lines()}

    def _lines(self) -> Iterator[Point]:
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else ():
            with suppress(ValueError):
                yield json.loads(line)

    def at(self, split: str, iteration: int, temperature: float) -> Point | None:
        """A point, if it is there."""
        wanted = (split, iteration, temperature)
        return next((p for p in self.all() if (p["split"], p["iteration"], p["temperature"]) == wanted), None)

    def add(self, point: Point) -> None:
        """One line in one write."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self.path.exists() and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(("\n" if torn else "") + canonical_json({"digest": self.digest} | point) + "\n")
            handle.flush()
            os.fsync(handle.fileno())


def success_of(outcomes: Iterable[float | None]) -> Point:
    """Mean outcome with its bootstrap interval over tasks; Wilson where all outcomes agree ([1, 1] claims too
    much)."""
    values = [_number(value) for value in outcomes]
    found = bootstrap(values, unit="tasks")
    if found.value in (0.0, 1.0):
        found = wilson(found.value * found.n, found.n, missing=found.missing)
    return found.model_dump()


def gain_over(start: Point, outcomes: dict[str, float]) -> Point:
    """Outcomes minus those of the start, task by task; one that is missing on either side is missing."""
    before = [_number(start["outcomes"][task]) for task in outcomes]
    return paired_difference(list(outcomes.values()), before, unit="tasks").model_dump()


def shown(point: Point) -> str:
    """Success and gain in per cent."""
    texts = []
    for name in ("success", "gain"):
        e = point[name]
        if e is not None and e["value"] is not None:
            ends = "" if e["low"] is None else f" [{100 * e['low']:.1f}, {100 * e['high']:.1f}]"
            texts.append(f"{name} {100 * e['value']:.1f}{ends}")
    return ", ".join(texts) or "not measured"


def _number(value: float | None) -> float:
    return float("nan") if value is None else value
