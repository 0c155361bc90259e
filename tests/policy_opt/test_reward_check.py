"""A run with a reward, a judge, a tracker or a base that cannot be used ends before its first stage."""

import json
import shutil
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from axiomrm.config import load_config
from axiomrm.errors import ConfigError
from axiomrm.runner import Stage, run_pipeline
from axiomrm.stages import cold_start, policy

NANO = Path(str(resources.files("axiomrm.data") / "bundled" / "nano"))


def start(tmp_path: Path, *settings: str) -> list[str]:
    """The names of the stages that ran: they do nothing, but have the checks of the real ones."""
    ran: list[str] = []

    def body(context: Any) -> dict[str, int]:
        ran.append(context.stage)
        return {"n": 1}

    path = tmp_path / "run.yaml"
    path.write_text("name: a\n")
    stages = [
        Stage("synthesize", body),
        Stage("cold_start", body, cold_start.check),
        Stage("policy", body, policy.check),
    ]
    run_pipeline(stages, load_config(path, list(settings)), tmp_path / "runs")
    return ran


@pytest.mark.parametrize("key", ["reward", "heldout"])
@pytest.mark.parametrize(
    ("reward", "says"),
    [
        ("{kind: rubric_judge, rubric: servise_desk}", "servise_desk"),
        ("{kind: programmatic, rubric: no/such.yaml}", "no/such.yaml"),
        ("{kind: programmatic, rubric: general_quality}", "that need a judge"),
        ("{kind: labels, path: no/labels.jsonl}", "no/labels.jsonl"),
        ("{kind: personal, profiles: no/profiles.jsonl}", "no/profiles.jsonl"),
        ("{kind: composite, parts: {a: {kind: labels, path: no/l.jsonl}}, weights: {a: 1}}", "no/l.jsonl"),
    ],
)
def test_a_reward_without_its_files_is_refused_at_once(
    tmp_path: Path, key: str, reward: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=rf"^policy\.{key}: .*{says}"):
        start(tmp_path, f"policy.{key}={reward}")
    assert not (tmp_path / "runs").exists()


def test_profiles_none_of_which_can_be_used_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "profiles.jsonl"
    path.write_text('{"subject": "Maria"}\n')
    with pytest.raises(
        ConfigError,
        match=r"^policy\.reward: .*: no usable profile among 1 lines; first rejected: .*\.jsonl:1: subject:",
    ):
        start(tmp_path, f"policy.reward={{kind: personal, profiles: {path}}}")


@pytest.mark.parametrize(
    "reward", ["{kind: verifier}", "{kind: desk_oracle}", "{kind: programmatic, rubric: process_shaping}"]
)
def test_a_reward_that_has_what_it_needs_passes(tmp_path: Path, reward: str) -> None:
    assert start(tmp_path, f"policy.reward={reward}") == ["synthesize", "cold_start", "policy"]


def judge_without(tmp_path: Path, *names: str, **files: str) -> Path:
    """A copy of the nano model without some files, with others."""
    folder = tmp_path / "judge"
    shutil.copytree(NANO, folder)
    for name in names:
        (folder / name).unlink()
    for name, text in files.items():
        (folder / f"{name}.json").write_text(text)
    return folder


REWARDS = {
    "reward": "{{kind: rubric_judge, judge: {}}}",
    "heldout": "{{kind: composite, parts: {{a: {{kind: rubric_judge, judge: {}}}}}, weights: {{a: 1}}}}",
}


@pytest.mark.parametrize("key", REWARDS)
@pytest.mark.parametrize(
    ("missing", "files", "says"),
    [
        (["config.json"], {}, "no config.json"),
        (["model.safetensors"], {}, "no weights in this folder"),
        (["tokenizer.json", "tokenizer_config.json"], {}, "cannot be loaded"),
        ([], {"axiomrm_judge": "{}"}, "axiomrm_judge.json: not a judge card"),
        ([], {"axiomrm_calibration": "[]"}, "axiomrm_calibration.json: not a calibration file"),
    ],
)
def test_a_judge_that_cannot_be_used_is_refused_at_once(
    tmp_path: Path, key: str, missing: list[str], files: dict[str, str], says: str
) -> None:
    folder = judge_without(tmp_path, *missing, **files)
    with pytest.raises(ConfigError, match=rf"^policy\.{key}: .*judge.*{says}"):
        start(tmp_path, f"policy.{key}={REWARDS[key].format(folder)}")
    assert not (tmp_path / "runs").exists()


def test_a_judge_that_was_trained_with_another_template_is_refused_at_once(tmp_path: Path) -> None:
    card = {
        "template": "compact",
        "template_hash": "0",
        "grammar": "x",
        "chat_template_hash": "0",
        "tokenizer_hash": "0",
    }
    folder = judge_without(tmp_path, axiomrm_judge=json.dumps(card))
    with pytest.raises(
        ConfigError, match=r"^policy\.reward: .*trained with template 'compact' and does not fit"
    ):
        start(tmp_path, f"policy.reward={REWARDS['reward'].format(folder)}")


def test_an_absent_judge_folder_is_refused_at_once_in_a_personal_reward_too(tmp_path: Path) -> None:
    profiles = tmp_path / "profiles.jsonl"
    profiles.write_text(
        '{"subject": "user-0001", "slots": {"stated.verbosity": 2}, "policy_training": true}\n'
    )
    reward = f"{{kind: personal, profiles: {profiles}, judge: {tmp_path}/no/judge}}"
    with pytest.raises(
        ConfigError, match=r"^policy\.reward: judge: model '.*/no/judge': there is no such folder"
    ):
        start(tmp_path, f"policy.reward={reward}")


def test_a_judge_that_has_all_its_files_passes(tmp_path: Path) -> None:
    assert "policy" in start(tmp_path, f"policy.reward={REWARDS['reward'].format(NANO)}")


def test_a_tracker_that_is_not_installed_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not there
    with pytest.raises(
        ConfigError, match=r"^policy\.tracker: tracker 'wandb' is not installed: pip install wandb"
    ):
        start(tmp_path, "policy.tracker=wandb")


@pytest.mark.parametrize(
    ("missing", "says"), [("config.json", "no model in"), ("model.safetensors", "no weights in this folder")]
)
def test_a_base_without_its_files_is_refused_at_once(tmp_path: Path, missing: str, says: str) -> None:
    with pytest.raises(ConfigError, match=f"^base.*{says}"):
        start(tmp_path, f"base={judge_without(tmp_path, missing)}")
    assert not (tmp_path / "runs").exists()


def test_a_name_that_is_neither_a_folder_nor_on_the_hub_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(
        ConfigError, match=r"^policy\.heldout: .*'judges/mine' \(no folder of this name here\) cannot"
    ):
        start(tmp_path, "policy.heldout={kind: rubric_judge, judge: judges/mine}")


def test_a_run_that_a_launcher_started_several_times_is_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"^WORLD_SIZE=2: the pipeline runs in one process"):
        start(tmp_path)
    assert not (tmp_path / "runs").exists()
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert "policy" in start(tmp_path)
