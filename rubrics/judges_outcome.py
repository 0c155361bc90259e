"""Judges over recorded metrics.

Metrics read (any may be absent): ``tests_passed``, ``tests_total`` · ``compiles``, ``starts`` or ``runs`` ·
``changed_paths`` (list) or ``files_changed`` · ``steps`` · ``retrievals`` · ``rows_scanned`` ·
``retrieved_ids`` · ``relevant_ids`` (also ``task.reference["relevant_ids"]``) · ``query_parses`` ·
``query_executes`` · ``statement_kinds`` (list of ``select``, ``update`` …) · ``runner_error`` (text: the
runner crashed).
"""

import math
from fnmatch import fnmatchcase
from typing import Any

from pydantic import Field, model_validator

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Verdict
from axiomrm.rubrics.judge_types import Arguments, metrics_of, number, recorded, scored

READ_ONLY = {"select", "with", "explain", "show", "describe", "pragma_read", "values"}


class Band(Arguments):
    """A penalty's severity: 0 up to ``free``, 1 from ``max`` on."""

    free: float = Field(ge=0)
    max: float

    @model_validator(mode="after")
    def _order(self) -> "Band":
        if self.max <= self.free:
            raise ValueError(f"max {self.max:g} must be above free {self.free:g}")
        return self


class Retrievals(Band):
    """As ``Band``, with the tools that count as retrieval where no metric is recorded."""

    tools: tuple[str, ...] = ("search", "retrieve", "open")


class Protected(Arguments):
    """Glob patterns of paths that must not change; ``**`` and ``*`` both cross folders."""

    protected: tuple[str, ...] = ("tests/**", "test_*.py", "*_test.py", "conftest.py")


class AtK(Arguments):
    """Cut of the ranking; ``None``: all retrieved ids."""

    k: int | None = Field(default=None, ge=1)


def severity(n: float, free: float, top: float) -> float:
    """(n − free)/(max − free) cut to [0, 1]."""
    return min(1.0, max(0.0, (n - free) / (top - free)))


def tests_passed(trajectory: Trajectory, turn: int | None, args: Arguments) -> Verdict:
    """Passed ÷ total."""
    total, missing = recorded(trajectory, "tests_total")
    if missing:
        return missing
    passed, missing = recorded(trajectory, "tests_passed")
    if missing:
        return missing
    total_n, broken = number(total, "tests_total")
    passed_n, broken_too = number(passed, "tests_passed")
    if broken or broken_too:
        return broken or broken_too or missing  # type: ignore[return-value]  # one of the first two is set
    if total_n == 0:
        return CannotAssess(reason="no test was run")
    if passed_n > total_n:
        return Failed(kind="infrastructure", detail=f"{passed_n:g} of {total_n:g} tests passed")
    return scored(passed_n / total_n, f"{passed_n:g}/{total_n:g}")


def runs_ok(trajectory: Trajectory, turn: int | None, args: Arguments) -> Verdict:
    """1 if it compiles and starts."""
    metrics = metrics_of(trajectory)
    if "compiles" in metrics and "starts" in metrics and not metrics.get("runner_error"):
        return _truth(metrics["compiles"] is True and metrics["starts"] is True)
    value, missing = recorded(trajectory, "runs")
    return missing or _bool(value, "runs")


def _bool(value: Any, name: str) -> Verdict:
    if not isinstance(value, bool):
        return Failed(kind="infrastructure", detail=f"metric {name!r} is {value!r}, true or false is needed")
    return _truth(value)


def _truth(value: bool) -> Verdict:
    return scored(float(value), "yes" if value else "no")


def _paths(value: Any) -> list[str] | None:
    ok = isinstance(value, list | tuple) and all(isinstance(p, str) for p in value)
    return [p.replace("\\", "/").removeprefix("./") for p in value] if ok else None


def tests_untouched(trajectory: Trajectory, turn: int | None, args: Protected) -> Verdict:
    """0 if a changed path matches ``args.protected``."""
    value, missing = recorded(trajectory, "changed_paths")
    if missing:
        return missing
    paths = _paths(value)
    if paths is None:
        return Failed(
            kind="infrastructure", detail=f"metric 'changed_paths' is {value!r}, a list is needed"[:300]
        )
    hit = [p for p in paths if any(_matches(p, g) for g in args.protected)]
    return scored(0.0, "touched", ", ".join(hit)[:300]) if hit else scored(1.0, "untouched")


def _matches(path: str, glob: str) -> bool:
    name = path.rpartition("/")[2]
    return fnmatchcase(path, glob) or ("/" not in glob and fnmatchcase(name, glob))


