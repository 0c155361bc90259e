"""Rejection sampling: keep the best rollouts of each group, cross-entropy on their action tokens, repeat.

RAFT (arXiv:2304.06767): sample K rollouts a task from the current policy, keep the ``keep`` best with ``R
>= threshold``, minimise ``-mean log pi`` over their action tokens, sample again from the new policy. A
serious rival of policy gradients on long tasks.

Deviations, numbered: (1) a group without a rollout at or above the threshold teaches nothing, where RAFT
keeps its best whatever it is; (2) ties are broken by the judge's mean, then by rollout order; (3) exact
duplicates count once.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from axiomrm.policy_opt.algorithms.base import LossParts, OnPolicy, unmasked
from axiomrm.policy_opt.behaviour import SLACK
from axiomrm.policy_opt.config import BestOfKConfig
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import TrajectoryRecord, check_tokens
from axiomrm.policy_opt.step_returns import judge_score, scorable


def select_best(
    records: Sequence[TrajectoryRecord], *, keep: int, threshold: float
) -> list[TrajectoryRecord]:
    """The ``keep`` best rollouts of each group whose outcome (missing = not kept) reaches ``threshold``."""
    groups: dict[str, list[TrajectoryRecord]] = {}
    for record in records:
        if scorable(record) and record.r_global >= threshold - SLACK:
            groups.setdefault(record.group_id, []).append(record)
    chosen = []
    for members in groups.values():
        seen: set[tuple[bytes, ...]] = set()
        for record in sorted(members, key=_rank):
            ids = tuple(segment.tobytes() for segment in record.segments)
            if ids not in seen and len(seen) < keep:
                seen.add(ids)
                chosen.append(record)
    return chosen


def _rank(record: TrajectoryRecord) -> tuple[float, float, str]:
    judged = judge_score(record)
    return -record.r_global, -judged if not np.isnan(judged) else np.inf, record.traj_id


class BestOfK(OnPolicy):
    """See the module."""

    uses_kl = False
    needs_reference = False

    def __init__(self, config: BestOfKConfig) -> None:
        super().__init__(config.passes, config.minibatches, "token")
        self.config = config

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Select."""
        best = select_best(fresh, keep=self.config.keep, threshold=self.config.threshold)
        for record in best:
            check_tokens(record)
        self._steps = [DrawnStep(record, step, 1.0) for record in best for step in record.steps]
        return {"best_of_k/kept": float(len(best))}

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """Cross-entropy."""
        return unmasked(-logp_N, logp_N, batch)
