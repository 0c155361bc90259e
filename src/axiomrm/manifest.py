"""What a run was made from: configuration, inputs, code and library versions, and what changed since."""

import hashlib
import importlib.util
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import axiomrm
from axiomrm.config import RunConfig
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError

FORMAT = 1
LIBRARIES = (
    "accelerate",
    "datasets",
    "numpy",
    "peft",
    "pydantic",
    "scikit-learn",
    "tokenizers",
    "torch",
    "transformers",
    "trl",
)
ROOMS = ("data", "rubrics", "rm", "personalization", "policy_opt", "eval")
ABSENT = "(absent)"


def build_manifest(config: RunConfig) -> dict[str, Any]:
    """Everything that decides the result, as plain JSON."""
    return {
        "format": FORMAT,
        "seed": config.seed,
        "config": config.model_dump(mode="json"),
        "base": path_hash(base) if (base := _base(config)) is not None else config.base,
        "rubrics": {file.stem: path_hash(file) for file in sorted(_home("rubrics").glob("library/*.yaml"))},
        "inputs": {key: path_hash(path) for key, path in sorted(config.input_paths().items())},
        "profiles": {key: line_hashes(path) for key, path in sorted(config.profile_paths().items())},
        "code": {"version": axiomrm.__version__, "sha256": code_hash()},
        "libraries": {"python": platform.python_version(), **dict(_versions())},
    }


def read_manifest(run_dir: Path) -> dict[str, Any] | None:
    """The manifest of a run folder; ``None``: there is none.

    Raises:
        ConfigError: it cannot be read or is of another format.
    """
    path = run_dir / "manifest.json"
    if not path.exists():
        return None
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}; use another --name or --fresh") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ConfigError(f"{path}: not a manifest of format {FORMAT}; use another --name or --fresh")
    return manifest


def write_manifest(run_dir: Path, manifest: Mapping[str, Any]) -> None:
    """Put ``manifest.json`` in place, atomically."""
    with atomic_file(run_dir / "manifest.json") as handle:
        json.dump(manifest, handle, indent=1, sort_keys=True)


def check_same_run(
    run_dir: Path, old: Mapping[str, Any], new: Mapping[str, Any], *, accept_code_change: bool
) -> dict[str, Any]:
    """The manifest to keep when a run goes on.

    With ``accept_code_change`` other code and libraries are taken, the former ones listed under
    ``code_history``, and config keys and inputs that only one of the two versions knows are ignored. A file
    of profiles may have lost lines: who withdraws consent does not end the run.

    Raises:
        ConfigError: the run was made from something else; names each differing key.
    """
    before, now = dict(_flat(_compared(old))), dict(_flat(_compared(new)))
    differing = sorted(key for key in {*before, *now} if before.get(key, ABSENT) != now.get(key, ABSENT))
    withdrawn = _only_shorter(old.get("profiles", {}), new.get("profiles", {}))
    differing = [key for key in differing if key not in withdrawn]
    code = [key for key in differing if key.startswith(("code.", "libraries."))]
    if accept_code_change:
        known = [key for key in differing if key in before and key in now]
        both = {key for key in differing if key in known or not key.startswith(("config.", "inputs"))}
        differing = [key for key in differing if key not in code and key in both]
    if not differing:
        history = [*old.get("code_history", []), {k: old[k] for k in ("code", "libraries")}] if code else []
        return {**new, "code_history": history or old.get("code_history", [])}
    differing = _once_each(differing, before, now)
    shown = [f"{_name(k, now)}: {before.get(k, ABSENT)!r}, now {now.get(k, ABSENT)!r}" for k in differing[:8]]
    rest = f"; and {len(differing) - 8} more" if len(differing) > 8 else ""
    flag = ", or --accept-code-change to go on with the new code" if set(differing) == set(code) else ""
    raise ConfigError(
        f"{run_dir}: this run was started with other settings: {'; '.join(shown)}{rest}. "
        f"Use another --name, --fresh to delete it and start again{flag}"
    )


def path_hash(path: Path) -> str:
    """SHA-256 of a file, or over the names and contents of a folder's files."""
    if path.is_file():
        with path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    digest = hashlib.sha256()
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        digest.update(f"{file.relative_to(path).as_posix()}\0{path_hash(file)}\n".encode())
    return digest.hexdigest()


def line_hashes(path: Path) -> list[str]:
    """SHA-256 of each line of a file, sorted."""
    with path.open("rb") as handle:
        return sorted({hashlib.sha256(line.strip()).hexdigest() for line in handle})


def code_hash() -> str:
    """SHA-256 over the installed package: modules, templates, rubrics, bundled data.

    The command line and the report decide no result, so their files do not count.
    """
    digest = hashlib.sha256()
    for name, file in sorted(_package_files()):
        digest.update(f"{name}\0{path_hash(file)}\n".encode())
    return digest.hexdigest()


def _package_files() -> Iterator[tuple[str, Path]]:
    root = Path(axiomrm.__file__).parent
    homes = {"": root} | {room: _home(room) for room in ROOMS}
    for room, home in homes.items():
        for file in home.rglob("*"):
            name = file.relative_to(home).as_posix()
            own = room or name.split("/")[0] not in ROOMS  # in a wheel the rooms lie inside the root
            shown = not file.name.startswith(("cli", "report")) and "__pycache__" not in name
            if file.is_file() and own and shown:
                yield f"{room}/{name}", file


def _base(config: RunConfig) -> Path | None:
    """Folder of the base model; ``None``: it is not on this disk."""
    folder = _home("data") / "bundled" / "nano" if config.base == "nano" else Path(config.base).expanduser()
    return folder if folder.exists() else None


def _home(room: str) -> Path:
    spec = importlib.util.find_spec(f"axiomrm.{room}")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(f"axiomrm.{room} is not installed; reinstall axiomrm")
    return Path(next(iter(spec.submodule_search_locations)))


def _versions() -> Iterator[tuple[str, str]]:
    for library in LIBRARIES:
        try:
            yield library, metadata.version(library)
        except metadata.PackageNotFoundError:
            yield library, ABSENT


def _compared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    compared = {key: manifest.get(key, {}) for key in ("seed", "config", "inputs", "code", "libraries")}
    config = {key: value for key, value in compared["config"].items() if key not in ("name", "seed")}
    return compared | {"config": config}


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and leaves; an empty mapping is a leaf."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, value


def _only_shorter(old: Mapping[str, list[str]], new: Mapping[str, list[str]]) -> set[str]:
    """Keys of the files that hold nothing but lines that they held before."""
    return {f"inputs.{key}" for key, lines in new.items() if {*lines} <= {*old.get(key, ())}}


def _once_each(keys: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Without the further keys of a file that several parts of the configuration use."""
    files: dict[Any, str] = {}
    for key in keys:
        file = now.get(f"config.{key.removeprefix('inputs.')}") or key.rpartition(".imports.")[2]
        change = (file, before.get(key, ABSENT), now.get(key, ABSENT))
        files.setdefault(change if key.startswith("inputs.") else key, key)
    return list(files.values())


def _name(key: str, now: Mapping[str, Any]) -> str:
    """A key as the user writes it, with the file that it names; config keys stand without their prefix."""
    if not key.startswith("inputs."):
        return key.removeprefix("config.")
    key = key.removeprefix("inputs.")
    file = now.get(f"config.{key}")
    return f"content of {key}" + (f" ({file})" if file is not None else "")
