"""The judge that a command line names: which model, behind which engine or server, asked how."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from axiomrm.errors import ConfigError
from axiomrm.rm.engines.http_limits import HttpLimits
from axiomrm.rm.engines.loading import EngineKind
from axiomrm.rm.prompt import View
from axiomrm.rm.readout import Readout
from axiomrm.rm.request import Asking, Overflow
from axiomrm.rm.reward_model import JudgeMode, RewardModel
from axiomrm.rm.sampling import Stop

LOCAL = ("engine", "dtype", "device")
"""Options of a model that runs here."""
SERVED = ("served_model", "tokenizer", "patience", "concurrency", "rpm", "tpm")
"""Options of a model behind HTTP."""


_OTHERWISE = {"deadline_s": "--patience", "judge url": "--model", "prompt template": "--template"}
"""Words of the library that are not the option's own."""


@dataclass(frozen=True)
class Loading:
    """Where the judge is."""

    model: Annotated[str | None, typer.Option(help="checkpoint folder, hub id, or URLs of servers")] = None
    engine: Annotated[EngineKind, typer.Option(help="for a local model")] = "transformers"
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, float16 or auto")] = "float32"
    device: Annotated[str | None, typer.Option(help="torch device; default: the CPU")] = None
    cache: Annotated[
        str | None,
        typer.Option(help="keep readings: SQLite file, postgresql:// URL, 'on' (default place) or 'off'"),
    ] = None
    served_model: Annotated[str, typer.Option(help="model name at a server")] = ""
    tokenizer: Annotated[str | None, typer.Option(help="of a server's model: it is sent token ids")] = None
    patience: Annotated[float, typer.Option(min=0.1, help="seconds for one answer of a server")] = (
        HttpLimits.deadline_s
    )
    concurrency: Annotated[int, typer.Option(min=1, help="requests in flight at each server")] = (
        HttpLimits.concurrency
    )
    rpm: Annotated[float | None, typer.Option(help="requests a minute to each server")] = None
    tpm: Annotated[float | None, typer.Option(help="tokens a minute to each server")] = None

    @property
    def served(self) -> bool:
        """Whether it is behind HTTP."""
        return (self.model or "").startswith(("http://", "https://"))


@dataclass(frozen=True)
class How:
    """How it is asked; see "Modes" and "Sampling and gating" in docs/judge.md."""

    mode: Annotated[
        JudgeMode | None,
        typer.Option(
            help="verdict alone, notes first, or notes where unsure; default: the criterion's, or direct"
        ),
    ] = None
    gate: Annotated[
        float | None, typer.Option(min=0, help="gated mode: direct verdicts less confident get notes")
    ] = None
    joint: Annotated[int, typer.Option(min=1, help="criteria asked in one prompt, at most")] = Asking.joint
    n_samples: Annotated[
        int | None, typer.Option(min=1, help="critiques averaged; default: the criterion's votes")
    ] = None
    stop: Annotated[Stop, typer.Option(help="when fewer samples will do")] = "never"
    temperature: Annotated[float, typer.Option(min=0, help="of what the judge writes")] = Asking.temperature
    max_notes_tokens: Annotated[int, typer.Option(min=1, help="room for notes")] = Asking.max_notes_tokens
    seed: Annotated[int, typer.Option(help="of the samples")] = Asking.seed
    readout: Annotated[Readout, typer.Option(help="how label probabilities become a value")] = Asking.readout
    turn_view: Annotated[View, typer.Option(help="whether the judge of a turn sees later ones")] = (
        Asking.turn_view
    )
    overflow: Annotated[Overflow, typer.Option(help="what a prompt does that is too long")] = Asking.overflow
    template: Annotated[str | None, typer.Option(help="prompt template: a name or a .j2 file")] = None
    adapter: Annotated[str, typer.Option(help="form of a judge that was trained elsewhere")] = Asking.adapter
    min_mass: Annotated[
        float | None, typer.Option(min=0, max=1, help="least probability on the labels; default: the card's")
    ] = None
    calibration: Annotated[
        Literal["auto", "off"], typer.Option(help="off: without the calibrator in the model's folder")
    ] = "auto"

    @property
    def options(self) -> dict[str, Any]:
        """As ``RewardModel.from_pretrained`` and ``connect`` take them; what was left open is not among them.

        Raises:
            BadParameter: a gate outside gated mode, or none in it.
        """
        if (self.mode == "gated") != (self.gate is not None):
            mode = self.mode or "direct"
            raise typer.BadParameter(
                f"mode {mode!r} with gate {self.gate}: --mode gated needs a gate, the others take none",
                param_hint="--gate",
            )
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "calibration"}
        told = {name: value for name, value in given.items() if value is not None}
        return told | ({"calibration": None} if self.calibration == "off" else {})


