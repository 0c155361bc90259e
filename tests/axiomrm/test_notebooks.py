import ast
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))


def code(path: Path) -> list[str]:
    """Sources of the code cells."""
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_there_is_a_walkthrough() -> None:
    assert "walkthrough.ipynb" in {path.name for path in NOTEBOOKS}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_notebook_is_valid_and_committed_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_a_notebook_holds_no_logic_of_its_own_and_ends_in_asserts(path: Path) -> None:
    cells = [ast.parse(source) for source in code(path)]
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.If, ast.While)
    assert not [node for cell in cells for node in ast.walk(cell) if isinstance(node, definitions)]
    assert cells[-1].body and all(isinstance(node, ast.Assert) for node in cells[-1].body)
