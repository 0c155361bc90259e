"""One optimizer step over a minibatch: packed forwards, policy term plus KL, clipped gradient."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from axiomrm.errors import DataError
from axiomrm.policy_opt.admission import admission_check
from axiomrm.policy_opt.algorithms.base import ActorCritic, Algorithm, LossParts, Minibatch
from axiomrm.policy_opt.drawn import Drawn, drawn_steps
from axiomrm.policy_opt.engines.config import MismatchLimits
from axiomrm.policy_opt.kl import k3, kl_surrogate
from axiomrm.policy_opt.logprobs import selected_logprobs
from axiomrm.policy_opt.losses import aggregate, step_weights
from axiomrm.policy_opt.packing import DrawnStep, TokenBatch, micro_batches
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.replay.buffer import ess_of
from axiomrm.policy_opt.replica import OwnReplica, Replica


class Use(NamedTuple):
    """What a pass left on a step."""

    traj_id: str
    turn: int
    w: float
    m1: float
    m2: float


LISTS = (
    "logps", "behaviour", "fresh", "fresh_k3", "entropy", "keep", "correction", "rho", "m2", "used", "drawn"
)  # fmt: skip


@dataclass
class UpdateStats:
    """What one optimizer step saw."""

    loss: float = 0.0
    grad_norm: float = float("nan")
    """Before it is clipped."""
    update_norm: float = float("nan")
    """Of the change of the weights; NaN where none has a gradient."""
    learning_rate: float = float("nan")
    """Of the policy's own parameters."""
    tokens: int = 0
    logps: list[Tensor] = field(default_factory=list)
    """Of every drawn token."""
    behaviour: list[Tensor] = field(default_factory=list)
    """Of every drawn token, from the policy that sampled it."""
    fresh: list[Tensor] = field(default_factory=list)
    """Which of them the policy of this iteration sampled."""
    fresh_k3: list[Tensor] = field(default_factory=list)
    entropy: list[Tensor] = field(default_factory=list)
    keep: list[bool] = field(default_factory=list)
    correction: list[float] = field(default_factory=list)
    rho: list[float] = field(default_factory=list)
    m2: list[float] = field(default_factory=list)
    used: list["Use"] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)

    def add(self, other: "UpdateStats") -> None:
        """Take in what another process saw of the same step."""
        self.loss, self.tokens = self.loss + other.loss, self.tokens + other.tokens
        for name in LISTS:
            getattr(self, name).extend(getattr(other, name))

    def fresh_logps(self) -> tuple[Tensor, Tensor]:
        """Trainer's and sampler's log-probs of fresh tokens, which must agree before the first update."""
        nothing = [torch.empty(0)]
        keep = torch.cat(self.fresh or [torch.empty(0, dtype=torch.bool)])
        return torch.cat(self.logps or nothing)[keep], torch.cat(self.behaviour or nothing)[keep]

    @property
    def fresh_kl(self) -> float:
        """Mean k3 to the reference over fresh action tokens; NaN without any."""
        values = torch.cat(self.fresh_k3) if self.fresh_k3 else torch.empty(0)
        return float(values.mean()) if values.numel() else float("nan")

    @property
    def ess_frac(self) -> float:
        """Effective share of the drawn steps after correction."""
        return ess_of(self.correction)


def token_loss(
    algorithm: Algorithm, batch: TokenBatch, logp_N: Tensor, kl_beta: float
) -> tuple[Tensor, LossParts]:
    """Policy term (masked) plus KL term (on every drawn step), aggregated."""
    parts = algorithm.token_loss(logp_N, batch)
    weight_N = batch.weight_S[batch.step_N]
    loss_N = torch.where(parts.keep_S[batch.step_N], parts.loss_N, torch.zeros_like(parts.loss_N))
    if algorithm.uses_kl and kl_beta > 0 and batch.reference_N is not None:
        loss_N = loss_N + kl_beta * kl_surrogate(logp_N, batch.reference_N, parts.ratios.rho_N)
    return aggregate(loss_N, weight_N), parts


def accumulate_gradient(
    model: Any,
    algorithm: Algorithm,
    minibatch: Minibatch,
    *,
    kl_beta: float,
    token_budget: int,
    replica: Replica | None = None,
) -> UpdateStats:
    """Add the gradient of a whole minibatch to ``model``; its split into forwards does not matter.

    Args:
        replica: this process's part of the work, for ``model``; default: all of it, plain torch.

    Returns:
        What all processes saw.
    """
    weights = step_weights(
        [item.step.n_tokens for item in minibatch.steps],
        _trajectory_numbers(minibatch.steps),
        minibatch.aggregation,
        minibatch.constant,
    )
    replica, stats = replica or OwnReplica(model), UpdateStats()
    critic = algorithm.critic if isinstance(algorithm, ActorCritic) else None
    share = replica.share(micro_batches(minibatch.steps, weights, token_budget=token_budget))
    for number, (batch, counts) in enumerate(share, start=1):
        with replica.part(last=number == len(share)):
            out = replica.forward(batch)
            logp_N = out.logp_N.to("cpu")
            if critic is not None:
                batch = replace(batch, value_N=critic(out.hidden_NH).to("cpu"))
            loss, parts = token_loss(algorithm, batch, logp_N, kl_beta)
            replica.backward(loss)
        if counts:
            _note(stats, batch, loss, logp_N.detach(), out.entropy_N.to("cpu"), parts)
    return _together(replica.gather(stats), minibatch)


def _together(found: Sequence[UpdateStats], minibatch: Minibatch) -> UpdateStats:
    """One account of the step, and on each drawn step what its pass left, in whichever process that was."""
    if len(found) == 1:
        return found[0]
    whole = UpdateStats()
    for stats in found:
        whole.add(stats)
    steps = {(item.record.traj_id, item.step.turn): item.step for item in minibatch.steps}
    for use in whole.used:
        step = steps[(use.traj_id, use.turn)]
        step.last_w, step.last_m1, step.last_m2 = use.w, use.m1, use.m2
    return whole


