from typing import Any

import pytest

from axiomrm.errors import ConfigError
from axiomrm.rm.labels import BINARY, Label, choice_labels, label_set, label_table, level_labels
from axiomrm.rm.prompt import JudgePrompter


def test_the_lead_in_is_the_longest_common_prefix() -> None:
    table = label_table({"Y": [9, 3, 31], "N": [9, 3, 32], "X": [9, 3, 33]})
    assert table.lead_in_ids == (9, 3)
    assert table.label_ids == {"Y": 31, "N": 32, "X": 33}


@pytest.mark.parametrize(
    "encodings",
    [
        {"Y": [1, 2], "N": [1, 2], "X": [1, 3]},  # two labels, one id
        {"Y": [1, 2], "YN": [1, 2, 4], "X": [1, 3]},  # two tokens
        {"Y": [1], "N": [1, 5]},  # one adds nothing
    ],
)
def test_labels_that_are_no_distinct_single_tokens_are_refused(encodings: dict[str, list[int]]) -> None:
    with pytest.raises(ConfigError, match="one distinct token"):
        label_table(encodings)


def test_values_outside_the_unit_interval_and_doubled_tokens_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"\[0, 1\]"):
        label_set([Label("Y", 1.5), Label("N", 0.0)])
    with pytest.raises(ConfigError, match="distinct"):
        label_set([Label("Y", 1.0), Label("Y", 0.0)])
    with pytest.raises(ConfigError, match="distinct"):
        label_set([Label("X", 1.0), Label("Y", 0.0)])
    with pytest.raises(ConfigError, match="8 anchors"):
        level_labels([(i / 7, "") for i in range(8)])


def test_every_set_ends_in_the_cannot_assess_label_without_a_value() -> None:
    assert BINARY.tokens == ("Y", "N", "X")
    assert BINARY.values == {"Y": 1.0, "N": 0.0}
    options = choice_labels([("email", 1.0, "by mail"), ("phone", 0.0, "by phone")])
    assert options.names == {"A": "email", "B": "phone", "X": "X"}


def test_all_standard_sets_are_single_tokens_in_a_from_scratch_vocabulary(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    nonce = prompter.nonce_of("anything")
    letters = choice_labels([(str(i), i / 24, "") for i in range(25)])
    for labels in (BINARY, letters, level_labels([(i / 6, "") for i in range(7)])):
        table = prompter.table(labels, nonce)
        assert tiny_tokenizer.decode(table.lead_in_ids) == f"verdict[{nonce}]="
        assert [tiny_tokenizer.decode([i]) for i in table.label_ids.values()] == list(labels.tokens)


def test_a_vocabulary_that_merges_the_lead_in_with_a_label_is_refused_at_load() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = {c: i for i, c in enumerate(map(chr, range(256)))}
    vocabulary = {**letters, "=Y": 256, "<e>": 257}
    backend = Tokenizer(models.BPE(vocabulary, [("=", "Y")]))
    backend.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<e>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}<e>{% endfor %}"
    with pytest.raises(ConfigError, match="'N'"):
        JudgePrompter(tokenizer)
