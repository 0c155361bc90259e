"""Adapter for the cases of area replay/advantage: their words on one side, our functions on the other."""

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from axiomrm.data.environment import Action, Observation
from axiomrm.data.trajectory import Message, Task
from axiomrm.errors import DataError
from axiomrm.policy_opt.admission import admission_check
from axiomrm.policy_opt.advantages import group_advantages, mix
from axiomrm.policy_opt.algorithms.process_replay import ProcessReplay
from axiomrm.policy_opt.config import PolicyConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.engines.transformers import Generation, TransformersSampler
from axiomrm.policy_opt.kl import k3
from axiomrm.policy_opt.logprobs import logprobs_of_hidden
from axiomrm.policy_opt.losses import aggregate, step_weights
from axiomrm.policy_opt.monitoring.metrics import success_rate
from axiomrm.policy_opt.packing import DrawnStep, action_mask, micro_batches
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord, check_tokens
from axiomrm.policy_opt.replay.buffer import ReplayBuffer
from axiomrm.policy_opt.replay.correction import step_ratios
from axiomrm.policy_opt.returns import immediate, return_to_go
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.update import UpdateStats, token_loss
from axiomrm.rm.adapters import mixed_rewards

AREA = "replay/advantage"
FILE = Path(__file__).parents[1] / "cases" / "dev_cases.jsonl"
CASES = [c for c in map(json.loads, FILE.read_text(encoding="utf-8").splitlines()) if c["area"] == AREA]
NAN = float("nan")


def number(value: Any) -> float:
    """The cases' spelling of a float."""
    return {"missing": NAN, None: NAN, "NaN": NAN, "Infinity": math.inf}.get(value, value)  # type: ignore[no-any-return]  # JSON


def numbers(values: Sequence[Any]) -> list[float]:
    return [number(value) for value in values]


def record(
    name: str,
    outcome: float,
    rewards: Sequence[float],
    *,
    group: str = "g",
    version: int = 0,
    tokens: int = 2,
    **extra: Any,
) -> TrajectoryRecord:
    """Turns of ``tokens`` action tokens, each after two prompt tokens; two observation tokens at the end."""
    width = tokens + 2
    steps = [
        StepRecord(
            traj_id=name, turn=t, segment=0, start=2 + width * t, end=width * (t + 1), policy_version=version,
            behaviour_logprobs=np.full(tokens, -0.5, dtype=np.float32), r_local=r,
        )
        for t, r in enumerate(rewards)
    ]  # fmt: skip
    ids = np.zeros(width * len(rewards) + 2, dtype=np.int32)
    return TrajectoryRecord(name, "task", group, [ids], steps, version, outcome=outcome, **extra)


def check_advantage(i: dict[str, Any], e: dict[str, Any]) -> None:
    rewards = numbers(i["rewards"])
    options = {"kappa": i["kappa"], "scale": i["scale"], "b_ema": number(i.get("b_ema"))}
    if any(math.isinf(r) for r in rewards):
        with pytest.raises(DataError, match=f"reward {rewards.index(math.inf)}"):
            group_advantages(rewards, i["groups"], **options)
        return
    got = group_advantages(rewards, i["groups"], **options)
    # NaN = not drawn = no gradient, which the cases write as 0
    if "advantages" in e:
        np.testing.assert_allclose(np.nan_to_num(got), e["advantages"], atol=e.get("tol", 1e-9))
    for index in e.get("same_as_deleting", []):
        kept = [k for k in range(len(rewards)) if k != index]
        alone = group_advantages([rewards[k] for k in kept], [i["groups"][k] for k in kept], **options)
        np.testing.assert_allclose(got[kept], alone)
    if e.get("drawn") is False:
        assert np.isnan(got).all()
        check_nothing_is_drawn(rewards, i["groups"], e)


