"""A model that is also something else: trained, adapted, patched, asked by two threads at once."""

import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from axiomrm.rm.engines.base import Generation, Prompt, Sampling
from axiomrm.rm.engines.transformers import TransformersEngine

HOW = Sampling(max_new_tokens=6, temperature=0)


def asked(first: int = 40, count: int = 5) -> list[Prompt]:
    """Some criteria of one conversation, of unequal length."""
    return [
        Prompt(tuple(range(first, first + 40)), (7, *range(20, 22 + i)), (), "gamu") for i in range(count)
    ]


def test_a_model_in_training_judges_without_dropout_and_goes_on_training(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model("Phi", resid_pdrop=0.5, embd_pdrop=0.5, num_key_value_heads=4)
    engine = TransformersEngine(model, tiny_tokenizer)
    before = engine.generate(asked(), HOW)
    model.train()
    model.lm_head.eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert engine.generate(asked(), HOW) == before
    assert model.training and model.model.layers[0].training and not model.lm_head.training


def test_weights_changed_through_their_data_are_followed(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer)
    before = engine.generate(asked(), HOW)
    for parameter in model.parameters():
        parameter.data.mul_(-1.3)  # as merged adapters do: no version is counted
    after = engine.generate(asked(), HOW)
    assert after != before
    assert after == TransformersEngine(model, tiny_tokenizer).generate(asked(), HOW)


def test_weights_made_in_inference_mode_can_write(
    make_model: Callable[..., Any], tiny_llama: Any, tiny_tokenizer: Any
) -> None:
    with torch.inference_mode():
        model = make_model()
    found = TransformersEngine(model, tiny_tokenizer).generate(asked(), HOW)
    assert found == TransformersEngine(tiny_llama, tiny_tokenizer).generate(asked(), HOW)


def test_a_layer_with_a_forward_of_its_own_keeps_it(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model()
    layer, used = model.lm_head, []

    def own(x: torch.Tensor) -> torch.Tensor:
        used.append(x.shape)
        return torch.nn.functional.linear(x, layer.weight)

    layer.forward = own
    TransformersEngine(model, tiny_tokenizer).generate(asked(), HOW)
    assert layer.forward is own and len(used) >= HOW.max_new_tokens


def test_threads_that_share_an_engine_get_what_each_gets_alone(
    make_model: Callable[..., Any], tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer)
    calls = [asked(first) for first in (40, 90, 140)]
    expected = [engine.generate(prompts, HOW) for prompts in calls]
    used = engine.usage["prompt_tokens"]
    found: list[Any] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def ask(n: int) -> None:
        found.extend(engine.generate(calls[n], HOW) == expected[n] for _ in range(8))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    assert found == [True] * 24
    assert model.config._attn_implementation != "axiomrm_branching"
    assert engine.usage["prompt_tokens"] == 9 * used
    assert all(isinstance(row, Generation) for rows in expected for row in rows)
