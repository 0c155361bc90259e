"""What flows: trajectories, pairs, verdicts, environments, and reading and writing them."""

from axiomrm.data.environment import Action, Agent, Observation, Step, TurnEnv
from axiomrm.data.jsonl import ReadResult, Rejected
from axiomrm.data.reading import read_trajectories, stream_trajectories
from axiomrm.data.splits import split_by_group
from axiomrm.data.trajectory import Message, Outcome, PreferencePair, Task, ToolCall, Trajectory, Turn
from axiomrm.data.verdict import CannotAssess, Evidence, Failed, Scored, Verdict
from axiomrm.data.writing import write_jsonl, write_trajectories

__all__ = [
    "Action",
    "Agent",
    "CannotAssess",
    "Evidence",
    "Failed",
    "Message",
    "Observation",
    "Outcome",
    "PreferencePair",
    "ReadResult",
    "Rejected",
    "Scored",
    "Step",
    "Task",
    "ToolCall",
    "Trajectory",
    "Turn",
    "TurnEnv",
    "Verdict",
    "read_trajectories",
    "split_by_group",
    "stream_trajectories",
    "write_jsonl",
    "write_trajectories",
]
