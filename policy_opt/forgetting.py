"""Consent withdrawn: a subject's trajectories leave a policy run's checkpoint and its files of transcripts.

Covers: the replay buffer with transcripts, stored successes, success rates of the tasks they came from, the
scale of the subject's personal reward; rows of spot checks, alarms, rejected and kept rollouts whose task
names the subject.

Does not cover: weights that were trained on them; sums over many trajectories (running baselines and scales,
leave-one-out means of others in their groups); ``metrics.jsonl``; transcripts that were copied elsewhere; a
trainer that is running, which writes its own state again: it is refused, stop it first.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError, DataError
from axiomrm.policy_opt import checkpoint
from axiomrm.policy_opt.algorithms.build import build_algorithm
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.rewards.users import named_subject


class Forgotten(NamedTuple):
    """What went."""

    stored: int
    """Trajectories that were kept for training."""
    transcripts: int
    """Rows of files for people to read."""


def forget_subject(folder: Path, subject: str, transcripts: Sequence[Path] = ()) -> Forgotten:
    """Rewrite the newest checkpoint in ``folder``, and files of transcripts, without the subject.

    A kill leaves each file as it was or without them; the same call then does the rest. Leftovers of a killed
    trainer (older and half-written checkpoints, the row at a file's end that was cut) are deleted.

    Args:
        folder: of the trainer.
        subject: the token in a task's feature ``subject``; where that is a number, its digits.
        transcripts: files beside those of the trainer's folder; one that is not there is passed over.

    Raises:
        ConfigError: no subject is given, neither checkpoint nor transcripts are there, or a trainer works on
            them.
        DataError: a row of the transcripts is not in UTF-8.
    """
    folder = Path(folder)
    if not subject:
        raise ConfigError("the subject is empty; it names whose trajectories go")
    path = checkpoint.latest(folder)
    files = [file for file in (*own_transcripts(folder), *map(Path, transcripts)) if file.is_file()]
    if path is None and not files:
        raise ConfigError(f"{folder}: no checkpoint of a policy run, and no transcripts")
    with checkpoint.held(folder):
        checkpoint.drop_others(folder, path)
        stored = _rewritten(path, subject) if path is not None else 0
        return Forgotten(stored, sum(_cut(file, subject) for file in files))


def own_transcripts(folder: Path) -> list[Path]:
    """What a trainer writes into its folder for people to read."""
    return [folder / "alarms.jsonl", folder / "rejected.jsonl"]


def _rewritten(path: Path, subject: str) -> int:
    state = json.loads((path / "state.json").read_text(encoding="utf-8"))
    algorithm = build_algorithm(PolicyConfig.model_validate(state["config"]).algorithm)
    algorithm.load_state_dict(state["algorithm"])
    gone = algorithm.forget(subject)
    judge = _without(state.get("judge"), subject)
    if gone or judge != state.get("judge"):
        state["algorithm"], state["judge"] = algorithm.state_dict(), judge
        with atomic_file(path / "state.json") as handle:
            json.dump(state, handle)
    return gone


def _cut(path: Path, subject: str) -> int:
    """Rewrite a file of transcripts without the subject's rows; returns how many went."""
    with path.open("rb") as handle:
        lines = list(handle)
    read = [_read(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    kept = [line for line in read if line is not None and not _is_of(line, subject)]
    if len(kept) < len(lines):
        with atomic_file(path) as handle:
            handle.writelines(kept)
    return len(lines) - len(kept)


def _read(raw: bytes, place: str) -> str | None:
    """A line; ``None``: a kill cut it, and with it perhaps whose it is, so it goes in any case."""
    try:
        line = raw.decode("utf-8")
        json.loads(line)
    except ValueError as error:
        if not raw.endswith(b"\n"):
            return None
        if isinstance(error, UnicodeDecodeError):
            raise DataError(f"{place}: not UTF-8, so nobody knows whose it is; mend or delete it") from error
    return line


def _is_of(line: str, subject: str) -> bool:
    try:
        row = json.loads(line)
    except ValueError:
        return subject in line
    task = row.get("trajectory", row).get("task") or {}
    return named_subject(task.get("features") or {}) == subject


def _without(state: Any, subject: str) -> Any:
    """A judge's state without what is keyed by the subject; a composite holds its parts' states by name."""
    if not isinstance(state, dict):
        return state
    return {key: _without(value, subject) for key, value in state.items() if key != subject}