def check_nothing_is_drawn(rewards: Sequence[float], groups: Sequence[str], e: dict[str, Any]) -> None:
    algorithm = ProcessReplay(ProcessReplayConfig())
    rows = [record(f"t{k}", r, [NAN], group=g) for k, (r, g) in enumerate(zip(rewards, groups, strict=True))]
    algorithm.ingest(rows, 0)
    assert list(algorithm.plan(0, np.random.default_rng(0))) == []
    if e.get("statistics_updated") is False:
        assert math.isnan(algorithm.statistics.baseline("outcome", "")) and not algorithm.statistics.sigmas
        assert success_rate(rewards)[2] == e["counted_missing"]


def check_mix(i: dict[str, Any], e: dict[str, Any]) -> None:
    pairs = zip(numbers(i["a_global"]), numbers(i["a_local"]), strict=True)
    got = [mix(g, a, alpha=i["alpha"], beta_eff=i["beta_eff"]) for g, a in pairs]
    np.testing.assert_allclose(got, e["a"], atol=e["tol"])


def check_trl_adapter(i: dict[str, Any], e: dict[str, Any]) -> None:
    parts = {name: [None if v == "missing" else v for v in i[name]] for name in i["weights"]}
    assert mixed_rewards(parts, i["weights"]) == e["returned"]


def check_returns(i: dict[str, Any], e: dict[str, Any]) -> None:
    rewards, ending = numbers(i["r_local"]), i.get("ending", "done")
    if i["local_return"] == "immediate":
        got = immediate(rewards)
    else:
        tail = number(i["b_at_cut"]) if "b_at_cut" in i else 0.0
        got = return_to_go(rewards, gamma=i["gamma"], cost=i["c"], tail=tail)
        if "b_at_cut" in i:
            np.testing.assert_allclose(got, through_process_replay(rewards, ending, tail, i["gamma"]))
    np.testing.assert_allclose(got, numbers(e["g_local"]), atol=e.get("tol", 1e-9))
    if "R_global" in e:
        outcome = number(i.get("outcome")) if i["verifier_ran"] else NAN
        got_global = record("a", outcome, rewards, ending=ending).r_global
        np.testing.assert_allclose(got_global, number(e["R_global"]))


def through_process_replay(rewards: list[float], ending: Any, tail: float, gamma: float) -> list[float]:
    """The same returns as the algorithm computes them, with the baseline at the cut in its statistics."""
    algorithm = ProcessReplay(ProcessReplayConfig(local_return="rtg", gamma=gamma))
    cut = record("cut", NAN, rewards, ending=ending, truncated=True)
    key = cut.steps[0].judge_key
    algorithm.statistics.update_baselines(f"local:{key}", [("x", "", len(rewards), tail)])
    algorithm.ingest([cut], 0)
    return [s.returns.local.value for s in cut.steps if s.returns is not None]


def check_credit(i: dict[str, Any], e: dict[str, Any]) -> None:
    row = record("a", i["R_global"], [NAN] * e["turns"], ending=i["ending"], truncated=True)
    other = record("b", 0.0, [NAN] * e["turns"])
    algorithm = ProcessReplay(ProcessReplayConfig())
    algorithm.ingest([row, other], 0)
    assert [s.returns.outcome.value for s in row.steps if s.returns is not None] == e["g_global"]
    drawn = [DrawnStep(row, s, algorithm.advantage(row, s, algorithm.snapshot)) for s in row.steps]
    assert all(item.advantage > 0 for item in drawn)
    (batch,) = micro_batches(drawn, [1.0] * len(drawn), token_budget=100)
    spans = [column for s in row.steps for column in range(s.start, s.end)]
    assert batch.column_N.tolist() == spans and max(spans) < len(row.segments[0]) - 2


def check_aggregate(i: dict[str, Any], e: dict[str, Any]) -> None:
    mask = torch.tensor(i["action_mask"]).bool()
    losses = torch.tensor(i["losses"], dtype=torch.float64)
    sizes = mask.sum(1)
    weights = step_weights(sizes.tolist(), list(range(len(sizes))), i["loss_agg"], i.get("C", 1.0))
    keep = torch.tensor(i.get("trust_keep", i["action_mask"])).bool()
    loss = torch.where(keep, losses, torch.zeros_like(losses))[mask]
    got = aggregate(loss, torch.tensor(weights, dtype=torch.float64).repeat_interleave(sizes))
    assert got.item() == pytest.approx(e["loss"], abs=e["tol"])


