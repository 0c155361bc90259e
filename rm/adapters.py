"""The judge inside other trainers. TRL: a reward function for ``GRPOTrainer`` (1.16).

A missing verdict is ``None``, which trl leaves out of the group, never a number; each different reason is
logged once.

Trap: with several reward functions and trl's default ``multi_objective_aggregation="sum_then_normalize"``
one function's ``None`` counts as 0 beside another's number; only a row that is ``None`` everywhere is left
out. So give trl *one* function that mixes (`mixed_reward`), or set ``"normalize_then_sum"``;
`check_trl_rewards` refuses anything else.
"""

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from numbers import Real
from typing import Any, Literal, get_args

from axiomrm.data.jsonl import found_instead
from axiomrm.data.openai_chat import to_messages
from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.arguments import asks_a_model, check_rubric
from axiomrm.rm.judgement import Judgement
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric

log = logging.getLogger(__name__)
TrlLevel = Literal["trajectory", "turns"]
TrlReward = Callable[..., list[float | None]]
"""``reward(prompts, completions, **columns)``, one entry a completion."""
TRL_LOGGER = "trl.trainer.grpo_trainer"
COLUMNS = ("features", "reference", "task_id")
"""Data set columns that become the trajectory's task."""
MOST_REASONS = 20
"""Different reasons of missing rewards that one function logs."""


def trl_reward(reward_model: RewardModel, rubric: Rubric, *, level: TrlLevel = "trajectory") -> TrlReward:
    """A reward function for trl's ``GRPOTrainer``.

    Prompts and completions are texts or lists of messages, tool calls and tool messages included. The data
    set's columns ``features`` (an object), ``reference`` and ``task_id`` are used where present.

    Args:
        reward_model: the judge.
        rubric: its criteria.
        level: the rubric's reward of the whole dialogue, or the mean of the rewards of the completion's own
            turns (``None`` if one of them is missing).

    Raises:
        ConfigError: an argument of another kind or another level; a rubric that could never give a reward: it
            needs a judge model that ``reward_model`` does not have, or has no criteria of turns at level
            ``turns``.
    """
    _check_judge(reward_model, rubric, level)
    told = _Told(rubric.id)

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        rewards: list[float | None] = [None] * len(completions)
        loaded: dict[int, tuple[Trajectory, int]] = {}
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            try:
                loaded[i] = completed(prompt, completion, {k: columns[k][i] for k in COLUMNS if k in columns})
            except DataError as error:  # one row that cannot be read is one missing reward
                told.tell(str(error).partition(", found ")[0])  # what was found is a user's text
        answers = reward_model.score_many([t for t, _ in loaded.values()], rubric, batch=max(1, len(loaded)))
        for (i, (trajectory, first)), answer in zip(loaded.items(), answers, strict=True):
            rewards[i] = _number(answer, first, level)
            if rewards[i] is None:
                told.tell(_why(answer, first, level), trajectory.task_id)
        if "log_metric" in columns and rewards:
            columns["log_metric"]("judge/missing_share", sum(r is None for r in rewards) / len(rewards))
        return rewards

    reward.__name__ = f"axiomrm_{rubric.id}"  # trl names its metrics after it
    return reward


def _check_judge(reward_model: Any, rubric: Any, level: Any) -> None:
    if not isinstance(reward_model, RewardModel):
        raise ConfigError(f"trl_reward: reward_model: {found_instead(reward_model, 'a RewardModel')}")
    check_rubric(rubric, "trl_reward")
    if level not in get_args(TrlLevel):
        accepted = f"one of {', '.join(get_args(TrlLevel))}"
        raise ConfigError(f"trl_reward: level: {found_instead(level, accepted)}")
    asked = asks_a_model(rubric) if reward_model.engine is None else []
    if asked:
        raise ConfigError(
            f"trl_reward: {rubric.id!r} has items that need a judge model, and this reward model has none: "
            f"{', '.join(asked)}; use RewardModel.from_pretrained(…), or a rubric such as process_shaping"
        )
    if level == "turns" and not any(t.evidence.level == "turn" for t in rubric.theorems):
        raise ConfigError(
            f"trl_reward: level 'turns': {rubric.id!r} has no criterion of turns; use level 'trajectory' or "
            "a rubric such as process_shaping"
        )


class _Told:
    """Why rewards are missing, each different reason once; numbers and the task's id make none different."""

    def __init__(self, rubric: str) -> None:
        self.rubric, self.known = rubric, set[str]()

    def tell(self, reason: str, task_id: str = "") -> None:
        key = re.sub(r"\d+(\.\d+)?", "#", reason.replace(repr(task_id), "") if task_id else reason)
        if key not in self.known and len(self.known) < MOST_REASONS:
            self.known.add(key)
            log.warning("reward %r: a completion has none: %s", self.rubric, reason)


def completed(prompt: Any, completion: Any, columns: Mapping[str, Any]) -> tuple[Trajectory, int]:
    """Prompt and completion as one trajectory, and the index of the completion's first turn.

    Raises:
        DataError: one of them cannot be read as text or messages, or the completion says nothing.
    """
    before = _messages(prompt, "user")
    after = _messages(completion, "assistant")
    if not any(message.is_action for message in after):
        raise DataError("completion: no assistant message in it")
    features = columns.get("features") or {}
    if not isinstance(features, dict):
        raise DataError(f"features: expected an object a row, not {type(features).__name__}")
    task = Task(features=features, reference=columns.get("reference"))
    name = str(columns.get("task_id") or "")
    first = sum(message.is_action for message in before)
    return Trajectory(messages=(*before, *after), task=task, task_id=name), first


