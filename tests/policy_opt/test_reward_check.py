"""A run with a reward that cannot be built ends before its first stage."""

from pathlib import Path
from typing import Any

import pytest

from axiomrm.config import load_config
from axiomrm.errors import ConfigError
from axiomrm.runner import Stage, run_pipeline
from axiomrm.stages import policy


def start(tmp_path: Path, *settings: str) -> list[str]:
    """The names of the stages that ran: two that do nothing, the second with the check of the real one."""
    ran: list[str] = []

    def body(context: Any) -> dict[str, int]:
        ran.append(context.stage)
        return {"n": 1}

    path = tmp_path / "run.yaml"
    path.write_text("name: a\n")
    stages = [Stage("synthesize", body), Stage("policy", body, policy.check)]
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
        ConfigError, match=r"^policy\.reward: .*profiles\.jsonl: no usable profile among 1 lines"
    ):
        start(tmp_path, f"policy.reward={{kind: personal, profiles: {path}}}")


@pytest.mark.parametrize(
    "reward", ["{kind: verifier}", "{kind: desk_oracle}", "{kind: programmatic, rubric: process_shaping}"]
)
def test_a_reward_that_has_what_it_needs_passes(tmp_path: Path, reward: str) -> None:
    assert start(tmp_path, f"policy.reward={reward}") == ["synthesize", "policy"]
