"""Roll a scripted or model agent through an environment and keep what the oracle said about each turn."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from axiomrm.data.environment import Agent, TurnEnv
from axiomrm.data.trajectory import Message, Outcome, Task, Trajectory

AgentFor = Callable[[Task, dict[str, Any]], Agent]
"""Builds the agent of one episode from the task and the environment's first info."""


def roll(env: TurnEnv, agent_for: AgentFor, task: Task, name: str = "") -> Trajectory:
    """One episode; ``metadata`` holds what ``oracle_view`` tells of its turns."""
    observation, info = env.reset(task=task)
    agent = agent_for(task, info)
    messages = [message.from_environment() for message in observation.messages]
    infos: list[dict[str, Any]] = []
    over = False
    while not over:
        action = agent.act(messages, info)
        observation, _, terminated, truncated, info = env.step(action)
        infos.append(info | {"labels": plain_labels(info.get("labels", {}))})
        messages.append(_with_call_ids(action.message(), len(infos)))
        messages += [message.from_environment() for message in observation.messages]
        over = terminated or truncated
    env.close()
    return Trajectory(
        messages=tuple(messages),
        id=f"{task.id}/{name}" if name else task.id,
        task_id=task.id,
        group_id=task.id,
        task=task,
        outcome=Outcome(score=info.get("outcome"), metrics=info.get("metrics", {})),
        tools=observation.tools,
        metadata=oracle_view(infos) | {"agent": name},
    )


def plain_labels(labels: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """An environment's labels as files keep them: criterion id → ``{"value", "note", "quote"}``."""
    return {k: {"value": v.value, "note": v.note, "quote": v.quote} for k, v in labels.items()}


def oracle_view(infos: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """What the oracle said about each turn, as ``trajectory.metadata`` keeps it for judge examples.

    Args:
        infos: an environment's info after each turn, labels plain.

    Returns:
        ``oracle`` (−1, 0, 1; ``None``: it did not see the turn), ``assessments`` and ``labels``, one entry a
        turn.
    """
    return {
        "oracle": [info.get("oracle_turn") for info in infos],
        "assessments": [info.get("assessment", "") for info in infos],
        "labels": [info.get("labels", {}) for info in infos],
    }


def roll_many(
    env_for: Callable[[], TurnEnv], agent_for: AgentFor, tasks: Iterable[Task], name: str = ""
) -> list[Trajectory]:
    """One episode a task, in order."""
    return [roll(env_for(), agent_for, task, name) for task in tasks]


def successful(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Those whose verifier said 1; a missing outcome is not a success."""
    return [
        t
        for t in trajectories
        if t.outcome is not None and t.outcome.score is not None and t.outcome.score >= 1 - 1e-9
    ]


def _with_call_ids(message: Message, turn: int) -> Message:
    calls = tuple(
        c.model_copy(update={"id": c.id or f"c{turn}_{i}"}) for i, c in enumerate(message.tool_calls)
    )
    return message.model_copy(update={"tool_calls": calls})
