"""When a scoring run stops because its judge is away: what can still be judged later is not failed for good.

Counted are the verdicts of items that a model judges, without those that failed for the record's sake. Lost
are those that the engine or its server gave no answer to (``KINDS``). An answer that cannot be used is not
lost, nor is a programmatic judge's ``infrastructure``: that would be the same the next time.

A run stops for a group of which every verdict is lost. Scattered failures stop none, however many: their
share is told at the end (JUDGE.md a).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from axiomrm.data.verdict import FailureKind
from axiomrm.score_summary import INPUT_KINDS

KINDS: frozenset[FailureKind] = frozenset(
    {"timeout", "unreachable", "rate_limited", "engine_error", "cancelled"}
)
"""Failures of the engine and not of the answer."""
Entry = Mapping[str, Any]


def reason(entries: Sequence[Entry], items: frozenset[str]) -> str:
    """Why a run must stop before these entries of a group are kept; empty: it need not.

    Args:
        entries: of one group.
        items: ids that a model judges.
    """
    counted = [verdict for verdict in _counted(entries, items) if _kind(verdict) not in INPUT_KINDS]
    lost = [verdict for verdict in counted if _kind(verdict) in KINDS]
    if not lost or len(lost) < len(counted):
        return ""
    last = lost[-1]  # engines put no text of a record into their details
    return (
        f"all {len(lost)} verdicts of {_lines(entries)} were lost; the last: {last['kind']}: {last['detail']}"
    )


def _counted(entries: Sequence[Entry], items: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    for entry in entries:
        for name, verdict in _verdicts(entry):
            if name in items:
                yield verdict


def unfinished(entry: Entry) -> bool:
    """Whether a verdict of this entry is worth another try when the run goes on."""
    return any(_kind(verdict) in KINDS for _, verdict in _verdicts(entry))


def _verdicts(entry: Entry) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for row in entry["rows"]:
        for part in (row["judgement"], *row["judgement"]["turns"]):
            yield from part["verdicts"].items()


def _kind(verdict: Mapping[str, Any]) -> str:
    return str(verdict["kind"]) if verdict["status"] == "failed" else ""


def _lines(entries: Sequence[Entry]) -> str:
    first, last = entries[0]["line"], entries[-1]["line"]
    return f"line {first}" if first == last else f"lines {first} to {last}"
