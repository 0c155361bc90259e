import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from axiomrm.config import RunConfig, load_config, save_config
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import GRPOConfig, ProcessReplayConfig

CONFIGS = Path(__file__).parents[2] / "configs"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.name)
def test_every_shipped_configuration_loads_and_survives_saving(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    save_config(config, tmp_path / "resolved.yaml")
    assert load_config(tmp_path / "resolved.yaml") == config


def test_there_are_configurations_to_load() -> None:
    assert {"quickstart.yaml", "micro.yaml", "smollm2.yaml"} <= {p.name for p in CONFIGS.glob("*.yaml")}


def test_an_exponent_without_a_point_is_a_number(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "name: a\npolicy: {train: {learning_rate: 5e-5}}\n"))
    assert config.policy.train.learning_rate == 5e-5
    assert load_config(write(tmp_path, "name: a\n"), ["policy.train.learning_rate=5e-5"]) == config


@pytest.mark.parametrize("text", ["no", "on", "12:30", "2026-01-12", "1e3", "0x1F", "007"])
def test_a_word_that_yaml_1_1_would_change_stays_text(text: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"name: ok\nbase: {text}\n")
    if text == "1e3":  # a number in YAML 1.2 too: refused where text is wanted, with the remedy
        with pytest.raises(ConfigError, match=r"run\.yaml:2: base: found 1000.0: .*put it in quotes"):
            load_config(path)
    else:
        assert load_config(path).base == text


@pytest.mark.parametrize("text", ["no", "1e3", "5e-5", "null", "12:30", "a: b", "'q'", "~", "é", ""])
def test_saved_text_is_read_back_as_the_same_text(text: str, tmp_path: Path) -> None:
    config = RunConfig(name="a", base=text)
    save_config(config, tmp_path / "c.yaml")
    assert load_config(tmp_path / "c.yaml") == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: a\npolcy: {}\n", r"run\.yaml:2: unknown key 'polcy'; did you mean 'policy'\?"),
        (
            "name: a\npolicy:\n  train:\n    iteratons: 3\n",
            r"run\.yaml:4: unknown key 'policy\.train\.iteratons'; did you mean 'iterations'\?",
        ),
        (
            "name: a\npolicy:\n  iterations: 3\n",
            r"run\.yaml:3: unknown key 'policy\.iterations'; it belongs at policy\.arms\.iterations or",
        ),
        (
            "name: a\npolicy:\n  train:\n    algorithm: {kind: grpo, clip_lo: 0.1}\n",
            r"run\.yaml:4: unknown key 'policy\.train\.algorithm\.clip_lo'; did you mean 'clip_low'\?",
        ),
        (
            "name: a\npolicy:\n  arms:\n    x:\n      group_sise: 2\n",
            r"run\.yaml:5: unknown key 'policy\.arms\.x\.group_sise'; did you mean 'group_size'\?",
        ),
        ("name: a\nseed: -1\n", r"run\.yaml:2: seed: found -1: input should be greater than or equal to 0"),
        ("name: a\nthreads: two\n", r"run\.yaml:2: threads: found 'two': input should be a valid integer"),
        ("seed: 1\n", r"run\.yaml: name is missing"),
        ("name: a\nseed: 1\nseed: 2\n", r"run\.yaml:3: key 'seed' stands twice"),
        ("name: a\nbase: !x y\n", r"run\.yaml:2: tag '!x' is not accepted"),
        ("name: &n a\nbase: *n\n", r"run\.yaml:2: not YAML: an alias is not accepted"),
        ("name: a\n  seed: 1\n", r"run\.yaml:2:3: not YAML: indented deeper than .* line 1, column 7"),
        (
            "name: a\npolicy: {x: 1\nseed: 1\n",
            r"run\.yaml:2:9: not YAML: '\{' at line 2, column 9 is not closed",
        ),
        ("- a\n", r"run\.yaml: holds \['a'\]; a configuration is a mapping"),
        ("name: ../x\n", r"run\.yaml:1: name: found '\.\./x'"),
        ("name: a\npolicy: {train: {algorithm: {kind: xpo}}}\n", r"run\.yaml:2: .*'process_replay', 'grpo'"),
        ("name: a\npolicy: {arms: {train: {}}}\n", r"run\.yaml:2: policy: an arm is named 'train'"),
        ("name: a\npolicy: {arms: {cold_start: {}}}\n", r"run\.yaml:2: policy: an arm is named 'cold_start'"),
        (
            "name: a\npolicy: {arms: {cold_start_cool: {}}}\n",
            r"an arm is named 'cold_start_cool', which is the c",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, text))


def test_all_findings_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(write(tmp_path, "name: a\nsed: 1\nthreads: 0\n"))
    assert "'sed'; did you mean 'seed'" in str(caught.value) and "threads: found 0" in str(caught.value)


