"""Rollouts: a batch of live episodes, token in, token out (POLICY.md section 17).

An episode's turn is sampled, its environment steps, and it goes on without waiting for the others. Ids grow
at the end only; a rewritten history (``full_prompt``) opens a new segment. Every draw is keyed by (run seed,
version, task, rollout, turn), so who else is in the batch does not matter.

A turn cut by its token limit ends the episode as ``token_limit`` without an environment step: the outcome
is missing unless the environment can verify its state as it is (an optional method ``outcome() -> float |
None``).
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from axiomrm.data.environment import Action, Observation, TurnEnv
from axiomrm.data.trajectory import Message, Outcome, Task, Trajectory
from axiomrm.policy_opt.chat_format import ChatFormat
from axiomrm.policy_opt.infos import outcome_metrics, plain_info
from axiomrm.policy_opt.records import NAN, Ending, StepRecord, TrajectoryRecord
from axiomrm.policy_opt.reward import Episode
from axiomrm.policy_opt.rollout_limits import RolloutLimits
from axiomrm.policy_opt.sampler import Generation, Sampler
from axiomrm.policy_opt.seeds import derived_seed, generator

EnvFactory = Callable[[], TurnEnv]


@runtime_checkable
class Verifiable(Protocol):
    """An environment whose verifier can read the state at any time."""

    def outcome(self) -> float | None:
        """The outcome of the state as it is; ``None`` = the verifier gave no result."""
        ...


@dataclass(frozen=True)
class RolloutRequest:
    """One episode to run."""

    task: Task
    group_id: str
    rollout: int
    """Index in its group."""


@dataclass
class _Live:
    request: RolloutRequest
    env: TurnEnv
    record: TrajectoryRecord
    ids: list[int] = field(default_factory=list)
    new_ids: list[int] = field(default_factory=list)
    forked: bool = False
    messages: list[Message] = field(default_factory=list)
    tools: tuple[dict[str, Any], ...] = ()
    infos: list[dict[str, Any]] = field(default_factory=list)
    reset_info: dict[str, Any] = field(default_factory=dict)
    state_key: Any = None
    progress: float = NAN
    done: bool = False


def group_requests(tasks: Sequence[Task], group_size: int, prefix: str) -> list[RolloutRequest]:
    """``group_size`` rollouts of each task instance; the same task drawn twice makes two groups."""
    return [
        RolloutRequest(task, f"{prefix}/{index}/{task.id}", rollout)
        for index, task in enumerate(tasks)
        for rollout in range(group_size)
    ]


def collect(
    sampler: Sampler,
    chat: ChatFormat,
    env_factory: EnvFactory,
    requests: Sequence[RolloutRequest],
    *,
    limits: RolloutLimits,
    seed: int,
    policy_version: int = 0,
) -> list[Episode]:
    """Run every request to its end; results in the order asked. An episode whose environment raised is kept
    with ending ``env_error`` (not admitted to training)."""
    episodes: list[Episode] = []
    for first in range(0, len(requests), limits.max_live):
        wave = [
            _open(r, env_factory, seed, policy_version, sampler)
            for r in requests[first : first + limits.max_live]
        ]
        for live in wave:
            _reset(live, chat, seed)
        _run(wave, sampler, chat, limits, seed)
        episodes += [_close(live) for live in wave]
    return episodes


def _open(
    request: RolloutRequest, env_factory: EnvFactory, seed: int, policy_version: int, sampler: Sampler
) -> _Live:
    env = env_factory()
    record = TrajectoryRecord(
        traj_id=f"{request.group_id}#{request.rollout}",
        task_id=request.task.id,
        group_id=request.group_id,
        task_type=request.task.type,
        subject=request.task.features.get("subject"),
        segments=[],
        steps=[],
        policy_version=policy_version,
        seed=seed,
        temperature=sampler.temperature,
        env=type(env).__name__,
        env_version=str(getattr(env, "version", "")),
    )
    return _Live(request, env, record)


def _reset(live: _Live, chat: ChatFormat, seed: int) -> None:
    try:
        observation, info = live.env.reset(
            seed=derived_seed(seed, "env", live.request.group_id), task=live.request.task
        )
    except Exception as error:  # boundary: one broken episode is recorded, the others go on
        _fail(live, error)
        return
    live.reset_info = plain_info(info)
    _observe(live, observation, info, chat, first=True)


def _observe(
    live: _Live, observation: Observation, info: dict[str, Any], chat: ChatFormat, *, first: bool
) -> None:
    live.forked = observation.full_prompt and not first
    if observation.full_prompt:
        live.messages, live.ids = [], live.ids if first else []
    if observation.tools:
        live.tools = observation.tools
    live.new_ids = chat.prompt_ids(observation.messages, live.tools, first or observation.full_prompt)
    if first or live.forked:
        live.record.segments.append(np.empty(0, dtype=np.int32))
    live.messages += observation.messages
    live.ids += live.new_ids
    live.state_key = info.get("state_key")
    live.progress = _number(info.get("progress"))


def _run(wave: list[_Live], sampler: Sampler, chat: ChatFormat, limits: RolloutLimits, seed: int) -> None:
    """Each episode goes on when its own turn ends."""
    _stop_too_long(wave, limits)
    live = dict(enumerate(episode for episode in wave if not episode.done))
    if not live:
        return
    rows = sampler.open(len(live))
    for row, episode in live.items():
        rows.feed(row, episode.new_ids, _uniforms(episode, limits, seed))
    while live:
        for row, generation in rows.step():
            episode = live[row]
            _advance(episode, generation, chat, limits)
            _stop_too_long([episode], limits)
            if episode.done:
                rows.drop(row)
                del live[row]
                continue
            if episode.forked:
                rows.fork(row)
            rows.feed(row, episode.new_ids, _uniforms(episode, limits, seed))


def _uniforms(live: _Live, limits: RolloutLimits, seed: int) -> Any:
    room = min(limits.max_turn_tokens, limits.max_episode_tokens - len(live.ids))
    key = (seed, "sample", live.record.policy_version, live.record.traj_id, len(live.record.steps))
    return generator(*key).random(room)


def _stop_too_long(waiting: Sequence[_Live], limits: RolloutLimits) -> None:
    for live in waiting:
        if not live.done and len(live.ids) >= limits.max_episode_tokens:
            _end(live, "token_limit", truncated=True)


def _advance(live: _Live, generation: Generation, chat: ChatFormat, limits: RolloutLimits) -> None:
    """Store the sampled turn, then let the environment answer it."""
    _store(live, generation)
    try:
        action = chat.parse(generation.token_ids)
        live.messages.append(action.message())
        if generation.stop_reason == "length":
            live.infos.append({"error_kind": "token_limit"})
            _end(live, "token_limit", truncated=True)
            return
        _step(live, action, chat, limits)
    except Exception as error:  # boundary: one broken episode is recorded, the others go on
        _fail(live, error)


def _store(live: _Live, generation: Generation) -> None:
    start = len(live.ids)
    live.ids += generation.token_ids
    live.record.segments[-1] = np.asarray(live.ids, dtype=np.int32)
    live.record.steps.append(
        StepRecord(
            traj_id=live.record.traj_id,
            turn=len(live.record.steps),
            segment=len(live.record.segments) - 1,
            start=start,
            end=len(live.ids),
            policy_version=live.record.policy_version,
            behaviour_logprobs=np.asarray(generation.logprobs, dtype=np.float32),
            progress=live.progress,
            anchor=_anchor(live.state_key),
        )
    )


def _step(live: _Live, action: Action, chat: ChatFormat, limits: RolloutLimits) -> None:
    observation, reward, terminated, truncated, info = live.env.step(action)
    step = live.record.steps[-1]
    step.r_local = NAN if reward is None else float(reward)
    live.infos.append(plain_info(info))
    if terminated or truncated:
        live.messages += observation.messages
        live.record.outcome = _number(info.get("outcome"))
        live.record.outcome_parts = dict(info.get("parts", {}))
        # An environment's own limit belongs to the task: its verifier has read the final state.
        _end(live, "done" if terminated else "turn_limit", truncated=truncated and not terminated)
        return
    _observe(live, observation, info, chat, first=False)
    if len(live.record.steps) >= limits.max_turns:
        _end(live, "turn_limit", truncated=True)


def _end(live: _Live, ending: Ending, *, truncated: bool) -> None:
    record = live.record
    record.ending, record.truncated, record.terminated, live.done = ending, truncated, not truncated, True
    if truncated and math.isnan(record.outcome) and isinstance(live.env, Verifiable):
        record.outcome = _number(live.env.outcome())


def _fail(live: _Live, error: Exception) -> None:
    live.infos.append({"error_kind": "env_error", "detail": f"{type(error).__name__}: {error}"})
    live.record.ending, live.record.truncated, live.done = "env_error", True, True
    live.record.outcome = NAN


def _close(live: _Live) -> Episode:
    live.env.close()
    record = live.record
    score = None if math.isnan(record.outcome) else record.outcome
    trajectory = Trajectory(
        id=record.traj_id,
        task_id=record.task_id,
        group_id=record.group_id,
        task=live.request.task,
        messages=tuple(live.messages),
        tools=live.tools,
        outcome=Outcome(score=score, metrics=outcome_metrics(live.reset_info, live.infos)),
        metadata={
            "turns": live.infos,
            "reset": live.reset_info,
            "ending": record.ending,
            "policy_version": record.policy_version,
            "action_tokens": record.n_action_tokens,
        },
    )
    return Episode(record, trajectory)


def _number(value: Any) -> float:
    return NAN if value is None else float(value)


def _anchor(state_key: Any) -> int | None:
    if state_key is None:
        return None
    return int.from_bytes(hashlib.sha256(repr(state_key).encode()).digest()[:7], "little")