def mixed_reward(functions: Mapping[str, TrlReward], weights: Mapping[str, float]) -> TrlReward:
    """One trl reward function out of several: a weighted sum, ``None`` where a part is missing.

    Raises:
        DataError: functions and weights do not name the same things, or a weight is no finite number. The
            function itself: a part does not answer with one reward a completion; names the part.
    """
    _check_weights(functions, weights, "functions")

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        asked = {"prompts": prompts, "completions": completions, **columns}
        parts = {name: part(**asked) for name, part in functions.items()}
        for name, values in parts.items():
            if not isinstance(values, Sized) or len(values) != len(completions):
                expected = f"a list of {len(completions)} rewards, one a completion"
                raise DataError(f"reward part {name!r}: {found_instead(values, expected)}")
        return mixed_rewards(parts, weights)

    reward.__name__ = "_".join(functions)
    return reward


def mixed_rewards(
    parts: Mapping[str, Sequence[float | None]], weights: Mapping[str, float]
) -> list[float | None]:
    """Weighted sum of reward parts a row, in the shape of a trl reward function's answer.

    Args:
        parts: one sequence a part, all of one length; ``None`` or NaN = missing.
        weights: one for each part.

    Returns:
        ``None`` for a row with a missing part: the sum of the rest would be another reward.

    Raises:
        DataError: parts and weights do not name the same things, lengths differ, or a weight or a reward is
            no finite number; names the part.
    """
    _check_weights(parts, weights, "parts")
    lengths = {name: len(values) for name, values in parts.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"reward parts differ in length: {lengths!r}")
    rows = range(next(iter(lengths.values()), 0))
    return [_weighted({name: values[row] for name, values in parts.items()}, weights, row) for row in rows]


def _check_weights(parts: Mapping[str, Any], weights: Mapping[str, float], what: str) -> None:
    if set(parts) != set(weights):
        raise DataError(
            f"reward {what} {sorted(parts)!r} and weights {sorted(weights)!r} must name the same things"
        )
    for name, weight in weights.items():
        if not isinstance(weight, Real) or not math.isfinite(weight):
            raise DataError(f"weight of reward part {name!r}: {found_instead(weight, 'a finite number')}")


def _weighted(row: Mapping[str, Any], weights: Mapping[str, float], index: int) -> float | None:
    values = {name: _value(found, f"reward part {name!r}, row {index}") for name, found in row.items()}
    if any(math.isnan(value) for value in values.values()):
        return None
    return math.fsum(weights[name] * value for name, value in values.items())


def _value(found: Any, place: str) -> float:
    """NaN = missing."""
    try:
        value = math.nan if found is None else math.inf if isinstance(found, str | bytes) else float(found)
    except (TypeError, ValueError, OverflowError):
        value = math.inf
    if math.isinf(value):
        raise DataError(f"{place}: {found_instead(found, 'a finite number, or None for a missing one')}")
    return value


def check_trl_rewards(reward_funcs: Any, multi_objective_aggregation: str = "sum_then_normalize") -> None:
    """Refuse the combination in which trl turns a missing verdict into a 0.

    Args:
        reward_funcs: as given to ``GRPOTrainer``.
        multi_objective_aggregation: as in its ``GRPOConfig``; trl's default.

    Raises:
        ConfigError: several functions whose numbers are summed before they are normalised.
    """
    several = isinstance(reward_funcs, list | tuple) and len(reward_funcs) > 1
    if several and multi_objective_aggregation != "normalize_then_sum":
        raise ConfigError(
            f"trl with {len(reward_funcs)} reward functions and {multi_objective_aggregation!r} counts a "
            "missing verdict as 0; pass one function (axiomrm.rm.adapters.mixed_reward) or set "
            "multi_objective_aggregation='normalize_then_sum'"
        )


def hide_texts_in_trl_log() -> None:
    """Keep prompts and answers out of trl's warning about rows without any reward."""
    logger = logging.getLogger(TRL_LOGGER)
    if not any(isinstance(known, _HideTexts) for known in logger.filters):
        logger.addFilter(_HideTexts())


class _HideTexts(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if "reward functions returned None" in str(record.msg):
            record.msg, record.args = (
                "a completion has no reward from any function; its text is not logged",
                (),
            )
        return True


def _messages(value: Any, role: str) -> tuple[Message, ...]:
    if isinstance(value, str):
        value = [{"role": role, "content": value}]
    return to_messages(value, "prompt" if role == "user" else "completion")


def _number(answer: Judgement | Failed, first: int, level: str) -> float | None:
    if isinstance(answer, Failed):
        return None
    if level == "trajectory":
        return answer.reward
    turns = [turn.reward for turn in answer.turns[first:]]
    known = [reward for reward in turns if reward is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(turns) else None


def _why(answer: Judgement | Failed, first: int, level: str) -> str:
    """Why there is no number, without any text of the dialogue."""
    if isinstance(answer, Failed):
        return f"{answer.kind}: {answer.detail}"
    asked = [answer] if level == "trajectory" else [t for t in answer.turns[first:] if t.reward is None]
    reasons = dict.fromkeys(judged.reason for judged in asked)
    missing = sorted(kind for kind in answer.counts if kind != "scored")
    return f"{'; '.join(reasons)} (verdicts: {', '.join(missing) or 'all scored'})"
