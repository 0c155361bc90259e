"""Consent withdrawn: a subject's trajectories leave a policy run's checkpoint.

Covers: the replay buffer with transcripts, stored successes, success rates of the tasks they came from, the
scale of the subject's personal reward.

Does not cover: weights that were trained on them; sums over many trajectories (running baselines and scales,
leave-one-out means of others in their groups); ``metrics.jsonl``; spot checks, rejected and kept rollouts
and reports, which hold transcripts; a trainer that is running, which writes its own state again: it is
refused, stop it first.
"""

import json
import os
from pathlib import Path
from typing import Any

from axiomrm.errors import ConfigError
from axiomrm.policy_opt import checkpoint
from axiomrm.policy_opt.algorithms.build import build_algorithm
from axiomrm.policy_opt.config import PolicyConfig


def forget_subject(folder: Path, subject: str) -> int:
    """Rewrite the newest checkpoint in ``folder`` without the subject; returns how many records went.

    A kill leaves the old state or the new one.

    Raises:
        ConfigError: no checkpoint there, or a trainer that works on it.
    """
    path = checkpoint.latest(Path(folder))
    if path is None:
        raise ConfigError(f"{folder}: no checkpoint of a policy run")
    with checkpoint.held(Path(folder)):
        return _rewritten(path, subject)


def _rewritten(path: Path, subject: str) -> int:
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    algorithm = build_algorithm(PolicyConfig.model_validate(state["config"]).algorithm)
    algorithm.load_state_dict(state["algorithm"])
    gone = algorithm.forget(subject)
    judge = _without(state.get("judge"), subject)
    if gone or judge != state.get("judge"):
        state["algorithm"], state["judge"] = algorithm.state_dict(), judge
        partial = path / "state.json.partial"
        with partial.open("w", encoding="utf-8") as file:
            json.dump(state, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path / "state.json")
    return gone


def _without(state: Any, subject: str) -> Any:
    """A judge's state without what is keyed by the subject; a composite holds its parts' states by name."""
    if not isinstance(state, dict):
        return state
    return {key: _without(value, subject) for key, value in state.items() if key != subject}