def check_accumulate(i: dict[str, Any], e: dict[str, Any]) -> None:
    rows = [row for micro in i["micro_batches"] for row in micro]
    weights = iter(step_weights([len(r) for r in rows], list(range(len(rows))), i["loss_agg"]))
    total = 0.0
    for micro in i["micro_batches"]:  # one accumulated backward each
        total += sum(
            aggregate(torch.tensor(row), torch.full((len(row),), next(weights))).item() for row in micro
        )
    assert total == pytest.approx(e["loss"], abs=1e-6)


def check_mask(i: dict[str, Any], e: dict[str, Any]) -> None:
    assert action_mask(len(i["ids"]), [tuple(i["sampled_span"])]) == e["action_mask"]


def check_store(i: dict[str, Any], e: dict[str, Any]) -> None:
    row = record("a", 1.0, [1.0], tokens=len(i["sampled_ids"]))
    row.steps[0].behaviour_logprobs = np.asarray(i["behaviour_logprobs"], dtype=np.float32)
    algorithm = ProcessReplay(ProcessReplayConfig())
    with pytest.raises(DataError, match="4 ids, 3 log-probs"):
        algorithm.ingest([row, record("b", 0.0, [0.0])], 0)
    assert len(row.steps[0].behaviour_logprobs) == len(i["behaviour_logprobs"])


def check_ratio(i: dict[str, Any], e: dict[str, Any]) -> None:
    mask = [bool(m) for m in i["action_mask"]]
    behaviour = torch.tensor([number(b) for b, m in zip(i["behaviour_logprobs"], mask, strict=True) if m])
    if "error" in e:
        row = record("a", 1.0, [1.0], tokens=len(behaviour))
        row.steps[0].behaviour_logprobs = behaviour.numpy()
        with pytest.raises(DataError, match="not finite"):
            check_tokens(row)
        return
    logp = torch.tensor([p for p, m in zip(i["logp"], mask, strict=True) if m])
    got = step_ratios(logp, behaviour, torch.zeros(len(logp), dtype=torch.long), 1)
    for name, value in (("rho", got.rho_S), ("m1", got.m1_S), ("m2", got.m2_S)):
        assert value.item() == pytest.approx(e[name], abs=1e-6)


def check_kl(i: dict[str, Any], e: dict[str, Any]) -> None:
    logp = torch.tensor(i["logp"], dtype=torch.float32, requires_grad=True)
    value = k3(logp, torch.tensor(i["ref_logp"], dtype=torch.float32))
    value.sum().backward()  # type: ignore[no-untyped-call]  # torch
    assert value[0].item() == e["k3_first"]
    assert bool(torch.isfinite(value).all()) is e["k3_finite"]
    assert logp.grad is not None and bool(torch.isfinite(logp.grad).all()) is e["gradient_finite"]
    assert value.max().item() == pytest.approx(math.exp(e["log_ratio_clamped_to"]), rel=1e-5)


def check_logprob(i: dict[str, Any], e: dict[str, Any]) -> None:
    logits = torch.tensor([i["logits"]])
    got = logprobs_of_hidden(logits, torch.nn.Identity(), torch.tensor([i["chosen"]]), i["temperature"])
    assert got.logp_N.item() == pytest.approx(e["logp"], abs=e["tol"])


def check_evict(i: dict[str, Any], e: dict[str, Any]) -> None:
    buffer = ReplayBuffer()
    for k, (version, uses) in enumerate(zip(i["policy_version"], i["uses"], strict=True)):
        row = record(str(k), 1.0, [1.0], version=version)
        # "re-used 3 times" evicts: the case counts re-uses, ``StepRecord.uses`` the fresh pass as well
        row.steps[0].uses = uses + 1
        assert buffer.add(row, lambda _, __: 1.0)
    assert buffer.evict(i["now"]) == e["evicted"]
    assert [int(r.traj_id) for r in buffer.records] == e["kept"]


