"""docs/rubrics.md is true: its files load, its Python runs, its commands print what stands there."""

import contextlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml

from axiomrm.cli import main
from axiomrm.rubrics.convert import FORMATS
from axiomrm.rubrics.imports import LIBRARY
from axiomrm.rubrics.json_schema import SCHEMA_FILE, json_schema, schema_text
from axiomrm.rubrics.lint import CODES
from axiomrm.rubrics.model import RubricFile
from axiomrm.rubrics.reference import BEGIN, with_reference
from axiomrm.rubrics.starter import starter

DOCUMENT = Path(__file__).parents[2] / "docs" / "rubrics.md"
REMEDY = "run scripts/rubric_docs.py"


class Block(NamedTuple):
    kind: str
    file: str
    text: str
    start: int
    end: int


def blocks(document: str) -> Iterator[Block]:
    tutorial = document.partition(BEGIN)[0]
    pattern = r"(?:<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```$"
    for match in re.finditer(pattern, tutorial, re.MULTILINE | re.DOTALL):
        yield Block(match[2], match[1] or "", match[3], match.start(3), match.end(3))


def commands(text: str) -> Iterator[tuple[str, int, str]]:
    """Command line, exit code and expected output."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        line, _, output = part.partition("\n")
        command, _, comment = line.partition("#")
        code = re.search(r"exits with (\d)", comment)
        yield command.strip(), int(code[1]) if code else 0, output


def run(command: str) -> tuple[int, str]:
    program, *words = command.split()
    assert program == "axiomrm"
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(words)
    return code, out.getvalue()


def test_the_tutorial_runs_from_its_first_block_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    count = {"yaml": 0, "json": 0, "python": 0, "console": 0}
    for block in blocks(DOCUMENT.read_text(encoding="utf-8")):
        count[block.kind] += 1
        if block.kind == "python":
            exec(compile(block.text, f"{DOCUMENT.name}: {block.text[:40]!r}", "exec"), space)
        elif block.kind == "console":
            for command, code, output in commands(block.text):
                assert run(command) == (code, output), command
        else:
            assert block.file, "a file block needs its name"
            Path(block.file).write_text(block.text, encoding="utf-8")
    assert count["python"] >= 5
    assert count["console"] >= 6


def test_the_reference_is_the_one_of_this_schema() -> None:
    document = DOCUMENT.read_text(encoding="utf-8")
    assert with_reference(document) == document, REMEDY
    reference = document.partition(BEGIN)[2]
    assert all(f"| {code} |" in reference for code in CODES)
    assert all(f"`{name}`" in reference for name in FORMATS)


def rows_of(reference: str) -> list[str]:
    return [line for line in reference.split("\n") if line.startswith("| `") and line.count("|") >= 4]


def test_every_field_has_a_meaning() -> None:
    fields = (
        DOCUMENT.read_text(encoding="utf-8").partition("## Reference: programmatic")[0].partition(BEGIN)[2]
    )
    empty = [row for row in rows_of(fields) if not row.rstrip().removesuffix("|").rpartition("|")[2].strip()]
    assert empty == []
    for name in RubricFile.model_json_schema()["$defs"]:
        for field in json_schema()["$defs"][name]["properties"]:
            assert f"| `{field}` |" in fields, (name, field)


def test_the_shipped_schema_is_the_one_of_the_model() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), REMEDY
    jsonschema.Draft202012Validator.check_schema(json_schema())


def problems(tree: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(json_schema()).iter_errors(tree)]


@pytest.mark.parametrize("path", sorted(LIBRARY.glob("*.yaml")), ids=lambda path: path.stem)
def test_library_rubrics_fit_the_schema(path: Path) -> None:
    assert problems(yaml.safe_load(path.read_text(encoding="utf-8"))) == []


def test_a_new_rubric_fits_the_schema_and_slips_do_not() -> None:
    good = yaml.safe_load(starter("mine"))
    assert problems(good) == []
    slips: list[tuple[list[str | int], Any]] = [
        (["theorems", 0, "wieght"], 2),
        (["theorems", 0, "weight"], -1),
        (["theorems", 0, "weight"], "2"),
        (["theorems", 0, "id"], "Th.Bad"),
        (["theorems", 0, "polarity"], "negative"),
        (["theorems", 0, "judge"], {"kind": "programmatic", "fn": "tests_pased"}),
        (["facets", "len_words", "probe"], "slots_missing"),
        (["rubric", "version"], 1.0),
        (["schema"], "atr/2"),
    ]
    for path, value in slips:
        bad = json.loads(json.dumps(good))
        place = bad
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        assert problems(bad), path
    assert problems({k: v for k, v in good.items() if k != "schema"})
