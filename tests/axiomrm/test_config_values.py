"""Values that look right and are not: booleans where numbers are wanted, numbers beyond all use."""

from pathlib import Path

import pytest
from pydantic import Field, ValidationError

from axiomrm.config import RunConfig, load_config
from axiomrm.data.settings import Settings
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.engines.config import MismatchLimits, VllmEngine
from axiomrm.policy_opt.monitoring.config import MonitorConfig
from axiomrm.policy_opt.rewards.config import CompositeReward
from axiomrm.rm.training.config import LoraSettings, StageConfig

PARTS = "{kind: composite, parts: {a: {kind: verifier}}, weights: {a: true}}"


def loaded(tmp_path: Path, *overrides: str) -> RunConfig:
    path = tmp_path / "run.yaml"
    path.write_text("name: a\n", encoding="utf-8")
    return load_config(path, overrides)


@pytest.mark.parametrize(
    "key",
    [
        "seed",
        "threads",
        "synthesize.flawed_demos",
        "cold_start.learning_rate",
        "rm.general.train.max_train_tokens",
        "rm.rubric.train.lora.rank",
        "policy.train.iterations",
        "policy.train.learning_rate",
        "policy.train.kl.initial_beta",
        "policy.arms.x.monitors.warmup",
        "policy.train.rollout.temperature",
    ],
)
@pytest.mark.parametrize("word", ["true", "false"])
def test_a_boolean_is_no_number(key: str, word: str, tmp_path: Path) -> None:
    said = rf"override '{key}={word}': {key}: found {word.title()}: true and false are no numbers; write a number$"
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, f"{key}={word}")


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("rm.joint_size=[true, 8]", "rm.joint_size"),
        (f"policy.reward={PARTS}", "weights"),
        ("policy.train.algorithm={kind: rloo, clip: true}", "policy.train.algorithm.clip"),
    ],
)
def test_a_boolean_inside_a_list_a_table_or_a_union_is_no_number(
    override: str, key: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"{key}.*: found True: true and false are no numbers"):
        loaded(tmp_path, override)


def test_a_boolean_is_named_together_with_faults_of_other_sections(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "evaluate.episodes=true", "evaluate.best_of_k=false", "cold_start.patience=0")
    assert str(caught.value).count("no numbers") == 2
    assert "cold_start.patience: found 0" in str(caught.value)


def test_a_boolean_is_named_together_with_every_other_fault(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "seed=true", "threads=0", "policy.on_hack=1", "policy.train.algorithm=grpo")
    said = ["seed: found True", "threads: found 0", "unknown key 'policy.on_hack'", "'grpo' is a word"]
    assert [part for part in said if part not in str(caught.value)] == []
    assert len(str(caught.value).split("; override ")) == len(said)


def test_a_needed_number_that_is_a_boolean_is_not_called_missing() -> None:
    with pytest.raises(ValidationError) as caught:
        CompositeReward.model_validate({"parts": {"a": {"kind": "verifier"}}, "weights": {"a": True}})
    assert [error["loc"] for error in caught.value.errors()] == [("weights", "a")]


@pytest.mark.parametrize(
    ("model", "field"),
    [
        (RunConfig, "seed"),
        (PolicyConfig, "iterations"),
        (MonitorConfig, "warmup"),
        (MismatchLimits, "mean"),
        (StageConfig, "learning_rate"),
        (LoraSettings, "last_layers"),
    ],
)
def test_python_is_refused_as_yaml_is(model: type[RunConfig], field: str) -> None:
    with pytest.raises(ValidationError, match="true and false are no numbers"):
        model.model_validate({"name": "a", field: True} if model is RunConfig else {field: True})


def test_a_switch_takes_a_boolean_and_a_real_number_an_integer(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        "policy.train.accelerate=true",
        "rm.general.train.gradient_checkpointing=true",
        "policy.train.learning_rate=1",
        "rm.joint_size=[2, 8]",
        "policy.train.rollout.engine={kind: vllm, options: {enforce_eager: true}}",
    )
    assert found.policy.train.accelerate and found.rm.general.train.gradient_checkpointing
    assert found.policy.train.learning_rate == 1.0
    assert isinstance(engine := found.policy.train.rollout.engine, VllmEngine)
    assert engine.options == {"enforce_eager": True}


@pytest.mark.parametrize(
    "key",
    [
        "policy.train.iterations",
        "policy.train.group_size",
        "policy.train.tasks_per_iteration",
        "policy.train.rollout.max_episode_tokens",
        "policy.train.rollout.max_turn_tokens",
        "policy.train.tokens_per_forward",
        "rm.general.train.max_length",
        "rm.personal.train.batch_tokens",
        "cold_start.tokens_per_step",
        "synthesize.heldout_tasks",
        "evaluate.episodes",
        "threads",
        "rm.rubric.train.epochs",
        "rm.general.train.lora.rank",
        "policy.train.algorithm.minibatches",
        "policy.train.algorithm.reuse",
        "policy.train.learning_rate",
        "policy.train.rollout.temperature",
        "cold_start.learning_rate",
        "rm.general.train.learning_rate",
        "evaluate.cool_temperature",
    ],
)
def test_a_number_with_too_many_noughts_is_refused(key: str, tmp_path: Path) -> None:
    said = rf"{key}: found 100000000: input should be less than or equal to"
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, "policy.train.algorithm.kind=process_replay", f"{key}=100000000")


@pytest.mark.parametrize("kind", ["grpo", "rloo", "gigpo", "ppo", "best_of_k"])
def test_minibatches_with_too_many_noughts_are_refused_of_every_algorithm(kind: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"minibatches: found 100000000: input should be less than"):
        loaded(tmp_path, f"policy.train.algorithm={{kind: {kind}, minibatches: 100000000}}")


def test_an_iteration_of_more_rollouts_than_memory_holds_is_refused(tmp_path: Path) -> None:
    said = (
        r"tasks_per_iteration=10000 times group_size=1000 are 10000000 rollouts an iteration; at most 1000000"
    )
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, "policy.train.tasks_per_iteration=10000", "policy.train.group_size=1000")


def test_more_kept_rollouts_than_a_group_has_are_refused(tmp_path: Path) -> None:
    kept = "policy.train.algorithm={kind: best_of_k, keep: 9}"
    said = r"algorithm\.keep=9: a group has group_size=8 rollouts; keep at most as many"
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, kept, "policy.train.group_size=8")
    assert loaded(tmp_path, kept, "policy.train.group_size=9").policy.train.group_size == 9


def test_a_large_run_is_not_refused(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        "policy.train.iterations=1000000",
        "policy.train.rollout.max_episode_tokens=1000000",
        "rm.rubric.train.max_train_tokens=100000000000",
    )
    assert found.policy.train.iterations == 1_000_000


class Mixed(Settings):
    """A field that takes both, and one that takes numbers at some depth."""

    either: int | bool = 0
    deep: dict[str, list[float | None]] = Field(default_factory=dict)


def test_a_field_that_takes_both_takes_a_boolean_and_a_deep_one_names_the_place() -> None:
    assert Mixed(either=True).either is True
    with pytest.raises(ValidationError) as caught:
        Mixed.model_validate({"deep": {"a": [1, None, False]}})
    assert [error["loc"] for error in caught.value.errors()] == [("deep", "a", 2)]


@pytest.mark.parametrize("word", [".inf", "-.inf", ".nan"])
@pytest.mark.parametrize(
    "key", ["policy.train.learning_rate", "cold_start.learning_rate", "policy.train.kl.initial_beta"]
)
def test_infinity_and_nan_are_no_settings(key: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=key):
        loaded(tmp_path, f"{key}={word}")