def check_kl_mean(i: dict[str, Any], e: dict[str, Any]) -> None:
    keep = [bool(a and f) for a, f in zip(i["action_mask"], i["fresh"], strict=True)]
    stats = UpdateStats(
        fresh_k3=[torch.tensor([v for v, k in zip(i["k3"], keep, strict=True) if k], dtype=torch.float64)]
    )
    assert stats.fresh_kl == pytest.approx(e["k3_mean"], abs=e["tol"])


def check_step(i: dict[str, Any], e: dict[str, Any]) -> None:
    rows = [
        record(f"t{k}", r, [NAN], group=g)
        for k, (r, g) in enumerate(zip(i["rewards"], i["groups"], strict=True))
    ]
    algorithm = ProcessReplay(ProcessReplayConfig())
    algorithm.ingest(rows, 0)
    for row, gap in zip(rows, i["logp_minus_ref"], strict=True):
        row.steps[0].ref_logprobs = row.steps[0].behaviour_logprobs - np.float32(gap)
    drawn = [DrawnStep(r, r.steps[0], algorithm.advantage(r, r.steps[0], algorithm.snapshot)) for r in rows]
    assert [item.advantage for item in drawn] == [e["policy_term"]] * len(rows)
    (batch,) = micro_batches(drawn, [1.0] * len(rows), token_budget=100)
    logp = batch.behaviour_N.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(token_loss(algorithm, batch, logp, i["beta_kl"])[0], logp)
    assert (gradient.abs() > 1e-4).all()


def check_metric(i: dict[str, Any], e: dict[str, Any]) -> None:
    if "outcomes" in i:
        rate, known, missing = success_rate(numbers(i["outcomes"]))
        assert rate == pytest.approx(e["success"], abs=e["tol"])
        assert (known, missing) == (e["n"], e["missing"])
        return
    rows = []
    for turns in i["action_ids"]:
        steps, ids = [], [0]
        for t, said in enumerate(turns):
            start, ids = len(ids), [*ids, *said]
            steps.append(StepRecord("a", t, 0, start, len(ids), 0, np.zeros(len(said), dtype=np.float32)))
        rows.append(TrajectoryRecord("a", "", "", [np.asarray(ids, dtype=np.int32)], steps, 0))
    assert [r.n_action_tokens for r in rows] == e["action_tokens"]
    assert [len(r.steps) for r in rows] == e["turns"]


def check_first_update(i: dict[str, Any], e: dict[str, Any]) -> None:
    trainer = np.asarray(i["trainer_logprobs"], dtype=np.float32)
    sampler = np.asarray(i["sampler_logprobs"], dtype=np.float32)
    zeros = torch.zeros(len(trainer), dtype=torch.long)
    got = step_ratios(torch.from_numpy(trainer), torch.from_numpy(sampler), zeros, 1)
    assert got.rho_S.item() == pytest.approx(e["rho"], abs=1e-5)
    for same_engine in (True, False):
        with pytest.raises(DataError, match=r"mean abs 0\.2.*likely causes"):
            admission_check(trainer, sampler, same_engine=same_engine)


CHECKS: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "advantage": check_advantage,
    "mix": check_mix,
    "trl adapter": check_trl_adapter,
    "returns": check_returns,
    "credit": check_credit,
    "aggregate_loss": check_aggregate,
    "accumulate": check_accumulate,
    "mask": check_mask,
    "store": check_store,
    "ratio": check_ratio,
    "kl": check_kl,
    "logprob": check_logprob,
    "evict": check_evict,
    "kl_mean": check_kl_mean,
    "step": check_step,
    "metric": check_metric,
    "first_update": check_first_update,
}
WITH_TOY = {"ending", "group_close", "resume"}


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["input"]["kind"] not in WITH_TOY], ids=lambda c: c["id"]
)
def test_case(case: dict[str, Any]) -> None:
    CHECKS[case["input"]["kind"]](case["input"], case["expect"])


def of_kind(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "case", [c for c in CASES if c["input"]["kind"] == kind], ids=lambda c: c["id"]
    )


