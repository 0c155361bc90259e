"""Experiment trackers behind one name; ``metrics.jsonl`` is written whether there is one or not.

The packages are optional (``pip install 'axiomrm[trackers]'`` brings tensorboard, the others come by their
own names) and imported when a tracker is opened. A
resumed run logs the iterations that a kill makes run again under the same step, in the same run.
"""

import importlib
import importlib.util
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from axiomrm.errors import ConfigError

TrackerName = Literal["none", "tensorboard", "wandb", "trackio"]
NEEDS = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "trackio": "trackio"}
INSTALL = {"tensorboard": "'axiomrm[trackers]'", "wandb": "wandb", "trackio": "trackio"}


class Tracker(Protocol):
    """Takes one row of numbers an iteration."""

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """Log a row; NaN values are left out, because a tracker draws them as gaps or as 0."""
        ...

    def close(self) -> None:
        """Write what is still in memory."""
        ...


def open_tracker(
    name: TrackerName, folder: Path, run: str, config: Mapping[str, Any] | None = None
) -> Tracker | None:
    """A tracker by name; ``None`` for ``none``.

    Args:
        name: which one; ``wandb`` runs offline unless ``WANDB_MODE`` says otherwise.
        folder: its files go into a folder of the tracker's name below it (trackio: see `Trackio`).
        run: name of the run in the tracker.
        config: settings to show beside the curves.

    Raises:
        ConfigError: the package is not installed, or there is no tracker of that name.
    """
    if name == "none":
        return None
    if name not in TRACKERS:
        raise ConfigError(f"tracker {name!r} is not one of none, {', '.join(TRACKERS)}")
    target = folder / name
    if name == "trackio":
        os.environ.setdefault("TRACKIO_DIR", str(target))  # trackio reads it once, when it is imported
    try:
        importlib.import_module(NEEDS[name])
    except ImportError as error:
        raise _absent(name) from error
    target.mkdir(parents=True, exist_ok=True)
    return TRACKERS[name](target, run, dict(config or {}))


def check_tracker(name: TrackerName) -> None:
    """Whether a tracker's package is installed, without importing it.

    Raises:
        ConfigError: it is not.
    """
    if name != "none" and importlib.util.find_spec(name) is None:
        raise _absent(name)


def _absent(name: str) -> ConfigError:
    return ConfigError(f"tracker {name!r} is not installed: pip install {INSTALL[name]}")


def known(metrics: Mapping[str, float]) -> dict[str, float]:
    """The finite numbers of a row."""
    return {key: float(value) for key, value in metrics.items() if math.isfinite(value)}


class TensorBoard:
    """Event files for ``tensorboard --logdir``."""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder / run))
        self.writer.add_text("config", str(config), 0)

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """One scalar a number."""
        for key, value in known(metrics).items():
            self.writer.add_scalar(key, value, iteration)
        self.writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self.writer.close()


class WeightsAndBiases:
    """An offline run (``wandb sync`` uploads it); a resumed run goes on under the same id."""

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        wandb: Any = importlib.import_module("wandb")
        mode = os.environ.get("WANDB_MODE", "offline")
        self.run: Any = wandb.init(
            project="axiomrm",
            name=run,
            id=run,
            dir=str(folder),
            config=dict(config),
            mode=mode,
            resume="allow",
        )

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """One row."""
        self.run.log(known(metrics), step=iteration)

    def close(self) -> None:
        """End the run."""
        self.run.finish()


class Trackio:
    """A local trackio project, a run in it.

    A process has one trackio folder: that of ``TRACKIO_DIR`` if it was set, else the first run's. Later runs
    of the process (the other arms) lie there too, under their own names.
    """

    def __init__(self, folder: Path, run: str, config: Mapping[str, Any]) -> None:
        self.module: Any = importlib.import_module("trackio")
        self.module.init(project="axiomrm", name=run, config=dict(config), resume="allow")

    def log(self, iteration: int, metrics: Mapping[str, float]) -> None:
        """One row."""
        self.module.log(known(metrics), step=iteration)

    def close(self) -> None:
        """End the run."""
        self.module.finish()


TRACKERS: dict[str, type[TensorBoard] | type[WeightsAndBiases] | type[Trackio]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "trackio": Trackio,
}
