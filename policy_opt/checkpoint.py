"""Atomic checkpoints of a policy run: a folder is complete or it is not there."""

import fcntl
import hashlib
import json
import logging
import math
import os
import pickle
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from axiomrm.data.trajectory import Task, canonical_json
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import PolicyConfig

log = logging.getLogger(__name__)
FORMAT = 1
LATEST = "checkpoint"
OURS = re.compile(LATEST + r"-(\d+)(\.partial)?")
"""Names of our folders; others beside them are somebody's and stay."""


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Work in ``folder`` alone, until the end of the block or of the process.

    Raises:
        ConfigError: another trainer works there.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                f"{folder}: another trainer works in this folder; wait for it or use another folder"
            ) from None
        yield
    finally:
        os.close(handle)


def weights_hash(model: Any) -> str:
    """SHA-256 over names and bytes of a model's parameters."""
    digest = hashlib.sha256()
    for name, parameter in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(parameter.detach().to("cpu").contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def tasks_hash(tasks: Sequence[Task]) -> str:
    """SHA-256 over tasks in their order."""
    rows = [task.model_dump(mode="json") for task in tasks]
    return hashlib.sha256(canonical_json(rows).encode("utf-8", "surrogatepass")).hexdigest()


def trained_weights(model: Any) -> dict[str, Any]:
    """The state dict without frozen parameters: adapters alone where the rest of the model is frozen."""
    frozen = {name for name, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def load_trained(model: Any, weights: dict[str, Any]) -> None:
    """The inverse of `trained_weights`; frozen parameters stay as they are.

    Raises:
        ConfigError: other parameters were trained than this model trains.
    """
    mine = trained_weights(model).keys()
    if mine != weights.keys():
        odd = sorted(mine ^ weights.keys())
        raise ConfigError(
            f"saved weights do not fit what this model trains: {len(odd)} differ, as {odd[0]!r}"
        )
    model.load_state_dict(weights, strict=False)


def save(folder: Path, *, tensors: dict[str, Any], state: dict[str, Any]) -> Path:
    """Write ``tensors`` (state dicts) and ``state`` (plain JSON) as one checkpoint, replacing the last one.

    A kill at any point leaves the previous checkpoint or the new one, never half of either.
    """
    iteration = state["iteration"]
    final, partial = folder / f"{LATEST}-{iteration}", folder / f"{LATEST}-{iteration}.partial"
    for stale in (partial, final):
        shutil.rmtree(stale, ignore_errors=True)
    partial.mkdir(parents=True)
    torch.save(tensors, partial / "tensors.pt")
    text = json.dumps({"format": FORMAT, **state})
    (partial / "state.json").write_text(text, encoding="utf-8")
    for name in ("tensors.pt", "state.json"):
        with (partial / name).open("rb") as file:
            os.fsync(file.fileno())
    os.replace(partial, final)
    drop_others(folder, final)
    return final


def drop_others(folder: Path, kept: Path | None) -> None:
    """Delete older and half-written checkpoints."""
    for old in folder.glob(f"{LATEST}-*"):
        if old != kept and OURS.fullmatch(old.name):
            shutil.rmtree(old, ignore_errors=True)


def latest(folder: Path) -> Path | None:
    """The newest complete checkpoint; half-written ones are ignored."""
    named = [(match, p) for p in folder.glob(f"{LATEST}-*") if (match := OURS.fullmatch(p.name))]
    found = {int(match[1]): p for match, p in named if not match[2]}
    whole = [n for n, p in found.items() if (p / "state.json").exists() and (p / "tensors.pt").exists()]
    return found[max(whole)] if whole else None


def load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """``(tensors, state)`` of a checkpoint.

    Raises:
        ConfigError: written by another format, or damaged.
    """
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        if state.get("format") != FORMAT:
            raise ConfigError(
                f"{path}: checkpoint format {state.get('format')!r}, this version reads {FORMAT}"
            )
        return torch.load(path / "tensors.pt", map_location="cpu", weights_only=True), state
    except (ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ConfigError(
            f"{path}: the checkpoint is damaged ({error}); delete the folder that holds it to start again"
        ) from error


def kept_rows(path: Path, iteration: int) -> list[dict[str, float]]:
    """Metrics rows up to a checkpoint; later ones, of iterations that will run again, leave the file.

    Raises:
        ConfigError: one of the rows cannot be read; the file is then as it was.
    """
    # Bytes: str.splitlines cuts names at U+2028 and U+0085, and what a kill cut may not be UTF-8.
    lines = path.read_bytes().split(b"\n")[:-1][:iteration] if path.exists() else []
    rows = [_metrics(line, f"{path}:{number}") for number, line in enumerate(lines, start=1)]
    if len(lines) < iteration:
        log.warning(
            "%s: holds %d of the %d iterations that the checkpoint has seen", path, len(lines), iteration
        )
    if lines:
        partial = path.with_suffix(".partial")
        partial.write_bytes(b"".join(line + b"\n" for line in lines))
        partial.replace(path)
    return rows


def _metrics(line: bytes, place: str) -> dict[str, float]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigError(f"{place}: not a row of metrics ({error}); mend it or delete the file") from error
    return {key: math.nan if value is None else value for key, value in row.items()}


def check_same_run(
    path: Path, state: dict[str, Any], config: PolicyConfig, *, reference: str, tasks: str
) -> None:
    """Refuse a checkpoint of a run with other settings (the number of iterations aside) or another start.

    Other tasks are warned of: who withdraws consent takes his tasks along.

    Raises:
        ConfigError: naming what differs.
    """
    mine = config.model_dump(mode="json")
    # Read through the class, so that a field the writer did not know has its default.
    theirs = PolicyConfig.model_validate(state["config"]).model_dump(mode="json")
    different = sorted(k for k in mine if k != "iterations" and mine[k] != theirs[k])
    if different:
        raise ConfigError(
            f"{path}: written with other values of {different!r}; use a new folder or the old ones"
        )
    if state["reference"] != reference:
        raise ConfigError(f"{path}: the starting weights differ; pass the model the run began with")
    if state.get("tasks", tasks) != tasks:
        log.warning("%s: the tasks are not those of the run so far; it goes on with the new ones", path)
