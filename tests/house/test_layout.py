"""What is built, what type checkers see and what lies in the folders is the same thing."""

import ast
import re
import sys
import tomllib
from functools import cache
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PYPROJECT["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]
ROOMS = ["errors", "data", "rubrics", "rm", "personalization", "policy_opt", "eval"]
"""From the bottom up; everything else directly in ``axiomrm`` is the front door, above them all."""


def home(package: str) -> Path:
    """The folder of a package: its own entry in package-dir, else that of its parent."""
    if package in FOLDERS:
        return ROOT / FOLDERS[package]
    parent, _, last = package.rpartition(".")
    return home(parent) / last


MODULES = {
    package if path.stem == "__init__" else f"{package}.{path.stem}": path
    for package in SETUPTOOLS["packages"]
    for path in sorted(home(package).glob("*.py"))
}


def height(module: str) -> int:
    """0 for errors, then the rooms; the front door is the highest."""
    room = module.split(".")[1] if "." in module else ""
    return ROOMS.index(room) if room in ROOMS else len(ROOMS)


def sub_folder(module: str, room: str) -> str:
    """The folder within the room that holds the module; "" for what lies in the room itself or elsewhere."""
    parts = module.split(".")
    inside = parts[:2] == ["axiomrm", room] and f"axiomrm.{room}.{'.'.join(parts[2:3])}" in FOLDERS
    return parts[2] if inside else ""


@cache
def tree(module: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))))


def imported(module: str) -> set[str]:
    """The ``axiomrm`` modules that a module imports, inside functions and for type checkers too."""
    found: set[str] = set()
    for node in tree(module):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "axiomrm":
            found.update(f"axiomrm.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {name for name in found if name.split(".")[0] == "axiomrm"}


def test_each_package_on_disk_is_listed_and_the_other_way_round() -> None:
    on_disk = {
        ".".join((name, *file.parent.relative_to(ROOT / folder).parts))
        for name, folder in FOLDERS.items()
        for file in (ROOT / folder).rglob("__init__.py")
    }
    assert set(SETUPTOOLS["packages"]) == on_disk


@pytest.mark.parametrize("name", sorted(FOLDERS))
def test_type_checkers_see_the_folder_that_is_built(name: str) -> None:
    assert (ROOT / "src").joinpath(*name.split(".")).resolve() == (ROOT / FOLDERS[name]).resolve()


def test_imports_go_down_only() -> None:
    upward = {m: [name for name in imported(m) if height(name) > height(m)] for m in MODULES}
    assert {module: names for module, names in upward.items() if names} == {}


@pytest.mark.parametrize("room", [room for room in ROOMS if f"axiomrm.{room}" in FOLDERS])
def test_sub_folders_of_a_room_do_not_import_each_other_in_circles(room: str) -> None:
    below: dict[str, set[str]] = {}
    for module in MODULES:
        if sub_folder(module, room):
            below.setdefault(sub_folder(module, room), set()).update(
                sub_folder(n, room) for n in imported(module)
            )
    below = {folder: others - {folder, ""} for folder, others in below.items()}
    tuple(TopologicalSorter(below).static_order())  # raises CycleError, which names them


def test_imports_are_absolute() -> None:
    relative = {m for m in MODULES for node in tree(m) if isinstance(node, ast.ImportFrom) and node.level}
    assert relative == set()


def test_the_order_of_the_rooms_is_what_the_test_thinks() -> None:
    lower = [
        height(name)
        for name in ("axiomrm.errors", "axiomrm.data.jsonl", "axiomrm.rubrics.expr", "axiomrm.rm")
    ]
    upper = [
        height(name)
        for name in (
            "axiomrm.personalization",
            "axiomrm.policy_opt.algorithms.grpo",
            "axiomrm.eval",
            "axiomrm.cli",
        )
    ]
    assert all(a < b for a, b in pairwise(lower + upper))


def test_no_folder_was_imported_under_its_bare_name() -> None:
    # From the repository root `import data` works by accident and gives a second copy of every class.
    twins = {
        name
        for name, module in sys.modules.items()
        if name.split(".")[0] in FOLDERS.values() and str(ROOT) in str(getattr(module, "__file__", None))
    }
    assert twins == set()


def direct_requirements() -> list[Requirement]:
    project = PYPROJECT["project"]
    extras = [text for texts in project["optional-dependencies"].values() for text in texts]
    return [Requirement(text) for text in project["dependencies"] + extras]


@pytest.mark.parametrize("requirement", direct_requirements(), ids=lambda r: r.name)
def test_each_direct_dependency_has_one_tested_version_in_its_range(requirement: Requirement) -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split("\n")
    pins = dict(line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    version = {canonicalize_name(name): version for name, version in pins.items()}[
        canonicalize_name(requirement.name)
    ]
    assert requirement.specifier.contains(version)


IMPORT_NAMES = {"pyyaml": "yaml", "scikit-learn": "sklearn", "z3-solver": "z3", "types-pyyaml": "yaml"}
"""Distribution to module, where they differ."""


def third_party(module: str) -> set[str]:
    """Top-level modules that a module imports from outside Python and axiomrm."""
    names = {alias.name for node in tree(module) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in tree(module) if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"axiomrm"}


def test_what_a_module_imports_is_declared() -> None:
    declared = {canonicalize_name(requirement.name) for requirement in direct_requirements()}
    names = {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in declared}
    undeclared = {module: third_party(module) - names for module in MODULES}
    assert {module: missing for module, missing in undeclared.items() if missing} == {}


def test_the_version_is_written_once_in_two_places() -> None:
    import axiomrm

    assert axiomrm.__version__ == PYPROJECT["project"]["version"]


def test_git_ignores_no_folder_of_ours() -> None:
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split("\n")
    bare = re.compile(r"^(data|build|eval|rm|dist)/?$")
    assert [line for line in lines if bare.match(line)] == []