class ScriptedSampler:
    """Says one fixed token a turn and stops as told."""

    temperature = 1.0

    def __init__(self, stop_reasons: Sequence[Any]) -> None:
        self.reasons, self.fed = list(stop_reasons), list[int]()

    def open(self, n: int) -> "ScriptedSampler":
        return self

    def feed(self, row: int, new_ids: Sequence[int], uniforms: Any) -> None:
        self.fed.append(row)

    def step(self) -> list[tuple[int, Generation]]:
        rows, self.fed = self.fed, []
        return [(row, Generation([8], [-0.1], self.reasons.pop(0))) for row in rows]

    def fork(self, row: int) -> None: ...

    def drop(self, row: int) -> None: ...


class Endless:
    """Never ends by itself and has no verifier; ``lengths`` makes episodes of different length."""

    def __init__(self, length: int | None = None) -> None:
        self.left = length

    def reset(
        self, *, seed: int | None = None, task: Task | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        return Observation((Message(role="user", content="1"),)), {}

    def step(self, action: Action) -> tuple[Observation, float | None, bool, bool, dict[str, Any]]:
        self.left = None if self.left is None else self.left - 1
        return Observation((Message(role="user", content="2"),)), 0.0, self.left == 0, False, {"outcome": 1.0}

    def close(self) -> None: ...


@of_kind("ending")
def test_ending_case(case: dict[str, Any], toy: Any) -> None:
    i, e = case["input"], case["expect"]
    requests = group_requests(toy.tasks(1), 1, "x")
    (episode,) = collect(
        ScriptedSampler(i["stop_reasons"]), toy.chat, Endless, requests, limits=RolloutLimits(), seed=0
    )
    got = episode.record
    assert (got.ending, got.terminated, got.truncated) == (e["ending"], e["terminated"], e["truncated"])
    np.testing.assert_allclose(got.r_global, number(e["R_global"]))


@of_kind("group_close")
def test_group_close_case(case: dict[str, Any], toy: Any) -> None:
    i, e = case["input"], case["expect"]
    lengths = iter(i["finish_seconds"])
    requests = group_requests(toy.tasks(1), i["n"], "x")
    sampler = TransformersSampler(toy.model(), frozenset(range(16)))
    limits = RolloutLimits(max_turns=100)
    episodes = collect(sampler, toy.chat, lambda: Endless(next(lengths)), requests, limits=limits, seed=0)
    assert [len(x.record.steps) for x in episodes] == i["finish_seconds"]
    assert sum(x.record.ending == "done" for x in episodes) == e["waits_for"]
    assert sum(x.record.ending == "cancelled" for x in episodes) == e["cancelled"]


@of_kind("resume")
def test_resume_case(case: dict[str, Any], toy: Any, tmp_path: Path) -> None:
    stop, compared = case["input"]["stop_after_iteration"], case["input"]["compare_iterations"]

    def run(folder: str, iterations: int) -> tuple[Any, list[dict[str, float]], list[Any]]:
        options = PolicyConfig(
            iterations=iterations,
            tasks_per_iteration=2,
            group_size=4,
            rollout=RolloutConfig(max_turn_tokens=4),
        )
        trainer, drawn = toy.trainer(tmp_path / folder, options), []
        plan = trainer.algorithm.plan

        def watched(version: int, rng: np.random.Generator) -> Any:
            for minibatch in plan(version, rng):
                drawn.append(
                    [(s.record.traj_id, s.step.turn, s.step.uses, s.advantage) for s in minibatch.steps]
                )
                yield minibatch

        trainer.algorithm.plan = watched
        return trainer, trainer.run(), drawn

    whole, rows, drawn = run("whole", compared[-1])
    run("cut", stop)
    resumed, again, drawn_again = run("cut", compared[-1])
    assert drawn_again and drawn[-len(drawn_again) :] == drawn_again
    strip = [
        [{k: v for k, v in r.items() if not k.startswith("time/")} for r in x[stop:]] for x in (rows, again)
    ]
    assert json.dumps(strip[0], sort_keys=True) == json.dumps(strip[1], sort_keys=True)
    assert resumed.algorithm.statistics == whole.algorithm.statistics
    assert len(resumed.algorithm.buffer.records) == len(whole.algorithm.buffer.records)
