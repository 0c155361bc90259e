"""The advantages an iteration was trained with, for people to read afterwards.

Process replay keeps what its advantages are made of. GRPO, RLOO and GiGPO drop the batch, but their
advantages are a function of the rollouts alone, so a second instance takes the same rollouts in again. PPO's
stand on tokens and need the values from before the update, and best-of-K has none: these tell nothing.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from axiomrm.policy_opt.algorithms.base import Algorithm
from axiomrm.policy_opt.algorithms.build import build_algorithm
from axiomrm.policy_opt.algorithms.gigpo import GiGPO
from axiomrm.policy_opt.algorithms.grpo import GRPO
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.algorithms.rloo import RLOO
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.step_returns import scorable


def told_advantages(
    algorithm: Algorithm, records: Sequence[TrajectoryRecord]
) -> dict[str, list[float]] | None:
    """The advantages of the steps of an iteration's fresh rollouts.

    Args:
        algorithm: after the iteration.
        records: its rollouts.

    Returns:
        Trajectory id to one number a turn; NaN = none. ``None``: the algorithm does not tell.
    """
    ran = [record for record in records if scorable(record)]
    if isinstance(algorithm, ProcessReplay):
        now = algorithm.snapshot
        return {r.traj_id: [algorithm.advantage(r, step, now) for step in r.steps] for r in ran}
    if isinstance(algorithm, GRPO | RLOO | GiGPO):
        return _taken_in_again(algorithm, ran)
    return None


def _taken_in_again(
    algorithm: GRPO | RLOO | GiGPO, records: Sequence[TrajectoryRecord]
) -> dict[str, list[float]]:
    # Copies of the steps: a plan counts their uses.
    copies = [replace(record, steps=[replace(step) for step in record.steps]) for record in records]
    again = build_algorithm(algorithm.config)
    again.ingest(copies, 0)
    first_pass = itertools.takewhile(lambda m: not m.reuse, again.plan(0, np.random.default_rng(0)))
    drawn = {(item.record.traj_id, item.step.turn): item.advantage for m in first_pass for item in m.steps}
    return {r.traj_id: [drawn.get((r.traj_id, step.turn), math.nan) for step in r.steps] for r in records}
