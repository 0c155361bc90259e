"""A tiny tokenizer and a tiny Llama, and a small conversation with questions about it."""

from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerFast

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.trajectory import Message, Trajectory

TEMPLATE = (
    "{%- for m in messages -%}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)


def make_tokenizer(pad: str = "<|pad|>") -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    special = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["verdict[ the order is t1 notes: quote none\n"] * 4, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        eos_token="<|end|>",
        additional_special_tokens=special[2:],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def make_model(shape: str = "llama", seed: int = 0) -> Any:
    """A two-layer model; ``mistral`` sees a window of 8 tokens."""
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        MistralConfig,
        MistralForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    sizes: dict[str, Any] = {
        "vocab_size": 400,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 2048,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "bos_token_id": None,
    }
    torch.manual_seed(seed)
    model = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**sizes)),
        "qwen": lambda: Qwen2ForCausalLM(Qwen2Config(**sizes)),
        "mistral": lambda: MistralForCausalLM(MistralConfig(**sizes, sliding_window=8)),
    }[shape]()
    model.eval()
    return model


def conversation(number: int = 0, turns: int = 3) -> Trajectory:
    messages = []
    for t in range(turns):
        messages.append(Message(role="user", content=f"Where is order {number}{t}?"))
        messages.append(
            Message(role="assistant", content=f"Order {number}{t} is {'late' if t % 2 else 'here'}.")
        )
    return Trajectory(messages=tuple(messages), id=f"c{number}")


def questions(number: int = 0, turns: int = 3) -> list[JudgeExample]:
    """Two questions a turn and one about the whole, half of them with notes."""
    recording = conversation(number, turns)
    made = []
    for turn in [*range(turns), None]:
        for criterion in ("late", "order"):
            at = turns - 1 if turn is None else turn
            label = ("Y" if at % 2 else "N") if criterion == "late" else "Y"
            quote = f"Order {number}{at} is"
            made.append(
                JudgeExample(
                    recording,
                    turn,
                    criterion,
                    f"Does the reply say {criterion}?",
                    label,
                    notes=f"It says order {at}.",
                    quotes=((at, quote),),
                    source="oracle",
                )
            )
    return made


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return make_tokenizer()


@pytest.fixture(scope="session")
def examples() -> Any:
    return questions


@pytest.fixture(scope="session")
def tiny() -> Any:
    return make_model
