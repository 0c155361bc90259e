"""What the replay buffer stores: ids as the sampler saw and emitted them, raw rewards, never advantages.

Trajectories are the unit of storage, steps (assistant turns) the unit of sampling. A missing number is NaN.
``StepReturns`` holds returns and the mean of the *other* group members, which stay valid when the group's
other trajectories are evicted; running statistics are applied when a step is drawn.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal, SupportsAbs

import numpy as np
from numpy.typing import NDArray

from axiomrm.errors import DataError

Ending = Literal["done", "turn_limit", "token_limit", "time_limit", "env_error", "cancelled"]
NAN = float("nan")
LARGEST = 1e9
"""Greatest size of a reward that is taken: squares and sums of such still are numbers in single precision."""


def too_large(reward: SupportsAbs[Any]) -> bool:
    """Whether a reward, missing ones aside, is infinite or beyond ``LARGEST``."""
    return bool(abs(reward) > LARGEST)


@dataclass(frozen=True)
class Target:
    """One return of one step and what its baseline is made of."""

    value: float = NAN
    loo: float = NAN
    """Mean of the group without this trajectory; NaN where nobody else is in the group."""
    m: int = 1
    """Size of the baseline group, this member included."""
    level: int = -1
    """Index of the ladder level that served, -1 = none."""


@dataclass(frozen=True)
class StepReturns:
    """Both targets of a step."""

    local: Target = field(default_factory=Target)
    outcome: Target = field(default_factory=Target)
    """The global target: the trajectory's return, the same for each of its steps."""
    zero_variance: bool = False
    """Every member of the group (two or more) has the same global return: the global term is exactly 0."""


@dataclass
class StepRecord:
    """One assistant turn of a trajectory."""

    traj_id: str
    turn: int
    segment: int
    start: int
    """First action token in ``TrajectoryRecord.segments[segment]``."""
    end: int
    """One past the last action token (the terminator is part of the action)."""
    policy_version: int
    behaviour_logprobs: NDArray[np.float32]
    """Log-probabilities at generation time, from the sampler, one an action token."""
    r_local: float = NAN
    r_parts: dict[str, float] = field(default_factory=dict)
    progress: float = NAN
    """The judge's value of the state before the turn."""
    missing: str | None = None
    """Why ``r_local`` is NaN: ``"cannot_assess:…"`` or ``"failed:…"``."""
    rubric_hash: str = ""
    judge_revision: str = ""
    coverage: float = NAN
    interval: tuple[float, float] | None = None
    anchor: int | None = None
    """Hash of ``info["state_key"]`` (`state_keys`)."""
    uses: int = 0
    """Optimizer passes so far, the fresh one included."""
    last_m1: float = NAN
    last_m2: float = NAN
    last_w: float = NAN
    ref_logprobs: NDArray[np.float32] | None = None
    """Log-probabilities of the frozen reference; constant in a run, so computed once."""
    returns: StepReturns | None = None

    @property
    def n_tokens(self) -> int:
        """Action tokens of the step."""
        return self.end - self.start

    @property
    def judged(self) -> bool:
        """Whether the turn's reward came from a judge, and not from the environment or nowhere."""
        return bool(self.judge_revision) and not math.isnan(self.r_local)

    @property
    def judge_key(self) -> str:
        """Statistics and baselines never cross this key."""
        return f"{self.rubric_hash}@{self.judge_revision}"