def test_overrides_are_applied_in_order_and_create_sections(tmp_path: Path) -> None:
    path = write(tmp_path, "name: a\nevaluate: null\n".replace("evaluate: null\n", ""))
    config = load_config(
        path, ["evaluate.episodes=7", "evaluate.episodes=9", "policy.train.algorithm.kind=grpo"]
    )
    assert config.evaluate.episodes == 9
    assert config.policy.train.algorithm == GRPOConfig()
    assert load_config(path).policy.train.algorithm == ProcessReplayConfig()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("polcy.x=1", r"override 'polcy\.x=1': unknown key 'polcy'; did you mean 'policy'"),
        ("seed", r"override 'seed': expected key=value"),
        ("seed=a", r"override 'seed=a': seed: found 'a'"),
        ("a..b=1", r"override 'a\.\.b=1': expected key=value"),
        ("name.x=1", r"override 'name\.x=1': name is 'a', not a section"),
        ("seed=[1", r"override 'seed=\[1': not YAML"),
    ],
)
def test_a_wrong_override_is_named(override: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(write(tmp_path, "name: a\n"), [override])


KINDS = "name: a\npolicy: {train: {algorithm: {kind: process_replay, reuse: 1}}}\n"


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("policy.train.algorithm.kind=xpo", r"policy\.train\.algorithm: input tag 'xpo'"),
        (
            "policy.train.algorithm.kind=rloo",
            r"unknown key 'policy\.train\.algorithm\.reuse'; accepted: clip, kind",
        ),
        ("policy.heldout.kind=verifier", r"policy: heldout: kind 'verifier'"),
    ],
)
def test_a_section_of_the_file_that_an_override_breaks_is_not_blamed(
    override: str, says: str, tmp_path: Path
) -> None:
    found = rf"^override '{re.escape(override)}' \(section at .*run\.yaml:2\): {says}"
    with pytest.raises(ConfigError, match=found):
        load_config(write(tmp_path, KINDS), ["seed=3", override])


def test_a_fault_of_the_file_is_not_blamed_on_an_override(tmp_path: Path) -> None:
    text = "name: a\npolicy: {heldout: {kind: verifier}, train: {}}\n"
    with pytest.raises(ConfigError, match=r"run\.yaml:2: policy: heldout") as caught:
        load_config(write(tmp_path, text), ["policy.train.iterations=2"])
    assert "override" not in str(caught.value)


def test_a_quote_in_an_override_is_shown_as_typed_and_a_file_may_be_called_override(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"override \"seed='x\": not YAML: the quote ' at line 1, column 1"):
        load_config(write(tmp_path, "name: a\n"), ["seed='x"])
    path = tmp_path / "override.yaml"
    path.write_text("name: a\nseed: [1\n")
    with pytest.raises(
        ConfigError, match=r"override\.yaml:2:7: not YAML: '\[' at line 2, column 7 is not closed"
    ):
        load_config(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load_config(tmp_path / "none.yaml")


def test_a_base_that_is_a_folder_is_an_input_and_the_shipped_one_is_code(tmp_path: Path) -> None:
    assert RunConfig(name="a").input_paths() == {}
    assert RunConfig(name="a", base=str(tmp_path)).input_paths() == {"base": tmp_path}


@pytest.mark.parametrize("arm", ["a/b", "../evil", "a b", "x" * 101, ""])
def test_the_name_of_an_arm_is_a_folder_name(arm: str) -> None:
    with pytest.raises(ValidationError, match=r"policy\.arms"):
        RunConfig.model_validate({"name": "a", "policy": {"arms": {arm: {}}}})
    with pytest.raises(ValidationError, match="name"):
        RunConfig.model_validate({"name": arm})


HOSTILE = {
    "a control character": ("name: a\u0007b", "not YAML"),
    "a NUL byte": ("name: a\u0000b", "not YAML"),
    "deep lists": ("seed: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
    "open lists": ("seed: " + "[" * 20000, "nested too deeply"),
    "levels": ("seed: " + "[" * 60 + "]" * 60, "more than 50 levels"),
    "a long number": ("seed: " + "9" * 6000, "cannot be read as int"),
    "a tagged word": ("seed: !!int abc", "'abc' cannot be read as int"),
    "a tagged float": ("seed: !!float abc", "'abc' cannot be read as float"),
    "a tagged section": ("rm: !!python/object/apply:os.system {joint_share: 0.5}", "tag .* is not accepted"),
    "a tagged list": ("seed: !!set [1]", "tag .* is not accepted"),
}


@pytest.mark.parametrize(("text", "said"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_yaml_is_an_error_of_one_line_in_files_and_overrides(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError, match=said) as found:
        load_config(path)
    assert str(path) in str(found.value) and "\n" not in str(found.value)
    path.write_text("name: a\n")
    with pytest.raises(ConfigError, match=said):
        load_config(path, [text.replace(": ", "=", 1)])
