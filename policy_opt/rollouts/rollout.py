"""Rollouts: a batch of live episodes, token in, token out (POLICY.md section 17).

An episode's turn is sampled, its environment steps, and it goes on without waiting for the others. Ids grow
at the end only; a rewritten history (``full_prompt``) opens a new segment, and the transcript goes on
(`transcript`). Every draw is keyed by (run seed,
version, task, rollout, turn), so who else is in the batch does not matter.

A turn cut by its token limit ends the episode as ``token_limit`` without an environment step: the outcome
is missing unless the environment can verify its state as it is (an optional method ``outcome() -> float |
None``). That is asked of every episode whose last info holds no outcome.

An environment that raises or answers wrongly, in whichever method, ends its own episode as ``env_error``:
nothing is known of its outcome, and the others go on.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from axiomrm.data.environment import Action, Observation, TurnEnv
from axiomrm.data.trajectory import Outcome, Task, Trajectory
from axiomrm.policy_opt.engines.transformers import Generation, Sampler
from axiomrm.policy_opt.records import NAN, Ending, StepRecord, TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.rewards.users import named_subject
from axiomrm.policy_opt.rollouts import env_calls
from axiomrm.policy_opt.rollouts.chat_format import ChatFormat
from axiomrm.policy_opt.rollouts.env_calls import EnvFactory, EnvFault
from axiomrm.policy_opt.rollouts.first_prompts import TooLong, check_first_prompts
from axiomrm.policy_opt.rollouts.infos import outcome_metrics, plain_info
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.requests import RolloutRequest as RolloutRequest
from axiomrm.policy_opt.rollouts.requests import group_requests as group_requests
from axiomrm.policy_opt.rollouts.state_keys import anchor
from axiomrm.policy_opt.rollouts.transcript import Transcript
from axiomrm.policy_opt.rollouts.writable import Pieces, mended
from axiomrm.policy_opt.seeds import derived_seed, generator

log = logging.getLogger(__name__)


@dataclass
class _Live:
    request: RolloutRequest
    record: TrajectoryRecord
    env: TurnEnv | None = None
    """``None``: it could not be made."""
    ids: list[int] = field(default_factory=list)
    new_ids: list[int] = field(default_factory=list)
    forked: bool = False
    transcript: Transcript = field(default_factory=Transcript)
    tools: tuple[dict[str, Any], ...] = ()
    infos: list[dict[str, Any]] = field(default_factory=list)
    reset_info: dict[str, Any] = field(default_factory=dict)
    anchor: int | None = None
    progress: float = NAN
    """Of the state as it is now."""
    done: bool = False


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
    """Run every request to its end; results in the order asked. An episode whose environment raised or
    answered wrongly is kept with ending ``env_error`` (not admitted to training).

    Raises:
        ConfigError: no episode can begin, because its first prompt leaves no room for a turn; where some can,
            the tasks of the others are named in the log.
    """
    episodes: list[Episode] = []
    too_long: list[TooLong] = []
    for first in range(0, len(requests), limits.max_live):
        wave = [_open(r, seed, policy_version, sampler) for r in requests[first : first + limits.max_live]]
        for live in wave:
            _reset(live, env_factory, chat, seed)
        _run(wave, sampler, chat, limits, seed)
        episodes += [_close(live) for live in wave]
        stuck = [live for live in wave if not live.record.steps and live.record.ending == "token_limit"]
        too_long += [TooLong(live.record.task_id, len(live.ids)) for live in stuck]
    check_first_prompts(too_long, len(requests), limits.max_episode_tokens)
    return episodes


def _open(request: RolloutRequest, seed: int, policy_version: int, sampler: Sampler) -> _Live:
    record = TrajectoryRecord(
        traj_id=f"{request.group_id}#{request.rollout}",
        task_id=request.task.id,
        group_id=request.group_id,
        task_type=request.task.type,
        subject=named_subject(request.task.features),
        segments=[],
        steps=[],
        policy_version=policy_version,
        seed=seed,
        temperature=sampler.temperature,
    )
    return _Live(request, record)


def _reset(live: _Live, env_factory: EnvFactory, chat: ChatFormat, seed: int) -> None:
    try:
        live.env = env = env_calls.make(env_factory)
        live.record.env, live.record.env_version = type(env).__name__, env_calls.version(env)
        key = derived_seed(seed, "env", live.request.group_id)
        observation, info = env_calls.reset(env, key, live.request.task)
        live.reset_info = plain_info(info)
        live.progress = env_calls.number(info, "progress")
        _observe(live, observation, info, chat, first=True)
    except Exception as error:  # boundary: one broken episode is recorded, the others go on
        _fail(live, error)


def _observe(
    live: _Live, observation: Observation, info: Mapping[str, Any], chat: ChatFormat, *, first: bool
) -> None:
    live.forked = observation.full_prompt and not first
    if live.forked:
        live.ids = []
    if observation.tools:
        live.tools = observation.tools
    live.new_ids = chat.prompt_ids(observation.messages, live.tools, first or observation.full_prompt)
    if first or live.forked:
        live.record.segments.append(np.empty(0, dtype=np.int32))
    live.transcript.observe(observation)
    live.ids += live.new_ids
    live.anchor = anchor(info.get("state_key"))


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
            try:
                _end(live, "token_limit", truncated=True)
            except EnvFault as error:
                _fail(live, error)


def _advance(live: _Live, generation: Generation, chat: ChatFormat, limits: RolloutLimits) -> None:
    """Store the sampled turn, then let the environment answer it."""
    _store(live, generation)
    try:
        action = chat.parse(generation.token_ids)
        live.transcript.act(action.message())
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
            anchor=live.anchor,
        )
    )
    live.progress = NAN  # until the environment has answered


def _step(live: _Live, action: Action, chat: ChatFormat, limits: RolloutLimits) -> None:
    assert live.env is not None  # an episode without one has failed
    observation, reward, terminated, truncated, info = env_calls.step(live.env, action)
    live.record.steps[-1].r_local = reward
    live.infos.append(plain_info(info))
    live.progress = env_calls.number(info, "progress")
    if terminated or truncated:
        live.transcript.observe(observation)
        live.record.outcome = env_calls.number(info, "outcome")
        parts = info.get("parts") or {}
        live.record.outcome_parts = {str(name): env_calls.number(parts, name) for name in parts}
        # An environment's own limit belongs to the task: its verifier has read the final state.
        _end(live, "done" if terminated else "turn_limit", truncated=truncated and not terminated)
        return
    _observe(live, observation, info, chat, first=False)
    if len(live.record.steps) >= limits.max_turns:
        _end(live, "turn_limit", truncated=True)


def _end(live: _Live, ending: Ending, *, truncated: bool) -> None:
    record = live.record
    record.ending, record.truncated, record.terminated, live.done = ending, truncated, not truncated, True
    record.final_progress = live.progress
    if math.isnan(record.outcome) and live.env is not None:
        record.outcome = env_calls.outcome(live.env)


def _fail(live: _Live, error: Exception) -> None:
    """The first fault of an episode is the one that is told."""
    record, live.done = live.record, True
    if record.ending == "env_error":
        return
    detail = env_calls.said(error)
    log.warning("rollout %s, task %r: %s", record.traj_id, record.task_id, detail)
    told = {"error_kind": "env_error", "detail": detail}
    if live.infos and len(live.infos) == len(record.steps):
        live.infos[-1] |= told  # an info a turn
    else:
        live.infos.append(told)
    record.ending, record.truncated, record.terminated = "env_error", True, False
    record.outcome, record.outcome_parts, record.final_progress = NAN, {}, NAN


def _close(live: _Live) -> Episode:
    if live.env is not None:
        try:
            env_calls.close(live.env)
        except EnvFault as error:
            _fail(live, error)
    task = _mend(live)
    record = live.record
    score = None if math.isnan(record.outcome) else record.outcome
    trajectory = Trajectory(
        id=record.traj_id,
        task_id=record.task_id,
        group_id=record.group_id,
        task=task,
        messages=tuple(live.transcript.messages),
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


def _mend(live: _Live) -> Task:
    """What files cannot hold fails the episode and is taken out; returns its task."""
    said = live.transcript
    found = Pieces(said.messages, live.tools, live.reset_info, live.infos, live.request.task)
    (said.messages, live.tools, live.reset_info, live.infos, task), wrong = mended(found)
    if wrong is not None:
        _fail(live, EnvFault(f"{live.record.env}: cannot be written as JSON: {wrong}"))
    return task
