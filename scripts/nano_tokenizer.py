"""Train the nano base model's tokenizer: byte-level BPE, digits one by one, a chat template of single tokens."""

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
SPECIAL = ("<|pad|>", "<|end|>", *ROLES, "<|call|>")
PIECES = r'"[:,] "|\[t\p{N}+| (?:system|user|assistant|call|result)\]| ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+'
"""JSON joints, turn markers, words with their blank, single digits, punctuation, blanks: nothing is lost."""
TEMPLATE = (
    "{%- for m in messages -%}<|{{ m['role'] }}|>{{ m['content'] }}"
    "{%- for c in m.get('tool_calls') or [] -%}<|call|>{{ c['function']['name'] }} {{ c['function']['arguments'] | tojson }}{%- endfor -%}"
    "<|end|>{%- endfor -%}{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int = 2048) -> PreTrainedTokenizerFast:
    """A lossless tokenizer with ``<|pad|>`` and ``<|end|>`` as different ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=[*ROLES, "<|call|>"],
        chat_template=TEMPLATE,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
    )
