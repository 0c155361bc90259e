"""The first sections of docs/judge.md run from top to bottom and print what stands there."""

import contextlib
import io
import re
from pathlib import Path
from typing import Any, get_args

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import RETRYABLE, FailureKind
from axiomrm.rm import RewardModel
from axiomrm.rm.foreign_judges import ADAPTERS
from axiomrm.rm.templating import BLOCKS
from axiomrm.rubrics import Rubric

PAGE = Path(__file__).parents[2] / "docs" / "judge.md"
PART = PAGE.read_text(encoding="utf-8").split("\n## Sampling and gating\n")[0]


def test_the_python_runs_and_prints_what_stands_there(
    tiny_llama: Any, tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_theorem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    said = (Message(role="user", content="hi"), Message(role="assistant", content="Hello."))
    names: dict[str, Any] = {
        "judge": RewardModel.from_model(
            tiny_llama, tiny_tokenizer, min_mass=0.0, max_notes_tokens=4, untrained=True
        ),
        "rubric": Rubric.loads(one_theorem, "one.yaml"),
        "trajectory": Trajectory(messages=said),
    }
    printed, everything = "", ""
    count = {"python": 0, "text": 0}
    for kind, text in re.findall(r"^```(python|text)\n(.*?)^```$", PART, re.MULTILINE | re.DOTALL):
        count[kind] += 1
        if kind == "text":
            code = re.search(r"<data (\w+)>", printed)
            assert text in (printed.replace(code[1], "bidafo") if code else printed)
            continue
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, f"{PAGE.name}: {text[:40]!r}", "exec"), names)
        printed = out.getvalue()
        everything += printed
        assert "False" not in printed and "missing:" not in printed
    assert count == {"python": 8, "text": 2}
    assert "prompt template 'mine.j2': unknown variable 'aks'" in everything
    assert "\n['failed']\nNone no closing [[label]]" in everything  # a random model writes neither form


def test_the_tables_name_every_kind_adapter_and_block() -> None:
    assert [kind for kind in get_args(FailureKind) if f"`{kind}`" not in PART] == []
    again = next(line for line in PART.split("\n") if line.startswith("| infrastructure |"))
    assert {k for k in get_args(FailureKind) if f"`{k}`" in again} - {"cancelled"} == RETRYABLE
    assert [name for name in ADAPTERS if f"`{name}`" not in PART] == []
    assert [name for name in (*BLOCKS, "joint") if f"| `{name}` |" not in PART] == []
