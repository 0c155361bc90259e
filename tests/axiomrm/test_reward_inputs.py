"""The files that a reward is made of belong to the run: one that changed is named when the run goes on."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from axiomrm.config import RunConfig
from axiomrm.errors import ConfigError
from axiomrm.rubrics.imports import LIBRARY
from axiomrm.runner import Stage, run_pipeline

ANNA, BERT, CORA = (
    json.dumps({"subject": f"user-000{i}", "slots": {"stated.verbosity": 2}, "policy_training": True})
    for i in range(3)
)


STAGES = [Stage("only", lambda context: {"n": 1})]


def config(**policy: Any) -> RunConfig:
    return RunConfig.model_validate({"name": "toy", "policy": policy})


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A rubric that imports the one beside it, a judge's folder, profiles and labels."""
    shutil.copy(LIBRARY / "process_shaping.yaml", tmp_path)
    shutil.copy(LIBRARY / "agent_axioms.yaml", tmp_path)
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge" / "model.safetensors").write_text("1")
    (tmp_path / "profiles.jsonl").write_text(f"{ANNA}\n{BERT}\n")
    (tmp_path / "labels.jsonl").write_text("{}\n")
    return tmp_path


def reward(files: Path) -> dict[str, Any]:
    rubric, judge = str(files / "process_shaping.yaml"), str(files / "judge")
    personal = {
        "kind": "personal",
        "rubric": rubric,
        "judge": judge,
        "profiles": str(files / "profiles.jsonl"),
    }
    labels = {"kind": "labels", "path": str(files / "labels.jsonl")}
    return {"kind": "composite", "parts": {"p": personal, "l": labels}, "weights": {"p": 1, "l": 1}}


def run(files: Path, key: str = "reward", **options: Any) -> None:
    run_pipeline(STAGES, config(**{key: reward(files)}), files / "runs", **options)


def test_a_changed_file_of_two_parts_is_named_once(files: Path) -> None:
    twice = reward(files)
    twice["parts"]["q"] = twice["parts"]["p"]
    twice["weights"]["q"] = 1
    made = config(reward=twice)
    run_pipeline(STAGES, made, files / "runs")
    for name in ("process_shaping.yaml", "agent_axioms.yaml"):
        with (files / name).open("a") as handle:
            handle.write("# a remark\n")
    with pytest.raises(ConfigError) as caught:
        run_pipeline(STAGES, made, files / "runs")
    said = str(caught.value)
    assert said.count("content of") == 2
    assert "parts.p.rubric (" in said and "parts.p.rubric.imports.agent_axioms" in said


def test_shipped_rubrics_and_the_runs_own_judge_are_no_files() -> None:
    assert RunConfig(name="a").input_paths() == {}


@pytest.mark.parametrize("key", ["reward", "heldout"])
@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("process_shaping.yaml", "rubric"),
        ("agent_axioms.yaml", "rubric.imports.agent_axioms"),
        ("judge/model.safetensors", "judge"),
        ("profiles.jsonl", "profiles"),
    ],
)
def test_a_file_that_changed_is_named_when_the_run_goes_on(files: Path, key: str, name: str, at: str) -> None:
    run(files, key)
    run(files, key)  # nothing changed
    changed = files / name
    text = changed.read_text()
    changed.write_text(text + ("# a remark\n" if name.endswith("yaml") else f"{CORA}\n"))
    file = "" if "imports" in at else rf" \(.*{name.partition('/')[0]}\)"
    with pytest.raises(ConfigError, match=rf"content of policy\.{key}\.parts\.p\.{at}{file}: '.*', now '"):
        run(files, key)
    with pytest.raises(ConfigError, match="content of policy"):
        run(files, key, accept_code_change=True)
    changed.write_text(text)
    run(files, key)


def test_a_file_that_is_gone_is_named(files: Path) -> None:
    run(files)
    (files / "process_shaping.yaml").unlink()
    with pytest.raises(ConfigError, match=r"content of policy\.reward\.parts\.p\.rubric .*now '\(absent\)'"):
        run(files)


def test_labels_may_be_given_between_two_starts(files: Path) -> None:
    run(files)
    (files / "labels.jsonl").write_text("{}\n{}\n")
    run(files)


def changed_profiles(files: Path, *lines: str) -> Callable[[], None]:
    (files / "profiles.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return lambda: run(files)


def test_who_withdraws_consent_is_taken_out_and_the_run_goes_on(files: Path) -> None:
    run(files)
    changed_profiles(files, BERT)()
    manifest = json.loads((files / "runs" / "toy" / "manifest.json").read_text())
    assert [len(lines) for lines in manifest["profiles"].values()] == [1]  # nothing of the other is kept
    with pytest.raises(ConfigError, match=r"content of policy\.reward\.parts\.p\.profiles"):
        changed_profiles(files, BERT, ANNA)()
    with pytest.raises(ConfigError, match=r"content of policy\.reward\.parts\.p\.profiles"):
        changed_profiles(files, BERT.replace("2}", "1}"))()


def test_a_run_of_before_rewards_were_inputs_goes_on_with_other_code_if_that_is_accepted(files: Path) -> None:
    run(files)
    path = files / "runs" / "toy" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["profiles"]
    path.write_text(json.dumps(manifest | {"inputs": {}, "code": {"version": "0", "sha256": "old"}}))
    with pytest.raises(ConfigError, match=r"code\.sha256"):
        run(files)
    run(files, accept_code_change=True)
    run(files)
