"""What the documents say is true: examples run, commands exist, files are there, shipped YAML loads."""

import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from axiomrm.config import load_config
from axiomrm.rubrics import Rubric

ROOT = Path(__file__).parents[2]
FOLDERS = ("rm", "rubrics", "personalization", "policy_opt", "data", "eval")
MODULES = sorted(
    "axiomrm." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")
    if path.name != "__init__.py"
) + [f"axiomrm.{path.stem}" for path in sorted((ROOT / "src/axiomrm").glob("[a-z]*.py"))]


def source(module: str) -> str:
    parts = module.split(".")[1:]
    at_root = ROOT.joinpath(*parts).with_suffix(".py")
    return (at_root if at_root.exists() else ROOT / "src/axiomrm" / f"{parts[0]}.py").read_text(
        encoding="utf-8"
    )


def blocks(document: str, language: str) -> list[str]:
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("module", [m for m in MODULES if ">>>" in source(m)])
def test_examples_in_docstrings_are_true(module: str) -> None:
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted and not results.failed


@pytest.mark.slow
def test_each_module_can_be_imported() -> None:
    assert [importlib.import_module(module).__name__ for module in MODULES] == MODULES


@pytest.mark.parametrize("block", blocks("README.md", "python"))
def test_python_in_the_readme_runs(block: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_newcomer_needs_exactly_two_commands() -> None:
    commands = [line.split("#")[0].strip() for line in blocks("README.md", "sh")[0].strip().split("\n")]
    assert commands == ["make demo", "make test"]


def test_each_command_in_the_documents_is_a_target() -> None:
    targets = set(
        re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert targets >= {"setup", "demo", "test", "check", "bench-demo", "nano", "smollm2"}
    for document in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        named = re.findall(r"`?\bmake ([a-z0-9-]+)", (ROOT / document).read_text(encoding="utf-8"))
        assert set(named) <= targets, document


def test_each_file_in_the_list_of_papers_exists() -> None:
    rows = (ROOT / "PAPERS.md").read_text(encoding="utf-8").split("\n")
    files = [file for row in rows for file in re.findall(r"`([\w/]+\.py)`", row)]
    assert files and [file for file in files if not (ROOT / file).exists()] == []


def test_each_paper_that_the_code_names_is_in_the_list() -> None:
    named = {paper for module in MODULES for paper in re.findall(r"arXiv:\d{4}\.\d{4,5}", source(module))}
    listed = (ROOT / "PAPERS.md").read_text(encoding="utf-8")
    assert {paper for paper in named if paper not in listed} == set()


def test_each_link_between_documents_leads_somewhere() -> None:
    for document in ("README.md", "CONTRIBUTING.md", "PAPERS.md"):
        text = (ROOT / document).read_text(encoding="utf-8")
        links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
        assert [link for link in links if not (ROOT / link).exists()] == []


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_each_shipped_configuration_loads(path: Path) -> None:
    assert load_config(path).name


@pytest.mark.parametrize(
    "path", sorted((ROOT / "rubrics/library").glob("*.yaml")), ids=lambda path: path.stem
)
def test_each_rubric_of_the_library_loads_by_name_and_by_path(path: Path) -> None:
    assert Rubric.load(path.stem).hash == Rubric.load(path).hash
