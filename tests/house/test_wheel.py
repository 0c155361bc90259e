"""The wheel with the core dependencies alone, away from the repository (cases D-PK-01, D-PK-02, D-PK-04)."""

import importlib.metadata
import json
import subprocess
import sys
import tomllib
import venv
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS: dict[str, str] = PYPROJECT["tool"]["setuptools"]["package-dir"]
CASES = Path(__file__).parents[1] / "cases" / "dev_cases.jsonl"

pytestmark = pytest.mark.slow


def expected(case: str) -> dict[str, Any]:
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").split("\n") if line]
    found: dict[str, Any] = next(row["expect"] for row in rows if row["id"] == case)
    return found


def tracked(folder: str) -> list[Path]:
    """The files that git tracks directly in or below ``folder``, relative to it; symlinks are not files."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "--", folder], cwd=ROOT, text=True)
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path.relative_to(ROOT / folder) for path in paths if path.is_file() and not path.is_symlink()]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from what git tracks: a ``build/`` folder or a stray file cannot slip in."""
    base = tmp_path_factory.mktemp("wheel")
    checkout = base / "checkout"
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, listed):
        if (ROOT / name).is_file() and not (ROOT / name).is_symlink():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_bytes((ROOT / name).read_bytes())
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", base, checkout], check=True)
    (built,) = base.glob("*.whl")
    return built


def core_distributions() -> set[str]:
    """The core dependencies of axiomrm with all that they need, by name."""
    todo = [Requirement(text) for text in PYPROJECT["project"]["dependencies"]]
    done: set[str] = set()
    while todo:
        requirement = todo.pop()
        if requirement.name in done or (
            requirement.marker and not requirement.marker.evaluate({"extra": ""})
        ):
            continue
        done.add(requirement.name)
        todo.extend(Requirement(text) for text in importlib.metadata.requires(requirement.name) or [])
    return done


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and the core dependencies, without any extra."""
    home = tmp_path_factory.mktemp("core")
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    for name in core_distributions():
        distribution = importlib.metadata.distribution(name)
        tops = {
            file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")
        }
        for top in tops:  # links instead of copies: the same files as pip would put there, without a network
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))))
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin/python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    return home / "bin/python"


def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """``axiomrm …`` or ``python …`` in that environment, run outside the repository."""
    program = python.parent / words[0]
    return subprocess.run(
        [program, *words[1:]], cwd=python.parent, capture_output=True, text=True, check=False
    )


def test_the_wheel_holds_what_git_tracks_in_the_packages_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        "/".join((*name.split("."), *path.parts))
        for name, folder in FOLDERS.items()
        for path in tracked(folder)
    }
    assert names == wanted


def test_the_wheel_holds_templates_rubrics_and_bundled_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for pattern in expected("D-PK-01")["wheel_contains"]:
        assert any(fnmatch(name, f"axiomrm/{pattern}") for name in names), pattern


def test_only_axiomrm_lands_on_the_top_level(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert tops == set(expected("D-PK-02")["top_level"])


def test_the_environment_really_has_no_extra(python: Path) -> None:
    assert run(python, "python", "-c", "import torch").returncode == 1
    where = run(python, "python", "-c", "import axiomrm; print(axiomrm.__file__)").stdout
    assert where.startswith(str(python.parents[1]))


@pytest.mark.parametrize(
    "words",
    [
        ("axiomrm", "--help"),
        ("axiomrm", "rubric", "lint", "support_agent"),
        ("python", "-c", "import axiomrm.rm.prompt"),
        ("python", "-c", "import axiomrm.personalization"),
        ("python", "-c", "from axiomrm import Rubric; Rubric.load('support_agent')"),
        ("python", "-m", "axiomrm", "--version"),
    ],
    ids=" ".join,
)
def test_the_core_works_without_extras(python: Path, words: tuple[str, ...]) -> None:
    done = run(python, *words)
    assert done.returncode == 0, done.stderr


def test_a_missing_extra_is_one_line_with_the_remedy(python: Path) -> None:
    done = run(python, "axiomrm", "train", "rm", "--stage", "general")
    wanted = expected("D-PK-04")["second"]
    assert done.returncode == wanted["exit"]
    assert all(word in done.stderr for word in wanted["mentions"])
    assert "Traceback" not in done.stderr and len(done.stderr.strip().split("\n")) == 1
