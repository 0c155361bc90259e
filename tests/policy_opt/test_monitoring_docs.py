"""docs/monitoring.md runs from top to bottom and prints what stands there."""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from axiomrm.cli import main
from axiomrm.config import PolicyStageConfig

PAGE = Path(__file__).parents[2] / "docs" / "monitoring.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_page_runs_and_prints_what_stands_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    outputs: list[str] = []
    for kind, text in BLOCKS:
        if kind == "text":
            assert outputs.pop(0) == text
        elif kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(text, f"{PAGE.name}: {text[:40]!r}", "exec"), names)
            outputs += [out.getvalue()] if out.getvalue() else []
        elif kind == "sh":
            for line in text.splitlines():
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    code = main(shlex.split(line)[1:])
                assert code == (0 if out.getvalue().startswith("ok") else 1)
                outputs.append(out.getvalue())
    assert outputs == []


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "yaml"])
def test_each_configuration_of_the_page_is_one(text: str) -> None:
    assert PolicyStageConfig.model_validate(yaml.safe_load(text))
