"""What lies in a stage folder: outputs and their hashes, a finished stage's record, a kill's leftovers."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from axiomrm.data.trajectory import finite_json
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError
from axiomrm.manifest import path_hash

OWN = {"start.json", "done.json"}
TRANSCRIPTS = ("spot_checks.jsonl", "rollouts.jsonl")
"""What an arm of the policy has beside its trainer's folder for people to read."""
SIDE = ("metrics.jsonl", *TRANSCRIPTS)
"""Outputs that no later stage computes from: wall-clock times, and transcripts, which a user may withdraw."""
TRAINER = "training"
"""A trainer's own folder, of which the same holds."""


@dataclass(frozen=True)
class StageRecord:
    """``done.json``."""

    stage: str
    metrics: Mapping[str, Any]
    """What the stage returned; not a number is ``None``."""
    outputs: Mapping[str, str]
    """SHA-256 by path inside the stage folder."""
    upstream: str
    """Hash of all outputs of earlier stages."""
    seconds: float
    """Of the attempt that finished."""
    peak_rss_mib: float
    """Of the process up to here."""
    resumed: bool
    """An earlier attempt had been stopped."""
    finished_at: str
    """ISO 8601, UTC."""

    def to_json(self) -> str:
        """As it stands in the file."""
        return json.dumps(finite_json(asdict(self)), indent=1, allow_nan=False)


def read_record(stage_dir: Path) -> StageRecord | None:
    """The record of a finished stage; ``None``: it has not finished.

    Raises:
        ConfigError: the file was changed to something else.
    """
    path = stage_dir / "done.json"
    if not path.exists():
        return None
    try:
        return StageRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{path}: not a stage record: {error}; delete the folder {stage_dir} to run it again"
        ) from error


def write_record(stage_dir: Path, record: StageRecord) -> None:
    """Make a stage a finished one."""
    with atomic_file(stage_dir / "done.json") as handle:
        handle.write(record.to_json())


def output_hashes(stage_dir: Path) -> dict[str, str]:
    """SHA-256 of every file a stage put out, by path inside its folder."""
    files = sorted(p for p in stage_dir.rglob("*") if p.is_file() and not _is_partial(p))
    names = {p.relative_to(stage_dir).as_posix(): p for p in files}
    return {name: path_hash(path) for name, path in names.items() if name not in OWN}


def restamp(stage_dir: Path, files: Iterable[Path]) -> None:
    """Files that a finished stage had put out were rewritten on purpose: its record follows."""
    record = read_record(stage_dir)
    if record is None:
        return
    names = {path.relative_to(stage_dir).as_posix(): path for path in files}
    hashes = {name: path_hash(path) for name, path in names.items() if name in record.outputs}
    write_record(stage_dir, replace(record, outputs={**record.outputs, **hashes}))


def upstream_hash(finished: Mapping[str, StageRecord]) -> str:
    """One hash over the outputs of all earlier stages, in order, without those that no later one reads."""
    digest = hashlib.sha256()
    for stage, record in finished.items():
        for name, sha in sorted(record.outputs.items()):
            if not name.endswith(SIDE) and TRAINER not in name.split("/")[:-1]:
                digest.update(f"{stage}/{name}\0{sha}\n".encode())
    return digest.hexdigest()


def clean_partial(stage_dir: Path) -> None:
    """Remove what a kill left half-written: temporary files, an unfinished last line of ``metrics.jsonl``."""
    for path in stage_dir.rglob(".*.tmp"):
        path.unlink()
    for path in stage_dir.rglob("metrics.jsonl"):
        raw = path.read_bytes()
        if raw and not raw.endswith(b"\n"):
            path.write_bytes(raw[: raw.rfind(b"\n") + 1])


def _is_partial(path: Path) -> bool:
    return path.name.startswith(".") and path.name.endswith(".tmp")
