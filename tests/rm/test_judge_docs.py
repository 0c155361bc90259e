"""The Python in docs/judge.md runs, with a tiny judge in place of a trained one."""

import re
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.rm import RewardModel
from axiomrm.rubrics import Rubric

PAGE = Path(__file__).parents[2] / "docs" / "judge.md"
SECTIONS = ("Sampling and gating", "Pairs", "Calibration")
RUBRIC = """
schema: atr/1
rubric: {id: one, version: 1.0.0}
defaults: {judge: {kind: llm}}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
theorems:
  - {id: th.done, derived_from: [ax.help], derivation: purpose, statement: The request is settled.}
"""


def blocks(section: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("section", SECTIONS)
def test_python_of_a_section_runs(section: str, tiny_llama: Any, tiny_tokenizer: Any) -> None:
    def talk(*said: str) -> Trajectory:
        roles: tuple[Any, Any] = ("user", "assistant")
        return Trajectory(messages=tuple(Message(role=roles[i % 2], content=s) for i, s in enumerate(said)))

    names: dict[str, Any] = {
        "judge": RewardModel.from_model(
            tiny_llama, tiny_tokenizer, min_mass=0.0, max_notes_tokens=4, untrained=True
        ),
        "rubric": Rubric.loads(RUBRIC, "one.yaml"),
        "trajectory": talk("hi", "Hello."),
        "a": talk("refund?", "Yes."),
        "b": talk("refund?", "No."),
    }
    found = blocks(section)
    assert found
    for block in found:
        exec(compile(block, str(PAGE), "exec"), names)
