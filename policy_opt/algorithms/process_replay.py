"""Critic-free REINFORCE on per-turn rewards and the outcome, with corrected replay (POLICY.md 4 to 8).

For step t of trajectory i: ``A = clip(alpha * (R - b_glob) / sigma_glob + beta_eff * (G - b_loc) /
sigma_loc, -3, 3)``, loss ``-stopgrad(w * A) * sum_k log pi(a_k)`` with the taper w and the one-sided trust
mask of ``correction.py``. Baselines are leave-one-out means shrunk to running statistics; both terms have
their own scale.

Flags make the ablations: ``alpha=0`` process only, ``beta=0`` outcome only, ``reuse=0`` no replay.
``reweight`` damps rare tokens (arXiv:2505.12929), ``local_baseline="none"`` takes turn rewards as they are.

Deviations, numbered: (1) replayed trajectories are drawn whole (see ``buffer.py``); (2) rescue of stored
successes is off unless configured (see ``rescue.py``); (3) a replayed step's advantage always comes from
today's running statistics: nothing used a frozen one; (4) the fresh share counts trajectories, because they
are drawn whole; (5) a group whose outcomes are all equal is not drawn again: it teaches through its turn
rewards or not at all; (6) scales are of the batch or none, not of the group; (7) the personal part of a
composite is scaled by user before it is summed (``rewards/personal.py``) and then shares the local scale.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiomrm.policy_opt.advantages import (
    effective_beta,
    mix,
    scaled,
    shrink,
)
from axiomrm.policy_opt.algorithms.base import LossParts, Minibatch, counted, split_by_trajectory
from axiomrm.policy_opt.batch_statistics import advantage_shares, scale_metrics, take_in
from axiomrm.policy_opt.config import ProcessReplayConfig
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch
from axiomrm.policy_opt.records import NAN, StepRecord, TrajectoryRecord
from axiomrm.policy_opt.replay.buffer import ReplayBuffer
from axiomrm.policy_opt.replay.correction import correction_weights, reweighted, step_ratios, trust_mask
from axiomrm.policy_opt.replay.rescore import reattach, rescore, within_budget
from axiomrm.policy_opt.replay.rescue import SuccessStore
from axiomrm.policy_opt.rewards.base import TurnJudge
from axiomrm.policy_opt.running import RunningStatistics
from axiomrm.policy_opt.step_returns import OUTCOME, attach_returns, judge_score, local_target, scorable

PRIORITY_EXPONENT = 0.4


class ProcessReplay:
    """See the module."""

    uses_kl = True
    needs_reference = True

    def __init__(self, config: ProcessReplayConfig) -> None:
        self.config = config
        self.statistics = RunningStatistics()
        self.snapshot = self.statistics.snapshot()
        """Statistics before the current batch: what fresh advantages are computed with."""
        self.buffer = ReplayBuffer(window=config.window, max_reuse=config.reuse, capacity=config.capacity)
        self.successes = SuccessStore(config.capacity)
        self._rescued: list[DrawnStep] = []
        self.turn_judge: TurnJudge | None = None
        """Asked about stored turns when its version changes; set by the trainer."""
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
        return (
            scaled(a_global, statistics.sigma(OUTCOME), self.config.outcome_range),
            scaled(a_local, statistics.sigma(local_target(step)), self.config.local_range),
        )

    def _raw(
        self, record: TrajectoryRecord, step: StepRecord, statistics: RunningStatistics
    ) -> tuple[float, float]:
        if step.returns is None:
            return NAN, NAN
        whole, own = step.returns.outcome, step.returns.local
        a_local = own.value
        if self.config.local_baseline == "group":
            known_local = statistics.baseline(local_target(step), record.task_type, step.turn)
            a_local -= shrink(own.loo, own.m, known_local, self.config.kappa)
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
        config = self.config
        options: dict[str, Any] = {
            "kind": config.local_return, "gamma": config.gamma, "anchors": config.anchors
        }  # fmt: skip
        rescored = self._follow_judge(fresh)
        attach_returns(fresh, self.statistics, **options)
        self.snapshot = self.statistics.snapshot()
        ran = [record for record in fresh if scorable(record)]
        score = partial(judge_score, kind=config.local_return)
        take_in(self.statistics, self.snapshot, ran, raw=self._raw, score=score)
        reattach(rescored, self.statistics, **options)
        admitted = [self.buffer.add(record, self._with(self.snapshot)) for record in fresh]
        return self._ingest_metrics(fresh, sum(admitted)) | self._rescue(fresh)

    def _follow_judge(self, fresh: Sequence[TrajectoryRecord]) -> list[TrajectoryRecord]:
        """Forget what another judge version taught; the stored records that were scored again."""
        keys = [step.judge_key for record in fresh for step in record.steps if step.judged]
        if not keys or keys[-1] == self.buffer.judge_key:
            return []
        rescored: list[TrajectoryRecord] = []
        if self.buffer.judge_key is not None:
            self.statistics.forget_judge(self.buffer.judge_key)
            if self.turn_judge is not None:
                rescored = within_budget(self.buffer.records, keys[-1], self.config.rescore_turns)
                rescore(rescored, self.turn_judge)
        gone = self.buffer.judge_changed(keys[-1])
        return [record for record in rescored if record.traj_id not in gone]

    def _rescue(self, fresh: Sequence[TrajectoryRecord]) -> dict[str, float]:
        """Stored successes for the groups that failed; then this batch's own are stored."""
        self._rescued = []
        if not self.config.rescue:
            return {}
        for record in self.successes.for_failed(fresh):
            value = self._rescue_advantage(record)
            if value > 0:
                self._rescued += [
                    DrawnStep(record, s, value, fresh=False, rescued=True) for s in record.steps
                ]
        self.successes.add(fresh)
        return {"replay/rescued": float(len({item.record.traj_id for item in self._rescued}))}

    def _rescue_advantage(self, record: TrajectoryRecord) -> float:
        raw = record.outcome - self.statistics.baseline(OUTCOME, record.task_type)
        if self.config.scale != "none":
            raw = scaled(raw, self.statistics.sigma(OUTCOME), self.config.outcome_range)
        return mix(raw, NAN, alpha=self.config.alpha, beta_eff=0.0)

    @property
    def keeps_transcripts(self) -> bool:
        """Whether stored turns may have to be judged again."""
        return self.config.rescore_turns > 0

    def plan(self, version: int, rng: np.random.Generator) -> Iterator[Minibatch]:
        """The fresh pass, then ``reuse`` mixed passes with at least ``fresh_share`` fresh trajectories."""
        fresh = self.buffer.of_version(version)
        first = self._steps(fresh, self.snapshot) + self._rescued
        chunks = split_by_trajectory(first, self.config.minibatches, rng)
        for chunk in chunks:
            yield from counted(self._minibatch(chunk, reuse=False))
        for _ in range(self.config.reuse):
            for _ in chunks:
                steps = self._mixed(fresh, version, len(chunks), rng)
                if steps:
                    yield from counted(self._minibatch(steps, reuse=True))

    def _mixed(
        self, fresh: list[TrajectoryRecord], version: int, parts: int, rng: np.random.Generator
    ) -> list[DrawnStep]:
        total = -(-len(fresh) // parts)
        n_fresh = int(np.ceil(self.config.fresh_share * total))
        old = [r for r in self.buffer.records if r.policy_version != version and self.buffer.usable(r)]
        replayed = self.buffer.draw(
            old,
            min(total - n_fresh, len(old)),
            advantage=self._with(self.statistics),
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
            steps += self._steps([record], self.statistics, weight=weight, fresh=False)
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
        constant = self.statistics.scalar("action_tokens")
        return Minibatch(steps, reuse, self.config.aggregation, constant)

    def token_loss(self, logp_N: Tensor, batch: TokenBatch) -> LossParts:
        """``-stopgrad(w * A) * log pi`` a token."""
        ratios = step_ratios(logp_N, batch.behaviour_N, batch.step_N, len(batch.steps))
        advantage_N = batch.advantage_S[batch.step_N]
        w_N = correction_weights(ratios.rho_N, advantage_N, self.config.correction)
        if any(item.rescued for item in batch.steps):
            rescued_S = torch.tensor([item.rescued for item in batch.steps])
            w_N = torch.where(rescued_S[batch.step_N], w_N.clamp(max=1.0), w_N)
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
        token_N = reweighted(batch.behaviour_N, self.config.reweight)
        return LossParts(-(w_N * token_N * advantage_N) * logp_N, keep_S, w_S, ratios)

    def finish(self, version: int) -> dict[str, float]:
        """Evict what the next version must not draw."""
        self.buffer.evict(version + 1)
        metrics = {f"replay/evicted_{reason}": float(n) for reason, n in sorted(self.buffer.evicted.items())}
        drawn = [value for value in self.buffer.evenness if not np.isnan(value)]
        self.buffer.evenness = []
        if drawn:
            metrics["replay/priority_entropy_share"] = float(np.mean(drawn))
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
            **scale_metrics(self.snapshot, [step for _, step in steps]),
        } | advantage_shares([self.terms(r, s, self.snapshot) for r, s in steps], values.tolist())

    def state_dict(self) -> dict[str, Any]:
        """Statistics and buffer."""
        state = {"statistics": self.statistics.state_dict(), "buffer": self.buffer.state_dict()}
        return state | {"successes": self.successes.state_dict()}

    def forget(self, subject: str) -> int:
        """Consent withdrawn: the subject's trajectories leave buffer and store; returns how many."""
        return self.buffer.forget(subject) + self.successes.forget(subject)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.statistics.load_state_dict(state["statistics"])
        self.buffer.load_state_dict(state["buffer"])
        self.successes.load_state_dict(state.get("successes", []))
        self.snapshot = self.statistics.snapshot()
