"""A from-scratch ChatML tokenizer and tiny models; nothing comes from a hub."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHATML = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXTS = [
    "the user asked for a refund of order 12 and the agent said yes",
    "the agent asks for the order number and opens the account",
] * 20


ONE_THEOREM = """
schema: atr/1
rubric: {id: one, version: 1.0.0}
defaults: {judge: {kind: llm}}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
theorems:
  - {id: th.done, derived_from: [ax.help], derivation: purpose, statement: The request is settled.}
"""


@pytest.fixture(scope="session")
def one_theorem() -> str:
    """A rubric of one criterion for a model judge, as YAML."""
    return ONE_THEOREM


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[..., Any]:
    """Builds a byte-level BPE tokenizer with the three ChatML control tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    def make(template: str | None = CHATML, **options: Any) -> Any:
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=420,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        backend.train_from_iterator(TEXTS, trainer)
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", **options
        )
        tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.fixture(scope="session")
def tiny_tokenizer(make_tokenizer: Callable[..., Any]) -> Any:
    return make_tokenizer()


@pytest.fixture(scope="session")
def make_model() -> Callable[..., Any]:
    """Builds a random two-layer model of a family, weights fixed by the seed."""
    import torch
    import transformers

    def make(family: str = "Llama", vocabulary: int = 420, **options: Any) -> Any:
        torch.manual_seed(0)
        config = getattr(transformers, f"{family}Config")(
            **{
                "vocab_size": vocabulary,
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 2048,
                **options,
            }
        )
        model = getattr(transformers, f"{family}ForCausalLM")(config)
        # The default initialisation is so flat that a wrong mask would hardly show.
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.mul_(8)
        return model.eval()

    return make


@pytest.fixture(scope="session")
def tiny_llama(make_model: Callable[..., Any]) -> Any:
    return make_model()


@pytest.fixture(scope="session")
def http() -> Any:
    """The module ``http_script.py`` beside this file: a scripted server and what it can answer."""
    path = Path(__file__).with_name("http_script.py")
    spec = importlib.util.spec_from_file_location("axiomrm_tests_http_script", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture()
def server(http: Any) -> Iterator[Any]:
    """A scripted server that is listening."""
    with http.serving(http.Script()) as script:
        yield script