def _note(
    stats: UpdateStats, batch: TokenBatch, loss: Tensor, logp_N: Tensor, entropy_N: Tensor, parts: LossParts
) -> None:
    stats.loss += float(loss.detach())
    stats.tokens += int(batch.attention_mask_RL.sum())
    fresh_N = batch.fresh_S[batch.step_N]
    stats.logps.append(logp_N)
    stats.behaviour.append(batch.behaviour_N)
    stats.fresh.append(fresh_N)
    stats.entropy.append(entropy_N)
    if batch.reference_N is not None:
        stats.fresh_k3.append(k3(logp_N, batch.reference_N)[fresh_N])
    stats.keep += parts.keep_S.tolist()
    stats.correction += parts.correction_S.tolist()
    stats.rho += parts.ratios.rho_S.tolist()
    stats.m2 += parts.ratios.m2_S.tolist()
    stats.drawn += drawn_steps(batch, parts, entropy_N)
    for item in batch.steps:
        step = item.step
        stats.used.append(Use(item.record.traj_id, step.turn, step.last_w, step.last_m1, step.last_m2))


def optimizer_step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    algorithm: Algorithm,
    minibatch: Minibatch,
    *,
    kl_beta: float,
    grad_clip: float,
    token_budget: int,
    admission: float | MismatchLimits | None = None,
    replica: Replica | None = None,
) -> UpdateStats:
    """One step.

    Args:
        admission: run the admission test on this minibatch's tokens before the weights move: the greatest gap
            of one engine, or the limits of another.
        replica: as in ``accumulate_gradient``.

    Raises:
        DataError: the admission test failed, or the gradient is not finite; the weights are untouched.
    """
    optimizer.zero_grad(set_to_none=True)
    replica = replica or OwnReplica(model)
    stats = accumulate_gradient(
        model, algorithm, minibatch, kl_beta=kl_beta, token_budget=token_budget, replica=replica
    )
    if admission is not None:
        _admit(stats, admission)
    parameters = [p for p in model.parameters() if p.grad is not None]
    if parameters:
        stats.grad_norm = replica.clip(parameters, grad_clip)
        if not math.isfinite(stats.grad_norm):
            raise DataError(
                f"policy update: the norm of the gradient is {stats.grad_norm}, so no step is made; the "
                "learning rate may be too high, or a reward too large"
            )
    if isinstance(algorithm, ActorCritic):
        nn.utils.clip_grad_norm_(algorithm.critic.parameters(), grad_clip)
    stats.update_norm, stats.learning_rate = _moved(optimizer, parameters), optimizer.param_groups[0]["lr"]
    return stats


def _moved(optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter]) -> float:
    """Step; the norm of what that did to the parameters, NaN without any.

    Holds a second copy of them meanwhile, half of what AdamW keeps of each.
    """
    before = [p.detach().clone() for p in parameters]
    optimizer.step()
    with torch.no_grad():
        for old, new in zip(before, parameters, strict=True):
            old.sub_(new)
        return float(nn.utils.get_total_norm(before)) if before else float("nan")


def _admit(stats: UpdateStats, admission: float | MismatchLimits) -> None:
    mine, sampled = (values.numpy() for values in stats.fresh_logps())
    if isinstance(admission, MismatchLimits):
        admission_check(mine, sampled, same_engine=False, limits=admission)
    else:
        admission_check(mine, sampled, max_gap=admission)


def attach_reference(ref_model: Any, records: Sequence[TrajectoryRecord], *, token_budget: int) -> None:
    """Fill ``ref_logprobs`` of every step from the frozen reference, at the sampling temperature."""
    for item, values in _each_step(ref_model, records, None, token_budget):
        item.step.ref_logprobs = values


def token_values(
    model: Any, critic: nn.Module, records: Sequence[TrajectoryRecord], *, token_budget: int
) -> dict[tuple[str, int], NDArray[np.float32]]:
    """The critic's value of the state before each action token, by trajectory and turn."""
    rows = _each_step(model, records, critic, token_budget)
    return {(item.record.traj_id, item.step.turn): values for item, values in rows}


@torch.no_grad()
def _each_step(
    model: Any, records: Sequence[TrajectoryRecord], critic: nn.Module | None, token_budget: int
) -> list[tuple[DrawnStep, NDArray[np.float32]]]:
    """Every step with the log-probs of its tokens, or with the critic's values if there is one."""
    drawn = [DrawnStep(record, step, 0.0) for record in records for step in record.steps]
    device = next(model.parameters()).device
    found: list[tuple[DrawnStep, NDArray[np.float32]]] = []
    for batch in micro_batches(drawn, [1.0] * len(drawn), token_budget=token_budget):
        out = selected_logprobs(
            model,
            batch.input_ids_RL.to(device),
            batch.attention_mask_RL.to(device),
            batch.row_N.to(device),
            batch.column_N.to(device),
            batch.temperature,
        )
        answer = out.logp_N if critic is None else critic(out.hidden_NH)
        values = answer.float().to("cpu").numpy()
        sizes = np.cumsum([item.step.n_tokens for item in batch.steps])[:-1]
        parts = np.split(values, sizes)
        found += [(item, part.astype(np.float32)) for item, part in zip(batch.steps, parts, strict=True)]
    return found


def _trajectory_numbers(steps: Sequence[DrawnStep]) -> list[int]:
    numbers: dict[str, int] = {}
    return [numbers.setdefault(item.record.traj_id, len(numbers)) for item in steps]
