"""A stored success for a group in which every rollout failed (GUI-ARPO's idea, arXiv:2505.16282).

The success stands outside the group's baselines and is replayed with weight at most 1: imitation, not a
policy gradient, and logged as ``replay/rescued``.

Deviations, numbered: (1) one success a task is stored, the newest, and it does not age; (2) its advantage
is the outcome term against today's running statistic, never a turn's.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from axiomrm.policy_opt.behaviour import SOLVED
from axiomrm.policy_opt.records import TrajectoryRecord, from_json, to_json
from axiomrm.policy_opt.replay.buffer import is_of
from axiomrm.policy_opt.step_returns import scorable


def failed_tasks(fresh: Sequence[TrajectoryRecord]) -> list[str]:
    """The task of each group whose known outcomes (one at least) are all failures, in the order they came."""
    groups: dict[str, list[TrajectoryRecord]] = {}
    for record in fresh:
        if scorable(record) and not np.isnan(record.outcome):
            groups.setdefault(record.group_id, []).append(record)
    return [rows[0].task_id for rows in groups.values() if all(r.outcome < SOLVED for r in rows)]


class SuccessStore:
    """The newest success of each task."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        """Tasks; the one whose success is oldest leaves first."""
        self.records: dict[str, TrajectoryRecord] = {}

    def add(self, fresh: Sequence[TrajectoryRecord]) -> None:
        """Keep a copy of what succeeded."""
        for record in fresh:
            if scorable(record) and record.outcome >= SOLVED:
                self.records.pop(record.task_id, None)
                # A copy: uses and weights of the buffer's own record must not be shared.
                steps = [replace(step) for step in record.steps]
                self.records[record.task_id] = replace(record, steps=steps)
        for task in list(self.records)[: max(0, len(self.records) - self.capacity)]:
            del self.records[task]

    def for_failed(self, fresh: Sequence[TrajectoryRecord]) -> list[TrajectoryRecord]:
        """One stored success for each failed group whose task has one; a task serves once."""
        tasks = dict.fromkeys(failed_tasks(fresh))
        return [self.records[task] for task in tasks if task in self.records]

    def forget(self, subject: str) -> int:
        """Consent withdrawn: the subject's records are gone; returns how many."""
        gone = [task for task, record in self.records.items() if is_of(record, subject)]
        for task in gone:
            del self.records[task]
        return len(gone)

    def state_dict(self) -> list[dict[str, Any]]:
        """Plain values for the checkpoint, oldest first."""
        return [to_json(record) for record in self.records.values()]

    def load_state_dict(self, state: Sequence[dict[str, Any]]) -> None:
        """The inverse of ``state_dict``."""
        records = [from_json(row) for row in state]
        self.records = {record.task_id: record for record in records}
