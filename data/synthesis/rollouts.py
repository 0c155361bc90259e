"""Roll a scripted or model agent through an environment and keep what the oracle said about each turn."""

from collections.abc import Callable, Iterable
from typing import Any

from axiomrm.data.environment import Agent, TurnEnv
from axiomrm.data.trajectory import Message, Outcome, Task, Trajectory

AgentFor = Callable[[Task, dict[str, Any]], Agent]
"""Builds the agent of one episode from the task and the environment's first info."""


def roll(env: TurnEnv, agent_for: AgentFor, task: Task, name: str = "") -> Trajectory:
    """One episode; ``metadata`` holds per-turn ``oracle`` (−1, 0, 1), ``assessments`` and ``labels``."""
    observation, info = env.reset(task=task)
    agent = agent_for(task, info)
    messages: list[Message] = list(observation.messages)
    oracle: list[int] = []
    assessments: list[str] = []
    labels: list[dict[str, dict[str, Any]]] = []
    over = False
    while not over:
        action = agent.act(messages, info)
        observation, _, terminated, truncated, info = env.step(action)
        messages += [_with_call_ids(action.message(), len(oracle) + 1), *observation.messages]
        oracle.append(info.get("oracle_turn", 0))
        assessments.append(info.get("assessment", ""))
        labels.append(
            {
                k: {"value": v.value, "note": v.note, "quote": v.quote}
                for k, v in info.get("labels", {}).items()
            }
        )
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
        metadata={"oracle": oracle, "assessments": assessments, "labels": labels, "agent": name},
    )


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