_TYPED = _OTHERWISE | {
    field.name: f"--{field.name.replace('_', '-')}" for kind in (Loading, How) for field in fields(kind)
}


def refuse_idle(loading: Loading, given: Mapping[str, str]) -> None:
    """Nothing that was typed may go unread.

    Args:
        loading: where the judge is.
        given: parameter → option as typed, of what the command line sets.

    Raises:
        BadParameter: an option that only a judge with a model reads, or only one here, or behind HTTP.
    """
    of_a_judge = [f.name for kind in (Loading, How) for f in fields(kind) if f.name != "model"]
    if loading.model is None:
        idle, needs = of_a_judge, "needs --model FOLDER, hub id or URL: without a model no judge is asked"
    elif loading.served:
        idle, needs = list(LOCAL), f"is of a model that runs here; --model {loading.model} is behind HTTP"
    else:
        idle, needs = list(SERVED), f"is of a server's model; --model {loading.model} is no http:// URL"
    typed = [option for name, option in given.items() if name in idle]
    if typed:
        raise typer.BadParameter(needs, param_hint=" and ".join(typed))


def judge_for(loading: Loading, options: Mapping[str, Any]) -> RewardModel:
    """The judge without a cache; programmatic where no model is named.

    Args:
        loading: where it is.
        options: of ``How``.

    Raises:
        ConfigError: there is no such folder, or the model cannot be this judge; names the option.
        JudgeError: no server answers.
    """
    if loading.model is None:
        return RewardModel.programmatic()
    with as_typed():
        return _connected(loading, options) if loading.served else local(loading.model, loading, options)


def _connected(loading: Loading, options: Mapping[str, Any]) -> RewardModel:
    if not loading.served_model:
        raise ConfigError(f"--model {loading.model}: a server needs --served-model, the model's name there")
    limits = {name: getattr(loading, name) for name in ("concurrency", "rpm", "tpm")}
    return RewardModel.connect(
        (loading.model or "").split(","),
        model=loading.served_model,
        tokenizer=loading.tokenizer,
        deadline_s=loading.patience,
        **limits,
        **options,
    )


def local(
    model: str, loading: Loading, options: Mapping[str, Any] | None = None, option: str = "--model"
) -> RewardModel:
    """A judge that runs here.

    Args:
        model: checkpoint folder or hub id.
        loading: behind which engine.
        options: of ``How``.
        option: as which ``model`` was typed.

    Raises:
        ConfigError: an empty name, no such folder, or the model cannot be this judge.
    """
    if not model.strip():
        raise ConfigError(f"{option} {model!r}: empty; expected a checkpoint folder, a hub id or a URL")
    if _looks_like_a_path(model) and not Path(model).is_dir():
        what = "is a file, not a folder" if Path(model).is_file() else "there is no such folder"
        raise ConfigError(f"{option} {model}: {what}; expected a checkpoint folder, a hub id or a URL")
    place = {name: getattr(loading, name) for name in ("engine", "dtype", "device")}
    return RewardModel.from_pretrained(model, **place, **(options or {}))


@contextmanager
def as_typed(model: str = "--model") -> Iterator[None]:
    """Errors that begin with a parameter of the library name the option of that parameter instead.

    Args:
        model: the option of a judge's model.
    """
    try:
        yield
    except ConfigError as error:
        message = str(error)
        for name, option in (_TYPED | {"model": model}).items():
            if message.startswith(f"{name} "):
                raise ConfigError(option + message.removeprefix(name)) from error
        raise


def cached(judge: RewardModel, loading: Loading) -> RewardModel:
    """With its readings kept as ``--cache`` says; a default place that cannot be used is said and left."""
    if judge.engine is None or loading.cache == "off" or (loading.cache is None and loading.served):
        return judge
    from axiomrm.rm.cache import with_cache
    from axiomrm.rm.cache_sql import default_place

    try:
        return with_cache(judge, default_place() if loading.cache in (None, "on") else loading.cache)
    except ConfigError as error:
        if loading.cache is not None:
            raise
        typer.echo(f"no readings are kept: {error}", err=True)
        return judge


def _looks_like_a_path(model: str) -> bool:
    """A hub id is NAME or OWNER/NAME; what starts in a folder that exists is meant as a path."""
    parts = model.split("/")
    return len(parts) > 2 or parts[0] in ("", ".", "..", "~") or (len(parts) == 2 and Path(parts[0]).is_dir())
