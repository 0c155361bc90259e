import importlib.util
import math
import sys
from pathlib import Path

import pytest

from axiomrm.errors import ConfigError
from axiomrm.policy_opt.monitoring.trackers import known, open_tracker

ROWS = [{"reward/success": 0.25, "kl/beta": math.nan}, {"reward/success": 0.5, "kl/beta": 0.02}]


def installed(name: str) -> pytest.MarkDecorator:
    absent = importlib.util.find_spec(name) is None
    return pytest.mark.skipif(absent, reason=f"{name} is not installed")


def test_a_missing_number_is_not_drawn() -> None:
    assert known(ROWS[0]) == {"reward/success": 0.25}


def test_no_tracker_is_none_and_an_unknown_one_is_refused(tmp_path: Path) -> None:
    assert open_tracker("none", tmp_path, "run") is None
    with pytest.raises(ConfigError, match="not one of none, tensorboard"):
        open_tracker("paper", tmp_path, "run")  # type: ignore[arg-type]  # bad input


@pytest.mark.skipif(importlib.util.find_spec("trackio") is not None, reason="trackio is installed")
def test_a_tracker_that_is_not_installed_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pip install trackio"):
        open_tracker("trackio", tmp_path, "run")


@installed("tensorboard")
@pytest.mark.slow
def test_tensorboard_holds_what_was_logged(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]  # no stubs

    tracker = open_tracker("tensorboard", tmp_path, "run", {"lr": 1e-3})
    assert tracker is not None
    for iteration, row in enumerate(ROWS):
        tracker.log(iteration, row)
    tracker.close()
    events = EventAccumulator(str(tmp_path / "tensorboard" / "run"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("reward/success")] == [(0, 0.25), (1, 0.5)]
    assert [(e.step, round(e.value, 4)) for e in events.Scalars("kl/beta")] == [(1, 0.02)]


@installed("wandb")
@pytest.mark.slow
def test_wandb_writes_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    tracker = open_tracker("wandb", tmp_path, "run")
    assert tracker is not None
    tracker.log(0, ROWS[1])
    tracker.close()
    assert list((tmp_path / "wandb").rglob("*.wandb"))


@installed("trackio")
@pytest.mark.slow
def test_trackio_writes_a_local_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    tracker = open_tracker("trackio", tmp_path, "run")
    assert tracker is not None
    tracker.log(0, ROWS[1])
    tracker.close()
    assert [path for path in tmp_path.rglob("*") if path.is_file()]


TRACKIO_STAND_IN = """
import os
from pathlib import Path

PLACE = Path(os.environ.get("TRACKIO_DIR") or os.environ["HOME_OF_TRACKIO"])  # as trackio does: once, at the import


def init(project, name, config, resume):
    global run
    run = PLACE / f"{project}-{name}"


def log(metrics, step):
    PLACE.mkdir(parents=True, exist_ok=True)
    with run.open("a") as file:
        file.write(f"{step} {metrics}\\n")


def finish():
    pass
"""


@pytest.mark.skipif(importlib.util.find_spec("trackio") is not None, reason="trackio is installed")
@pytest.mark.parametrize("chosen", [True, False])
def test_trackio_finds_its_folder_before_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: bool
) -> None:
    """A stand-in that reads the variable when trackio does; the real one is in no list of ours."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "trackio.py").write_text(TRACKIO_STAND_IN)
    monkeypatch.syspath_prepend(tmp_path / "package")
    monkeypatch.setenv("HOME_OF_TRACKIO", str(tmp_path / "home"))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "chosen"))
    if not chosen:
        monkeypatch.delenv("TRACKIO_DIR")
    try:
        for arm in ("a", "b"):
            tracker = open_tracker("trackio", tmp_path / arm, arm)
            assert tracker is not None
            tracker.log(0, ROWS[1])
            tracker.close()
    finally:
        sys.modules.pop("trackio", None)
    place = tmp_path / "chosen" if chosen else tmp_path / "a" / "trackio"
    assert sorted(p.name for p in place.iterdir()) == ["axiomrm-a", "axiomrm-b"]
    assert not (tmp_path / "home").exists()