def files_changed(trajectory: Trajectory, turn: int | None, args: Band) -> Verdict:
    """Severity of the number of changed files."""
    value, missing = recorded(trajectory, "files_changed", "changed_paths")
    if missing:
        return missing
    paths = _paths(value)
    return _severity(len(set(paths)) if paths is not None else value, "files_changed", args)


def _severity(value: Any, name: str, args: Band) -> Verdict:
    n, broken = number(value, name)
    return broken or scored(severity(n, args.free, args.max), f"{n:g}")


def steps(trajectory: Trajectory, turn: int | None, args: Band) -> Verdict:
    """Severity of the number of steps: recorded, else assistant messages."""
    value = metrics_of(trajectory).get("steps")
    return _severity(len(trajectory.turns) if value is None else value, "steps", args)


def retrievals(trajectory: Trajectory, turn: int | None, args: Retrievals) -> Verdict:
    """Severity of the number of retrieval calls: recorded, else calls of ``args.tools``."""
    value = metrics_of(trajectory).get("retrievals")
    if value is None:
        value = sum(c.name in args.tools for m in trajectory.messages for c in m.tool_calls)
    return _severity(value, "retrievals", args)


def rows_scanned(trajectory: Trajectory, turn: int | None, args: Band) -> Verdict:
    """Severity of the scanned rows on a log10 scale."""
    value, missing = recorded(trajectory, "rows_scanned")
    if missing:
        return missing
    n, broken = number(value, "rows_scanned")
    if broken:
        return broken
    logs = [math.log10(max(1.0, x)) for x in (n, args.free, args.max)]
    return scored(severity(*logs), f"{n:g}")


def _ids(trajectory: Trajectory, args: AtK) -> tuple[list[str], set[str], Verdict | None]:
    value, missing = recorded(trajectory, "retrieved_ids")
    if missing:
        return [], set(), missing
    reference = trajectory.task.reference
    relevant = metrics_of(trajectory).get("relevant_ids")
    if relevant is None and isinstance(reference, dict):
        relevant = reference.get("relevant_ids")
    if relevant is None:
        return [], set(), CannotAssess(reason="neither metrics nor task.reference has 'relevant_ids'")
    if not isinstance(value, list | tuple) or not isinstance(relevant, list | tuple):
        return (
            [],
            set(),
            Failed(kind="infrastructure", detail="'retrieved_ids' and 'relevant_ids' must be lists"),
        )
    unique = list(dict.fromkeys(map(str, value)))
    return unique[: args.k], set(map(str, relevant)), None


def retrieval_recall(trajectory: Trajectory, turn: int | None, args: AtK) -> Verdict:
    """Share of the relevant ids that were retrieved."""
    got, relevant, missing = _ids(trajectory, args)
    if missing:
        return missing
    if not relevant:
        return scored(1.0, "nothing_relevant")
    return scored(len(relevant & set(got)) / len(relevant), "" if got else "nothing_retrieved")


def retrieval_precision(trajectory: Trajectory, turn: int | None, args: AtK) -> Verdict:
    """Share of the retrieved ids that are relevant; nothing retrieved: 0, or 1 if nothing is relevant."""
    got, relevant, missing = _ids(trajectory, args)
    if missing:
        return missing
    if not got:
        return scored(0.0, "nothing_retrieved") if relevant else scored(1.0, "nothing_relevant")
    return scored(len(relevant & set(got)) / len(got))


def query_syntax_ok(trajectory: Trajectory, turn: int | None, args: Arguments) -> Verdict:
    """The recorded parser result."""
    value, missing = recorded(trajectory, "query_parses")
    return missing or _bool(value, "query_parses")


def query_executes(trajectory: Trajectory, turn: int | None, args: Arguments) -> Verdict:
    """Executed without an error."""
    value, missing = recorded(trajectory, "query_executes")
    return missing or _bool(value, "query_executes")


def query_read_only(trajectory: Trajectory, turn: int | None, args: Arguments) -> Verdict:
    """Every recorded statement only reads; no statement = satisfied."""
    value, missing = recorded(trajectory, "statement_kinds")
    if missing:
        return missing
    if not isinstance(value, list | tuple):
        return Failed(
            kind="infrastructure", detail=f"metric 'statement_kinds' is {value!r}, a list is needed"[:300]
        )
    writing = sorted({str(k) for k in value if str(k).strip().casefold() not in READ_ONLY})
    return scored(0.0, "writes", ", ".join(writing)) if writing else scored(1.0, "read_only")
