"""Rows of judge training: what is trained, what is dropped, and that prompts are those of scoring."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.grammar import parse
from axiomrm.rm.prompt import Criterion, JudgePrompter
from axiomrm.rm.training.packing import TreeRow, collate, single_rows
from axiomrm.rm.training.row_set import IGNORED, JudgeRow
from axiomrm.rm.training.rows import make_rows, usable_pair

CASES = Path(__file__).parents[2] / "cases" / "dev_cases.jsonl"


def case(name: str) -> dict[str, Any]:
    for line in CASES.read_text(encoding="utf-8").splitlines():
        found: dict[str, Any] = json.loads(line)
        if found["id"] == name:
            return found
    raise AssertionError(f"no case {name}")


def questions(number: int = 0, turns: int = 3) -> list[JudgeExample]:
    messages = []
    for t in range(turns):
        messages.append(Message(role="user", content=f"Where is order {number}{t}?"))
        messages.append(Message(role="assistant", content=f"Order {number}{t} is here."))
    recording = Trajectory(messages=tuple(messages), id=f"c{number}")
    return [
        JudgeExample(
            recording, t, name, f"Is it {name}?", "Y", "It says so.", ((t, f"Order {number}{t} is"),)
        )
        for t in range(turns)
        for name in ("late", "kind")
    ]


def trained_text(tokenizer: Any, row: JudgeRow) -> str:
    ids = [i for i, on in zip(row.input_ids, row.completion_mask, strict=True) if on]
    return str(tokenizer.decode(ids, skip_special_tokens=False))


def test_a_critique_row_trains_notes_quotes_verdict_and_end_and_nothing_of_the_prompt(tokenizer: Any) -> None:
    wanted = case("D-TR-02")["expect"]
    prompter = JudgePrompter(tokenizer, template="compact")
    example = questions()[0]
    row = make_rows([example], prompter, direct_share=0).rows[0]
    nonce = tokenizer.decode(row.input_ids).rpartition("verdict[")[2].partition("]")[0]
    assert trained_text(tokenizer, row) == (
        f'notes: It says so.\nquote t1: "Order 00 is"\nverdict[{nonce}]=Y<|end|>'
    )
    assert sum(row.completion_mask[: row.start]) == wanted["prompt_tokens_trained"]
    # notes first, then the label, then the end token, which is the last of the row
    assert row.start < row.label_at == len(row.input_ids) - 2
    assert tokenizer.decode([row.input_ids[row.label_at]]) == "Y"


def test_a_direct_row_trains_the_label_and_the_end_alone(tokenizer: Any) -> None:
    row = make_rows(questions()[:1], JudgePrompter(tokenizer, template="compact"), direct_share=1).rows[0]
    assert trained_text(tokenizer, row) == "Y<|end|>"
    assert row.start == row.label_at


def test_a_row_begins_with_the_ids_of_the_scoring_prompt_and_its_answer_parses(tokenizer: Any) -> None:
    prompter = JudgePrompter(tokenizer)
    example = questions()[2]
    row = make_rows([example], prompter, direct_share=0).rows[0]
    text = tokenizer.decode(row.input_ids)
    nonce = text.rpartition("verdict[")[2].partition("]")[0]
    prompt = prompter.render(
        example.trajectory,
        Criterion(example.criterion_id, example.ask),
        example.turn,
        "critique",
        nonce=nonce,
    )
    assert not isinstance(prompt, Failed)
    assert row.input_ids[: row.start] == prompt.ids
    answer = parse(trained_text(tokenizer, row).removesuffix("<|end|>"), ("Y", "N", "X"), nonce)
    assert not isinstance(answer, Failed) and answer.label == "Y" and answer.quotes[0].turn == 1


@pytest.mark.parametrize("pad_is_end", [True, False])
def test_padding_is_masked_and_the_end_is_not_even_where_they_are_one_token(pad_is_end: bool) -> None:
    found = case("D-TR-03")
    ids, mask = found["input"]["ids"], found["input"]["attention_mask"]
    real = sum(mask)
    start = found["input"]["completion_start"]
    row = JudgeRow(tuple(ids[:real]), (0,) * start + (1,) * (real - start), start, "direct")
    longer = JudgeRow(tuple(range(20, 26)), (0, 0, 0, 0, 0, 1), 5, "direct")
    pad = found["input"]["pad_id"] if pad_is_end else 0
    batch = collate(single_rows([row, longer]), pad, packed=False)
    expected = [label for label in found["expect"]["labels"][:real]]
    # our padding stands on the left
    assert batch["labels"][0].tolist() == [IGNORED, IGNORED, *expected]
    assert batch["attention_mask"][0].tolist() == [0, 0, 1, 1, 1, 1]
    assert batch["position_ids"][0].tolist() == [0, 0, 0, 1, 2, 3]


def test_sides_that_are_equal_or_too_long_after_truncation_are_dropped() -> None:
    found = case("D-TR-04")
    limit = found["input"]["max_tokens"]
    reasons = [usable_pair(p["chosen"], p["rejected"], limit) for p in found["input"]["pairs"]]
    assert [i for i, reason in enumerate(reasons) if reason is None] == found["expect"]["kept"]
    assert reasons[0] == "too_long"
    assert usable_pair([1, 2], [1, 2], 9) == "identical"


def test_long_and_doubled_rows_and_turns_that_do_not_exist_are_dropped_and_counted(tokenizer: Any) -> None:
    one = questions()[0]
    nowhere = JudgeExample(one.trajectory, 9, "late", "Is it late?", "Y")
    made = make_rows([one, one, nowhere], JudgePrompter(tokenizer, template="compact"), direct_share=1)
    assert [(d.index, d.reason) for d in made.dropped] == [(1, "identical"), (2, "bad_input")]
    assert made.counts()["dropped"] == {"identical": 1, "bad_input": 1}
    assert made.counts()["mode"] == {"direct": 1}
    length = len(made.rows[0].input_ids)
    prompter = JudgePrompter(tokenizer, template="compact")
    assert len(make_rows([one], prompter, direct_share=1, max_tokens=length).rows) == 1
    short = make_rows([one], prompter, direct_share=1, max_tokens=length - 1)
    assert [d.reason for d in short.dropped] == ["too_long"] and short.direct_share is None


def test_the_direct_share_is_met_and_examples_without_notes_count_towards_it(tokenizer: Any) -> None:
    prompter = JudgePrompter(tokenizer, template="compact")
    several = [q for n in range(4) for q in questions(n)]  # 24 examples with notes
    assert make_rows(several, prompter, direct_share=0.5).direct_share == 0.5
    silent = [
        JudgeExample(q.trajectory, q.turn, "s" + q.criterion_id, q.ask + " Really?", "N") for q in several[:8]
    ]
    made = make_rows(several + silent, prompter, direct_share=0.5)
    assert made.direct_share == 0.5
    assert all(row.mode == "direct" for row in made.rows if row.criterion_id.startswith("s"))
    assert make_rows(silent, prompter, direct_share=0).direct_share == 1


def test_the_same_seed_gives_the_same_rows_and_another_one_other_modes_and_nonces(tokenizer: Any) -> None:
    prompter = JudgePrompter(tokenizer, template="compact")
    several = [q for n in range(3) for q in questions(n)]
    a, b, c = (make_rows(several, prompter, seed=s) for s in (0, 0, 1))
    assert a.data_hash() == b.data_hash() != c.data_hash()
    assert {row.unit for row in a.rows} == {row.unit for row in c.rows}
    assert len({row.unit for row in a.rows}) == 3


def test_a_label_outside_its_set_is_an_error_that_names_the_example(tokenizer: Any) -> None:
    wrong = JudgeExample(questions()[0].trajectory, 0, "late", "Is it late?", "maybe")
    with pytest.raises(DataError, match=r"example 0 \('late'\): label 'maybe'"):
        make_rows([wrong], JudgePrompter(tokenizer))
    with pytest.raises(ConfigError, match="direct_share"):
        make_rows([], JudgePrompter(tokenizer), direct_share=2)


def test_collating_nothing_but_equal_lengths_needs_no_padding() -> None:
    tree = TreeRow()
    tree.add(JudgeRow((5, 6, 7), (0, 0, 1), 2, "direct", weight=2.0), 0)
    batch = collate([tree, tree], 0)
    assert batch["attention_mask"].shape == (2, 1, 3, 3)
    assert batch["attention_mask"][0, 0].tolist() == torch.ones(3, 3).tril().bool().tolist()
    assert batch["label_weights"][0].tolist() == [0, 0, 2.0]
