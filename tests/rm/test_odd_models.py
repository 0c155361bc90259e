"""Models whose positions, precision or wrapping make a batch differ from its prompts alone."""

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import Generation, Prompt, Sampling
from axiomrm.rm.engines.decoding import Writer
from axiomrm.rm.engines.plain import Plain
from axiomrm.rm.engines.row_seeds import RowSeed
from axiomrm.rm.engines.transformers import TransformersEngine

HOW = Sampling(max_new_tokens=6, temperature=0)


def asked(*lengths: int) -> list[Prompt]:
    """Three criteria of a conversation of each length."""
    return [Prompt(tuple(range(40, 40 + n)), (7, 20 + i, 9), (), "gamu") for n in lengths for i in range(3)]


def alone(model: Any, tokenizer: Any, prompts: list[Prompt]) -> list[Generation | Failed]:
    """Each prompt in a call of its own, through plain passes."""
    engine = TransformersEngine(model, tokenizer)
    engine._forward = Plain(model)
    return [engine.generate([prompt], HOW)[0] for prompt in prompts]


def test_positions_that_depend_on_the_longest_prompt_are_read_alone(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    rope = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "short_factor": [1.0] * 4,
        "long_factor": [4.0] * 4,
        "original_max_position_embeddings": 64,
    }
    there = {"original_max_position_embeddings": 64, "rope_parameters": rope, "pad_token_id": 0}
    model = make_model("Phi3", num_key_value_heads=4, **there)
    rng = random.Random(0)
    mixed = {i: rng.randrange(40, 400) for i in range(40, 140)}
    prompts = [
        Prompt(tuple(mixed.get(i, i) for i in p.ids), (7,), (), "gamu") for p in asked(20, 58, 62, 100)
    ]
    engine = TransformersEngine(model, tiny_tokenizer)
    assert engine.generate(prompts, HOW) == alone(model, tiny_tokenizer, prompts)


@pytest.mark.parametrize(
    ("family", "options"),
    [("Mistral", {"sliding_window": 16}), ("Llama", {}), ("GPT2", {"n_positions": 256})],
)
def test_an_adapter_s_wrapper_writes_what_the_adapted_model_writes(
    family: str, options: dict[str, Any], make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    peft = pytest.importorskip("peft")
    if family == "GPT2":
        import transformers

        small = transformers.GPT2Config(vocab_size=420, n_embd=32, n_head=4, n_layer=2, **options)
        model = transformers.GPT2LMHeadModel(small).eval()
    else:
        model = make_model(family, **options)
    targets = ["c_attn"] if family == "GPT2" else ["q_proj", "up_proj"]
    how = peft.LoraConfig(target_modules=targets, init_lora_weights=False)
    wrapped = peft.get_peft_model(model, how)
    prompts = asked(20, 30)
    found = TransformersEngine(wrapped, tiny_tokenizer).generate(prompts, HOW)
    assert found == alone(wrapped.get_base_model(), tiny_tokenizer, prompts)


@pytest.mark.parametrize("temperature", [1e-3, 1e-10, 1e-45, 1e-320])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_temperature_near_zero_is_greedy(temperature: float, dtype: torch.dtype) -> None:
    logits = torch.tensor([[1.0, -3.0, 40.0, 20.0], [90.0, 80.0, -90.0, 0.0]], dtype=dtype)
    writer = Writer(Sampling(1, temperature), [RowSeed(0, (1,), 0)], frozenset())
    draws = torch.tensor([0.0, 0.999], dtype=torch.float64)
    assert writer.pick(logits, draws).tolist() == [2, 0]


def test_a_prompt_that_no_model_reads_fails_alone(tiny_llama: Any, tiny_tokenizer: Any) -> None:
    engine = TransformersEngine(tiny_llama, tiny_tokenizer)
    good = asked(20)
    bad = [Prompt((), (), (), "gamu"), Prompt((5,), (420,), (), "gamu")]
    found = engine.generate([*bad, *good], HOW)
    assert all(isinstance(row, Failed) for row in found[:2])
    assert found[2:] == engine.generate(good, HOW)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("plain", [False, True])
def test_logits_that_are_no_numbers_write_nothing(
    make_model: Any, tiny_tokenizer: Any, plain: bool, temperature: float
) -> None:
    engine = TransformersEngine(make_model(), tiny_tokenizer)
    if plain:
        engine._forward = Plain(engine.model)
    with torch.no_grad():
        engine.model.lm_head.weight[3] = math.nan
    found = engine.generate(asked(9), Sampling(4, temperature))
    assert [(r.kind, r.detail) for r in found if isinstance(r, Failed)] == [
        ("engine_error", "the model's logits are not finite")
    ] * 3