@dataclass
class TrajectoryRecord:
    """One episode."""

    traj_id: str
    task_id: str
    group_id: str
    segments: list[NDArray[np.int32]]
    """Token ids as seen and emitted; a second segment starts where the prompt was rewritten (a fork)."""
    steps: list[StepRecord]
    policy_version: int
    task_type: str = ""
    subject: str | None = None
    """Pseudonymous token of the user, so that ``buffer.forget`` can find the record."""
    seed: int = 0
    outcome: float = NAN
    final_progress: float = NAN
    """The judge's value of the state after the last turn; NaN where the environment never saw that turn."""
    judge_reward: float = NAN
    mixed: bool = False
    """``judge_reward`` already holds the outcome in a configured mix, and stands for both."""
    outcome_parts: dict[str, float] = field(default_factory=dict)
    terminated: bool = False
    truncated: bool = False
    ending: Ending = "done"
    temperature: float = 1.0
    env: str = ""
    env_version: str = ""
    transcript: str = ""
    """The episode as JSON (``Trajectory``); empty unless the algorithm keeps it for another judge."""

    @property
    def r_global(self) -> float:
        """The verifier's outcome if there is one, else the judge's trajectory reward; NaN = neither."""
        return self.judge_reward if self.mixed or math.isnan(self.outcome) else self.outcome

    @property
    def n_action_tokens(self) -> int:
        """Sampled tokens of the whole episode."""
        return sum(step.n_tokens for step in self.steps)

    def action_ids(self, step: StepRecord) -> NDArray[np.int32]:
        """The ids sampled in ``step``."""
        return self.segments[step.segment][step.start : step.end]


def check_tokens(record: TrajectoryRecord) -> None:
    """Refuse a record whose ids and log-probs do not belong together.

    Raises:
        DataError: lengths differ, a span leaves its segment, or a behaviour log-prob is not finite.
    """
    for step in record.steps:
        place = f"trajectory {record.traj_id!r}, turn {step.turn}"
        size = len(record.segments[step.segment]) if step.segment < len(record.segments) else -1
        if not 0 < step.start < step.end <= size:
            raise DataError(
                f"{place}: action span [{step.start}, {step.end}) does not lie in segment {step.segment} of "
                f"{size} ids (an action has at least one token and something before it)"
            )
        if len(step.behaviour_logprobs) != step.n_tokens:
            raise DataError(
                f"{place}: {step.n_tokens} ids, {len(step.behaviour_logprobs)} log-probs; "
                "store the ids as sampled, never decoded and encoded again"
            )
        if not np.isfinite(step.behaviour_logprobs).all():
            raise DataError(
                f"{place}: behaviour log-prob not finite; only what the sampler reported is accepted"
            )


def to_json(record: TrajectoryRecord) -> dict[str, Any]:
    """Plain JSON values; NaN stays NaN (Python's JSON reads it back), arrays become lists."""
    row: dict[str, Any] = _plain(record)
    return row


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if is_dataclass(value):
        # Not dataclasses.asdict: it deep-copies every array first.
        return {key: _plain(item) for key, item in vars(value).items()}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def from_json(row: Mapping[str, Any]) -> TrajectoryRecord:
    """The inverse of ``to_json``.

    Raises:
        DataError: an unknown or missing field.
    """
    unknown = set(row) - {f.name for f in fields(TrajectoryRecord)}
    if unknown:
        raise DataError(f"trajectory record {row.get('traj_id')!r}: unknown fields {sorted(unknown)!r}")
    try:
        values = dict(row)
        values["segments"] = [np.asarray(ids, dtype=np.int32) for ids in row["segments"]]
        values["steps"] = [_step_from_json(step) for step in row["steps"]]
        return TrajectoryRecord(**values)
    except (KeyError, TypeError) as error:
        raise DataError(f"trajectory record {row.get('traj_id')!r} cannot be read: {error}") from error


def _step_from_json(row: Mapping[str, Any]) -> StepRecord:
    values = dict(row)
    values["behaviour_logprobs"] = np.asarray(row["behaviour_logprobs"], dtype=np.float32)
    if row["ref_logprobs"] is not None:
        values["ref_logprobs"] = np.asarray(row["ref_logprobs"], dtype=np.float32)
    if row["interval"] is not None:
        values["interval"] = tuple(row["interval"])
    if row["returns"] is not None:
        values["returns"] = StepReturns(
            local=Target(**row["returns"]["local"]),
            outcome=Target(**row["returns"]["outcome"]),
            zero_variance=row["returns"]["zero_variance"],
        )
    return StepRecord(**values)
