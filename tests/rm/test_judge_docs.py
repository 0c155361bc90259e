"""The Python in docs/judge.md runs, with a tiny judge in place of a trained one."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.rm import RewardModel
from axiomrm.rm.templating import FOLDER
from axiomrm.rubrics import Rubric

PAGE = Path(__file__).parents[2] / "docs" / "judge.md"
SECTIONS = ("Sampling and gating", "Pairs", "Calibration")


def blocks(section: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def shell(section: str) -> list[str]:
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n")[1].split("\n## ")[0]
    return [
        line
        for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]


def test_commands_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_model: Any, tiny_tokenizer: Any, one_theorem: str
) -> None:
    """All but those that need vLLM or labels; the gate of the page is picked from labels that nobody has."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    make_model().save_pretrained("JUDGE")
    tiny_tokenizer.save_pretrained("JUDGE")
    Path("one.yaml").write_text(one_theorem)
    Path("mine.j2").write_text((FOLDER / "default.j2").read_text().replace("To check: ", "Consider: "))
    said = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}]
    Path("log.jsonl").write_text(json.dumps({"id": "r1", "messages": said}) + "\n")
    scores = [
        line for name in ("Sampling and gating", "Scoring files") for line in shell(name) if " score " in line
    ]
    assert len(scores) == 6
    made = set()
    for line in scores:
        words = shlex.split(line.replace("support_agent", "one.yaml"))[1:]
        words[1] = "log.jsonl"
        assert main([*words, "--out", "out.jsonl", "--replace"]) == 0, line
        made.add(json.loads(Path("out.jsonl").read_text())["judgement"]["judge_revision"])
    assert (
        len(made) == 4
    )  # with samples, critique mode is the same judge; each gate, template and view another


@pytest.mark.parametrize("section", SECTIONS)
def test_python_of_a_section_runs(
    section: str, tiny_llama: Any, tiny_tokenizer: Any, one_theorem: str
) -> None:
    def talk(*said: str) -> Trajectory:
        roles: tuple[Any, Any] = ("user", "assistant")
        return Trajectory(messages=tuple(Message(role=roles[i % 2], content=s) for i, s in enumerate(said)))

    names: dict[str, Any] = {
        "judge": RewardModel.from_model(
            tiny_llama, tiny_tokenizer, min_mass=0.0, max_notes_tokens=4, untrained=True
        ),
        "rubric": Rubric.loads(one_theorem, "one.yaml"),
        "trajectory": talk("hi", "Hello."),
        "a": talk("refund?", "Yes."),
        "b": talk("refund?", "No."),
    }
    found = blocks(section)
    assert found
    for block in found:
        exec(compile(block, str(PAGE), "exec"), names)
