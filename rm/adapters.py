"""The judge inside other trainers. TRL: a reward function for ``GRPOTrainer`` (1.16).

A missing verdict is ``None``, which trl leaves out of the group, never a number.

Trap: with several reward functions and trl's default ``multi_objective_aggregation="sum_then_normalize"``
one function's ``None`` counts as 0 beside another's number; only a row that is ``None`` everywhere is left
out. So give trl *one* function that mixes (`mixed_reward`), or set ``"normalize_then_sum"``;
`check_trl_rewards` refuses anything else.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from axiomrm.data.openai_chat import to_messages
from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.judgement import Judgement
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import Rubric

TrlReward = Callable[..., list[float | None]]
"""``reward(prompts, completions, **columns)``, one entry a completion."""
TRL_LOGGER = "trl.trainer.grpo_trainer"
COLUMNS = ("features", "reference", "task_id")
"""Data set columns that become the trajectory's task."""


def trl_reward(
    reward_model: RewardModel, rubric: Rubric, *, level: Literal["trajectory", "turns"] = "trajectory"
) -> TrlReward:
    """A reward function for trl's ``GRPOTrainer``.

    Prompts and completions are texts or lists of messages, tool calls and tool messages included. The data
    set's columns ``features`` (an object), ``reference`` and ``task_id`` are used where present.

    Args:
        reward_model: the judge.
        rubric: its criteria.
        level: the rubric's reward of the whole dialogue, or the mean of the rewards of the completion's own
            turns (``None`` if one of them is missing).
    """

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        rewards: list[float | None] = [None] * len(completions)
        loaded: dict[int, tuple[Trajectory, int]] = {}
        for i, (prompt, completion) in enumerate(zip(prompts, completions, strict=True)):
            try:
                loaded[i] = completed(prompt, completion, {k: columns[k][i] for k in COLUMNS if k in columns})
            except DataError:  # one row that cannot be read is one missing reward
                continue
        answers = reward_model.score_many([t for t, _ in loaded.values()], rubric, batch=max(1, len(loaded)))
        for (i, (_, first)), answer in zip(loaded.items(), answers, strict=True):
            rewards[i] = _number(answer, first, level)
        if "log_metric" in columns and rewards:
            columns["log_metric"]("judge/missing_share", sum(r is None for r in rewards) / len(rewards))
        return rewards

    reward.__name__ = f"axiomrm_{rubric.id}"  # trl names its metrics after it
    return reward


def completed(prompt: Any, completion: Any, columns: Mapping[str, Any]) -> tuple[Trajectory, int]:
    """Prompt and completion as one trajectory, and the index of the completion's first turn.

    Raises:
        DataError: one of them cannot be read as text or messages, or the completion says nothing.
    """
    before = _messages(prompt, "user")
    after = _messages(completion, "assistant")
    if not any(message.role == "assistant" for message in after):
        raise DataError("completion: no assistant message in it")
    features = columns.get("features") or {}
    if not isinstance(features, dict):
        raise DataError(f"features: expected an object a row, found {type(features).__name__}")
    task = Task(features=features, reference=columns.get("reference"))
    name = str(columns.get("task_id") or "")
    first = sum(message.role == "assistant" for message in before)
    return Trajectory(messages=(*before, *after), task=task, task_id=name), first


def mixed_reward(functions: Mapping[str, TrlReward], weights: Mapping[str, float]) -> TrlReward:
    """One trl reward function out of several: a weighted sum, ``None`` where a part is missing.

    Raises:
        DataError: functions and weights do not name the same things.
    """
    if set(functions) != set(weights):
        raise DataError(
            f"reward functions {sorted(functions)!r} and weights {sorted(weights)!r} must name the same "
            "things"
        )

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **columns: Any) -> list[float | None]:
        asked = {"prompts": prompts, "completions": completions, **columns}
        return mixed_rewards({name: part(**asked) for name, part in functions.items()}, weights)

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
        DataError: parts and weights do not name the same things, or lengths differ.
    """
    if set(parts) != set(weights):
        raise DataError(
            f"reward parts {sorted(parts)!r} and weights {sorted(weights)!r} must name the same things"
        )
    lengths = {name: len(values) for name, values in parts.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"reward parts differ in length: {lengths!r}")
    rows = zip(*(parts[name] for name in weights), strict=True)
    return [_weighted(row, list(weights.values())) for row in rows]


def _weighted(row: Sequence[float | None], weights: Sequence[float]) -> float | None:
    total = 0.0
    for value, weight in zip(row, weights, strict=True):
        if value is None or math.isnan(value):
            return None
        total += weight * value
    return total


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
