"""A wrong value is answered in one line that names the option as it was typed, with exit code 2."""

import json
import shlex
from pathlib import Path

import pytest

from axiomrm.cli import main
from axiomrm.stages.world import base_folder

SERVER = "--model http://localhost:1"
SCORE = "score logs.jsonl -r general_quality"
AUDIT = "audit logs.jsonl -r process_shaping"
CONVERT = "rubric convert rubric.yaml"


@pytest.fixture
def nano(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model folder; the working directory holds logs, a rubric and a configuration."""
    monkeypatch.chdir(tmp_path)
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "a b c"}]
    rows = [{"id": f"r{i}", "messages": messages, "outcome": i % 2} for i in range(3)]
    Path("logs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("config.yaml").write_text("name: a\n")
    main(["rubric", "new", "rubric"])
    return str(base_folder("nano"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{SCORE} {SERVER}", f"{SERVER}: a server needs --served-model"),
        (f"{SCORE} {SERVER},foo --served-model m", "--model 'foo': expected http"),
        (f"{SCORE} {SERVER} --served-model m --rpm 0", "--rpm 0.0: expected a number above 0"),
        (f"{SCORE} {SERVER} --served-model m --patience inf", "--patience inf: expected"),
        (f"{SCORE} {SERVER} --served-model m --tokenizer ./no/such", "--tokenizer './no/such' cannot be loaded"),
        (f"{SCORE} --model NANO --dtype int8", "--dtype 'int8': use"),
        (f"{SCORE} --model NANO --device tpu", "--device 'tpu': cannot"),
        (f"{SCORE} --model NANO --mode critique --temperature inf", "--temperature inf: a number from 0 up"),
        (f"{SCORE} --model NANO --template nope", "--template 'nope': no such file"),
        (f"{SCORE} --model NANO --adapter nope", "--adapter 'nope' judges no single recording"),
        (f"{SCORE} --model logs.jsonl", "--model 'logs.jsonl' cannot be loaded"),
        ("score logs.jsonl -r process_shaping --out .", "--out .: a folder; name a file in it"),
        ("score logs.jsonl -r process_shaping --out /proc/x", "/proc/x.partial: cannot be written: "),
        ("rubric lint rubric.yaml --base nope", "--base: no rubric 'nope'"),
        ("rubric lint rubric.yaml --rubric-path nowhere", "Invalid value for '--rubric-path'"),
        (f"{AUDIT} --seed -1", "Invalid value for '--seed'"),
        (f"{AUDIT} --model ./nowhere", "--model ./nowhere: there is no such folder"),
        (f"{AUDIT} {SERVER}", f"{SERVER}: a server needs --served-model"),
        (f"{AUDIT} --served-model m", "--served-model m: is of a server"),
        ("audit logs.jsonl -r general_quality", "--rubric general_quality: 10 of its items need a judge model: --model"),
        ("calibrate gate l l --labels l --rubric r --max-loss -1", "Invalid value for '--max-loss'"),
        ("rubric test process_shaping --judge ./nowhere", "--judge ./nowhere: there is no such folder"),
        ("rubric test process_shaping --judge logs.jsonl", "--judge 'logs.jsonl' cannot be loaded"),
        (f"{CONVERT} . --from atr --to geval", ".: a folder; name a file in it"),
        (f"{CONVERT} x.json --from atr --to geval --report .", "--report .: a folder; name a file in it"),
        ("rubric improve rubric.yaml --scores l --out logs.jsonl", "--out logs.jsonl: a file; name a folder"),
        ("run config.yaml --name a/b", "--name 'a/b': name: found 'a/b'"),
        ("train rm config.yaml --name a/b", "--name 'a/b': name: found 'a/b'"),
        ("run config.yaml --runs-dir logs.jsonl", "--runs-dir logs.jsonl: "),
        ("run config.yaml --runs-dir /dev/null/x", "--runs-dir /dev/null/x: "),
        ("run config.yaml --runs-dir /proc/x", "--runs-dir /proc/x: "),
        (
            "train policy config.yaml --algorithm grpo policy.train.group_size=1",
            "--algorithm grpo: policy.train: group_size=1: grpo compares rollouts",
        ),
    ],
)  # fmt: skip
def test_a_wrong_value_names_its_option(
    line: str, said: str, nano: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(shlex.split(line.replace("NANO", nano))) == 2
    refused = " ".join(capsys.readouterr().err.split())
    assert said in refused and "Traceback" not in refused
