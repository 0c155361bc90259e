"""Importing the package is quick and loads no model code (case D-PK-03)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CASES = Path(__file__).parents[1] / "cases" / "dev_cases.jsonl"
HEAVY = {
    "torch",
    "transformers",
    "trl",
    "peft",
    "datasets",
    "sklearn",
    "presidio_analyzer",
    "spacy",
    "pandas",
}
PACKAGES = ["axiomrm"] + [
    f"axiomrm.{room}" for room in ("cli", "data", "rubrics", "rm", "personalization", "policy_opt", "eval")
]


def loaded_by(code: str) -> set[str]:
    """Top-level names in ``sys.modules`` of a fresh interpreter after ``code``."""
    names = "' '.join({name.split('.')[0] for name in sys.modules})"
    script = f"import sys\n{code}\nprint({names}, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def import_seconds() -> float:
    """Cumulative import time of ``axiomrm`` in a fresh interpreter."""
    command = [sys.executable, "-X", "importtime", "-c", "import axiomrm"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    last = done.stderr.strip().split("\n")[-1]
    assert last.split("|")[-1].strip() == "axiomrm"
    return int(last.split("|")[1]) / 1e6


def test_import_is_as_quick_as_the_case_asks() -> None:
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").split("\n") if line]
    expect = next(row["expect"] for row in rows if row["id"] == "D-PK-03")
    # The best of three: other work on the machine only ever adds time.
    assert min(import_seconds() for _ in range(3)) <= expect["seconds_at_most"]
    assert not loaded_by("import axiomrm") & set(expect["not_imported"])


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_loads_model_code_by_being_imported(package: str) -> None:
    assert not loaded_by(f"import {package}") & HEAVY


def test_help_loads_no_model_code() -> None:
    assert not loaded_by("from axiomrm.cli import main\nmain(['--help'])") & HEAVY


def test_a_loaded_module_would_be_noticed() -> None:
    assert "sklearn" in loaded_by("import sys, types; sys.modules['sklearn.x'] = types.ModuleType('x')")


def test_public_names_are_there_when_asked_for() -> None:
    import axiomrm

    assert all(hasattr(axiomrm, name) for name in axiomrm.__all__)
    assert set(axiomrm.__all__) <= set(dir(axiomrm))
    with pytest.raises(AttributeError, match="Rubrik"):
        axiomrm.Rubrik  # noqa: B018
