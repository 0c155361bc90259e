"""Notebooks walk a finished run; without ``AXIOMRM_RUN`` the micro configuration is run for them."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MICRO = Path(__file__).parents[1] / "configs" / "micro.yaml"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """The kernel inherits the environment of this process."""
    if item.path.suffix == ".ipynb" and "AXIOMRM_RUN" not in os.environ:
        runs = tempfile.mkdtemp(prefix="axiomrm-notebooks-")
        command = [sys.executable, "-m", "axiomrm", "run", str(MICRO), "--runs-dir", runs]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONSAFEPATH": "1"})
        os.environ["AXIOMRM_RUN"] = str(Path(runs) / "micro")
