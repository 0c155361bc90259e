"""Critic-free REINFORCE on per-turn rewards and the outcome, with corrected replay (POLICY.md 4 to 8).

For step t of trajectory i: ``A = clip(alpha * (R - b_glob) / sigma_glob + beta_eff * (G - b_loc) /
sigma_loc, -3, 3)``, loss ``-stopgrad(w * A) * sum_k log pi(a_k)`` with the taper w and the one-sided trust
mask of ``correction.py``. Baselines are leave-one-out means shrunk to running statistics; both terms have
their own scale.

Deviations, numbered: (1) replayed trajectories are drawn whole (see ``buffer.py``); (2) no rescue of stored
successes.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiomrm.policy_opt.advantages import (
    effective_beta,
    group_discrimination,
    mix,
    per_owner_std,
    scaled,
    shrink,
)
from axiomrm.policy_opt.algorithm import LossParts, Minibatch, split_by_trajectory
from axiomrm.policy_opt.buffer import ReplayBuffer
from axiomrm.policy_opt.config import ProcessReplayConfig
from axiomrm.policy_opt.correction import correction_weights, step_ratios, trust_mask
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import NAN, StepRecord, TrajectoryRecord
from axiomrm.policy_opt.running import RunningStatistics
from axiomrm.policy_opt.step_returns import OUTCOME, attach_returns, judge_mean, local_target, scorable

PRIORITY_EXPONENT = 0.4
FLOOR_SHARE = 0.05


class ProcessReplay:
    """See the module; ``alpha=0`` is process-only, ``beta=0`` outcome only, ``reuse=0`` no replay."""

    uses_kl = True

    def __init__(self, config: ProcessReplayConfig) -> None:
        self.config = config
        self.statistics = RunningStatistics()
        self.snapshot = self.statistics.snapshot()
        """Statistics before the current batch: what fresh advantages are computed with."""
        self.buffer = ReplayBuffer(window=config.window, max_reuse=config.reuse, capacity=config.capacity)
        self.guarded = False
        """Turn rewards have no weight: a monitor found them gamed. The trainer's checkpoint knows."""

    # --- advantages -----------------------------------------------------------------------------------------

    def advantage(self, record: TrajectoryRecord, step: StepRecord, statistics: RunningStatistics) -> float:
        """The mixed advantage of a step from its stored returns; NaN = not drawn."""
        a_global, a_local = self.terms(record, step, statistics)
        return mix(a_global, a_local, alpha=self.config.alpha, beta_eff=self.beta_eff(statistics))

    def terms(
        self, record: TrajectoryRecord, step: StepRecord, statistics: RunningStatistics
    ) -> tuple[float, float]:
        """Scaled global and local advantage; NaN = missing."""
        a_global, a_local = self._raw(record, step, statistics)
        if self.config.scale == "none":
            return a_global, a_local
        floors = FLOOR_SHARE * self.config.outcome_range, FLOOR_SHARE * self.config.local_range
        return (
            scaled(a_global, statistics.sigma(OUTCOME), floors[0]),
            scaled(a_local, statistics.sigma(local_target(step)), floors[1]),
        )

    def _raw(
        self, record: TrajectoryRecord, step: StepRecord, statistics: RunningStatistics
    ) -> tuple[float, float]:
        if step.returns is None:
            return NAN, NAN
        whole, own = step.returns.outcome, step.returns.local
        known_local = statistics.baseline(local_target(step), record.task_type, step.turn)
        a_local = own.value - shrink(own.loo, own.m, known_local, self.config.kappa)
        if step.returns.zero_variance and not np.isnan(whole.value):
            return 0.0, a_local
        known = statistics.baseline(OUTCOME, record.task_type)
        return whole.value - shrink(whole.loo, whole.m, known, self.config.kappa), a_local

    def beta_eff(self, statistics: RunningStatistics) -> float:
        """Weight of the local term after calibration."""
        if self.guarded:
            return 0.0
        if not self.config.calibrate_beta:
            return self.config.beta
        return effective_beta(self.config.beta, statistics.discrimination(self.config.disc_prior))

    def guard(self) -> None:
        """Outcome only from now on."""
        self.guarded = True

    def _with(self, statistics: RunningStatistics) -> Callable[[TrajectoryRecord, StepRecord], float]:
        return lambda record, step: self.advantage(record, step, statistics)

    # --- one iteration --------------------------------------------------------------------------------------

    def ingest(self, fresh: Sequence[TrajectoryRecord], version: int) -> dict[str, float]:
        """Returns and baselines first, then statistics, then admission."""
        self._follow_judge(fresh)
        config = self.config
        attach_returns(
            fresh, self.statistics, kind=config.local_return, gamma=config.gamma, anchors=config.anchors
        )
        self.snapshot = self.statistics.snapshot()
        self._update_statistics([record for record in fresh if scorable(record)])
        admitted = [self.buffer.add(record, self._with(self.snapshot)) for record in fresh]
        return self._ingest_metrics(fresh, sum(admitted))

    def _follow_judge(self, fresh: Sequence[TrajectoryRecord]) -> None:
        keys = [step.judge_key for record in fresh for step in record.steps if not np.isnan(step.r_local)]
        if keys and keys[-1] != self.buffer.judge_key:
            if self.buffer.judge_key is not None:
                self.statistics.forget_judge(self.buffer.judge_key)
            self.buffer.judge_changed(keys[-1])

    def _update_statistics(self, records: Sequence[TrajectoryRecord]) -> None:
        stats, before = self.statistics, self.snapshot
        pairs = [(record, step) for record in records for step in record.steps]
        raw = [self._raw(record, step, before) for record, step in pairs]
        owners = [record.traj_id for record, _ in pairs]
        for target in sorted({local_target(step) for _, step in pairs}):
            mine = [i for i, (_, step) in enumerate(pairs) if local_target(step) == target]
            rows = [(owners[i], pairs[i][0].task_type, pairs[i][1].turn, _local(pairs[i][1])) for i in mine]
            stats.update_baselines(target, rows)
            _update_sigma(
                stats, before, target, per_owner_std([raw[i][1] for i in mine], [owners[i] for i in mine])
            )
            cost = [pairs[i][1].r_local for i in mine if not np.isnan(pairs[i][1].r_local)]
            stats.update_scalar(
                f"cost:{target.removeprefix('local:')}", float(np.mean(cost)) if cost else NAN
            )
        stats.update_baselines(OUTCOME, [(r.traj_id, r.task_type, None, r.r_global) for r in records])
        _update_sigma(stats, before, OUTCOME, per_owner_std([a for a, _ in raw], owners))
        if records:
            stats.update_scalar("action_tokens", float(np.mean([r.n_action_tokens for r in records])))
        for group in sorted({record.group_id for record in records}):
            members = [record for record in records if record.group_id == group]
            stats.add_discrimination(
                group_discrimination([judge_mean(r) for r in members], [r.outcome for r in members])
            )

    def plan(self, version: int, rng: np.random.Generator) -> Iterator[Minibatch]:
        """The fresh pass, then ``reuse`` mixed passes with at least ``fresh_share`` fresh trajectories."""
        fresh = self.buffer.of_version(version)
        first = self._steps(fresh, self.snapshot)
        chunks = split_by_trajectory(first, self.config.minibatches, rng)
        for chunk in chunks:
            yield self._minibatch(chunk, reuse=False)
        for _ in range(self.config.reuse):
            for _ in chunks:
                steps = self._mixed(fresh, version, len(chunks), rng)
                if steps:
                    yield self._minibatch(steps, reuse=True)

    def _mixed(
        self, fresh: list[TrajectoryRecord], version: int, parts: int, rng: np.random.Generator
    ) -> list[DrawnStep]:
        total = -(-len(fresh) // parts)
        n_fresh = int(np.ceil(self.config.fresh_share * total))
        old = [r for r in self.buffer.records if r.policy_version != version and self.buffer.usable(r)]
        current = self.statistics if self.config.rebaseline else self.snapshot
        replayed = self.buffer.draw(
            old,
            min(total - n_fresh, len(old)),
            advantage=self._with(current),
            version=version,
            exponent=PRIORITY_EXPONENT,
            rng=rng,
        )
        # Where nothing old is left the minibatch is smaller: filling it up would spend the reuse of the fresh
        # batch at once and leave nothing to replay.
        usable = [record for record in fresh if self.buffer.usable(record)]
        order = rng.permutation(len(usable))[:n_fresh]
        steps = self._steps([usable[i] for i in order], self.snapshot)
        for record, weight in replayed:
            steps += self._steps([record], current, weight=weight, fresh=False)
        return steps

    def _steps(
        self,
        records: Sequence[TrajectoryRecord],
        statistics: RunningStatistics,
        *,
        weight: float = 1.0,
        fresh: bool = True,
    ) -> list[DrawnStep]:
        drawn = []
        for record in records:
            for step in self.buffer.usable(record):
                value = self.advantage(record, step, statistics)
                if not np.isnan(value):
                    drawn.append(DrawnStep(record, step, value, weight, fresh))
        return drawn

    def _minibatch(self, steps: Sequence[DrawnStep], *, reuse: bool) -> Minibatch:
        for item in steps:
            item.step.uses += 1
        constant = self.statistics.scalar("action_tokens")
        return Minibatch(steps, reuse, self.config.aggregation, constant)

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """``-stopgrad(w * A) * log pi`` a token."""
        ratios = step_ratios(logp_N, batch.behaviour_N, batch.step_N, len(batch.steps))
        advantage_N = batch.advantage_S[batch.step_N]
        w_N = correction_weights(ratios.rho_N, advantage_N, self.config.correction)
        keep_S = (
            trust_mask(ratios, batch.advantage_S)
            if self.config.trust_mask
            else torch.ones_like(batch.advantage_S, dtype=torch.bool)
        )
        w_S = torch.zeros_like(batch.advantage_S).index_add(0, batch.step_N, w_N) / ratios.length_S
        for item, w, m1, m2 in zip(
            batch.steps, w_S.tolist(), ratios.m1_S.tolist(), ratios.m2_S.tolist(), strict=True
        ):
            item.step.last_w, item.step.last_m1, item.step.last_m2 = w, m1, m2
        return LossParts(-(w_N * advantage_N) * logp_N, keep_S, w_S, ratios)

    def finish(self, version: int) -> dict[str, float]:
        """Evict what the next version must not draw."""
        self.buffer.evict(version + 1)
        metrics = {f"replay/evicted_{reason}": float(n) for reason, n in sorted(self.buffer.evicted.items())}
        return metrics | {"replay/size": float(len(self.buffer.records))}

    def _ingest_metrics(self, fresh: Sequence[TrajectoryRecord], admitted: int) -> dict[str, float]:
        steps = [(r, s) for r in fresh if scorable(r) for s in r.steps]
        values = np.array([self.advantage(r, s, self.snapshot) for r, s in steps])
        known = values[~np.isnan(values)]
        return {
            "replay/admitted": float(admitted),
            "advantage/mean": float(known.mean()) if known.size else NAN,
            "advantage/std": float(known.std()) if known.size else NAN,
            "advantage/missing_share": float(np.isnan(values).mean()) if values.size else NAN,
            "advantage/beta_eff": self.beta_eff(self.snapshot),
            "advantage/disc": self.snapshot.discrimination(self.config.disc_prior),
            "advantage/disc_groups": float(len(self.snapshot.discriminations)),
            "advantage/sigma_outcome": self.snapshot.sigma(OUTCOME),
        }

    def state_dict(self) -> dict[str, Any]:
        """Statistics and buffer."""
        return {"statistics": self.statistics.state_dict(), "buffer": self.buffer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.statistics.load_state_dict(state["statistics"])
        self.buffer.load_state_dict(state["buffer"])
        self.snapshot = self.statistics.snapshot()


def _local(step: StepRecord) -> float:
    return NAN if step.returns is None else step.returns.local.value


def _update_sigma(stats: RunningStatistics, before: RunningStatistics, target: str, value: float) -> None:
    stats.update_sigma(target, value)
    if np.isnan(before.sigma(target)):
        # No running scale yet: the first batch is scaled by its own.
        before.update_sigma(target, value)
