"""A union of kinds, given as a plain word or without its kind: the message says what to write."""

import re
from pathlib import Path

import pytest

from axiomrm.config import load_config
from axiomrm.errors import ConfigError

ALGORITHMS = "process_replay, grpo, rloo, gigpo, ppo, best_of_k"


def refusal(tmp_path: Path, *overrides: str, text: str = "name: a\n") -> str:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("policy.train.algorithm=grpo", "'grpo' is a word; write {kind: grpo}"),
        ("policy.arms.x.algorithm=ppo", "'ppo' is a word; write {kind: ppo}"),
        ("policy.train.rollout.engine=vllm", "'vllm' is a word; write {kind: vllm}"),
        ("policy.reward=verifier", "'verifier' is a word; write {kind: verifier}"),
        ("policy.heldout=rubric_judge", "'rubric_judge' is a word; write {kind: rubric_judge}"),
        ("policy.reward=labels", "'labels' is a word; write {kind: labels, path: …}"),
        (
            "policy.train.algorithm=gropo",
            f"'gropo' is a word; write {{kind: …}} with one of {ALGORITHMS}; did you mean 'grpo'?",
        ),
        ("policy.train.rollout.engine=x", "'x' is a word; write {kind: …} with one of transformers, vllm"),
    ],
)
def test_a_word_in_place_of_a_union(override: str, said: str, tmp_path: Path) -> None:
    key = override.partition("=")[0]
    assert refusal(tmp_path, override) == f"override {override!r}: {key}: {said}"


def test_a_word_is_named_with_its_line_and_inside_a_sum_of_rewards(tmp_path: Path) -> None:
    parts = "{kind: composite, parts: {a: verifier}, weights: {a: 1}}"
    said = refusal(tmp_path, text=f"name: a\npolicy:\n  reward: {parts}\n")
    place = re.escape(str(tmp_path / "run.yaml"))
    assert re.fullmatch(
        rf"{place}:3: policy\.reward\.parts\.a: 'verifier' is a word; write \{{kind: verifier\}}", said
    )


def test_a_union_without_its_kind(tmp_path: Path) -> None:
    said = refusal(tmp_path, "policy.train.algorithm.reuse=1")
    assert said.endswith(f"policy.train.algorithm: kind is missing; one of {ALGORITHMS}")


def test_a_word_where_a_plain_section_is_wanted_names_the_keys_of_the_section(tmp_path: Path) -> None:
    said = refusal(tmp_path, "policy.train.kl=on")
    assert said.endswith(
        "policy.train.kl: found 'on'; write a section {key: value} with some of "
        "enabled, initial_beta, target_nats_per_token"
    )
