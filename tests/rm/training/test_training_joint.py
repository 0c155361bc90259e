"""Joint rows: the prompt of joint scoring, an answer that its parser reads, and which examples they hold."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from axiomrm.config import load_config
from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.errors import ConfigError
from axiomrm.rm import Criterion
from axiomrm.rm.card import read_judge_card
from axiomrm.rm.engines.base import Prompt
from axiomrm.rm.grammar import Answer, lead_in, parse_items
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.templating import parse_template
from axiomrm.rm.training.config import StageConfig
from axiomrm.rm.training.joint import joint_groups
from axiomrm.rm.training.losses import reads_trees
from axiomrm.rm.training.packing import single_rows, tree_rows
from axiomrm.rm.training.row_set import JudgeRow
from axiomrm.rm.training.rows import make_rows
from axiomrm.rm.training.stages import train_stage
from axiomrm.stage_context import StageContext
from axiomrm.stages.judging import stage_config


def asked(number: int, count: int, turns: int = 2) -> list[JudgeExample]:
    """``count`` questions about each turn; the even ones are answered Y."""
    messages = []
    for t in range(turns):
        messages.append(Message(role="user", content=f"Where is {number}?"))
        messages.append(Message(role="assistant", content=f"Order {number}{t} is here."))
    recording = Trajectory(messages=tuple(messages), id=f"c{number}")
    return [
        JudgeExample(recording, t, f"c{c}", f"Is it {c}?", "NY"[c % 2 == 0], f"it is {c}", ((t, "is here."),))
        for t in range(turns)
        for c in range(count)
    ]


def joint_rows(examples: list[JudgeExample], prompter: JudgePrompter, **options: Any) -> list[JudgeRow]:
    made = make_rows(examples, prompter, joint_share=1, **options)
    return [row for row in made.rows if row.others]


def criteria(row: JudgeRow) -> list[Criterion]:
    return [Criterion(item.criterion_id, f"Is it {item.criterion_id[1:]}?") for item in row.items]


@pytest.mark.parametrize("template", ["compact", "default"])
@pytest.mark.parametrize("direct", [True, False])
def test_a_joint_row_is_the_joint_prompt_and_an_answer_that_is_read_item_by_item(
    tokenizer: Any, template: str, direct: bool
) -> None:
    prompter = JudgePrompter(tokenizer, template=template)
    examples = asked(7, 5, turns=1)
    (row,) = joint_rows(examples, prompter, direct_share=int(direct), joint_size=(4, 4))
    nonce = prompter.decode(row.input_ids).rpartition("verdict[")[2].partition(".")[0]
    mode: Any = "direct" if direct else "critique"
    prompt = prompter.render(examples[0].trajectory, criteria(row), 0, mode, nonce=nonce)
    assert isinstance(prompt, Prompt) and row.input_ids[: row.start] == prompt.ids
    answer = prompter.decode(row.input_ids[row.start :])
    assert all(row.completion_mask[row.start :])
    assert answer.endswith("<|end|>") and row.mode == mode
    found, strangers = parse_items(answer.removesuffix("<|end|>"), ("Y", "N", "X"), nonce, range(1, 5))
    assert strangers == 0
    for number, item in enumerate(row.items, 1):
        said = found[number]
        assert (
            isinstance(said, Answer) and said.label == item.label == "NY"[int(item.criterion_id[1:]) % 2 == 0]
        )
        assert prompter.decode([row.input_ids[item.at]]) == item.label
        assert prompter.decode(row.input_ids[: item.at]).endswith(lead_in(nonce, number))
        assert direct or (f"{number}. it is {item.criterion_id[1:]}" in said.notes and said.quotes)
    lines = "".join(f"{lead_in(nonce, n)}{i.label}\n" for n, i in enumerate(row.items, 1)).removesuffix("\n")
    if direct:
        assert answer == lines + "<|end|>"
        assert row.input_ids[row.start : -1] == tuple(prompter.encode(lines))


def test_questions_and_orders_differ_between_rows_and_repeat_with_the_seed() -> None:
    examples = [e for number in range(200) for e in asked(number, 6, turns=1)]
    groups = joint_groups(examples, 0.5, (2, 4), 0)
    assert groups == joint_groups(examples, 0.5, (2, 4), 0) != joint_groups(examples, 0.5, (2, 4), 1)
    orders = [tuple(examples[i].criterion_id for i in members) for members in groups]
    assert {len(order) for order in orders} == {2, 3, 4} and len(set(orders)) > 80
    assert all(len(set(order)) == len(order) for order in orders)
    assert {order.index("c0") for order in orders if "c0" in order} == {0, 1, 2, 3}
    assert len({examples[members[0]].trajectory.id for members in groups}) == len(groups)
    assert all(len({examples[i].trajectory.id for i in members}) == 1 for members in groups)


def test_the_share_is_met_where_units_have_enough_questions_and_no_example_is_lost(tokenizer: Any) -> None:
    prompter = JudgePrompter(tokenizer, template="compact")
    examples = [e for number in range(40) for e in asked(number, 5)]
    made = make_rows(examples, prompter, joint_share=0.4, joint_size=(2, 5), direct_share=1)
    assert made.joint_share == pytest.approx(0.4, abs=0.02)
    items = Counter(i.criterion_id for row in made.rows for i in row.items)
    assert items == Counter(e.criterion_id for e in examples) == Counter(made.counts()["criterion_id"])
    assert set(made.counts()["questions"]) == {"1", "2", "3", "4", "5"}
    alone = [e for number in range(9) for e in asked(number, 1)]
    assert make_rows(alone, prompter, joint_share=1).joint_share == 0
    assert make_rows(alone, prompter).rows == make_rows(alone, prompter, joint_share=1).rows


def test_a_question_that_is_there_twice_stands_once_in_a_row() -> None:
    one = asked(0, 3, turns=1)
    (members,) = joint_groups([*one, *one], 1, (2, 8), 0)
    assert sorted(members) == [0, 1, 2]


def test_every_label_of_a_joint_row_has_the_weight_of_a_direct_one(tokenizer: Any) -> None:
    prompter = JudgePrompter(tokenizer, template="compact")
    examples = [replace(e, weight=2.0) for e in asked(3, 4)]
    made = make_rows(examples, prompter, joint_share=0.5, joint_size=(3, 3), direct_share=1, label_weight=10)
    for trees in (single_rows(made.rows), tree_rows(made.rows, max_tokens=4096, min_shared=0)):
        heavy = [
            label for tree in trees for label, w in zip(tree.labels, tree.weights, strict=True) if w == 20
        ]
        assert Counter(prompter.decode([i]) for i in heavy) == Counter(e.label for e in examples)
        light = {w for tree in trees for w, at in zip(tree.weights, tree.labels, strict=True) if at >= 0}
        assert light == {2.0, 20.0}


def test_a_model_reads_joint_rows_in_a_tree_as_alone(tokenizer: Any, tiny: Any) -> None:
    rows = make_rows(asked(1, 4), JudgePrompter(tokenizer, template="compact"), joint_share=0.6).rows
    assert any(row.others for row in rows) and reads_trees(tiny(), tokenizer, rows)


def test_one_example_without_notes_makes_a_joint_row_direct(tokenizer: Any) -> None:
    examples = asked(0, 3, turns=1)
    examples[1] = replace(examples[1], notes="")
    (row,) = joint_rows(examples, JudgePrompter(tokenizer), direct_share=0, joint_size=(3, 3))
    assert row.mode == "direct"


def test_what_cannot_be_asked_together_is_said(tokenizer: Any) -> None:
    prompter = JudgePrompter(tokenizer, template="compact")
    with pytest.raises(ConfigError, match="joint_share 2 must lie"):
        make_rows(asked(0, 2), prompter, joint_share=2)
    with pytest.raises(ConfigError, match=r"joint_size \[3, 2\]"):
        make_rows(asked(0, 2), prompter, joint_share=1, joint_size=(3, 2))
    source = "{% block system %}{% endblock %}{% block open %}<data {{ nonce }}>\n{% endblock %}"
    source += "{% block close %}</data {{ nonce }}>\n{% endblock %}{% block look %}{{ turn }}\n{% endblock %}"
    mine = parse_template(source + "{% block question %}{{ ask }}{% endblock %}", "mine")
    with pytest.raises(ConfigError, match="missing block 'joint'"):
        make_rows(asked(0, 2), JudgePrompter(tokenizer, template=mine), joint_share=0.1)
    nowhere = [replace(e, turn=9) for e in asked(0, 3, turns=1)]
    made = make_rows(nowhere, prompter, joint_share=1, joint_size=(3, 3))
    assert made.counts()["dropped"] == {"bad_input": 3}


def test_a_stage_learns_joint_rows_and_records_them(tmp_path: Path, tokenizer: Any, tiny: Any) -> None:
    examples = [e for number in range(12) for e in asked(number, 4)]
    config = StageConfig(
        template="compact",
        direct_share=1,
        joint_share=0.5,
        joint_size=(2, 3),
        max_steps=6,
        learning_rate=1e-2,
    )
    result = train_stage(tiny(), tokenizer, examples, asked(99, 4), tmp_path / "stage", config)
    assert {"1", "2", "3"} >= result.counts["questions"].keys() > {"1"}
    assert result.dev_loss_before and result.dev_loss_after
    assert result.dev_loss_after < result.dev_loss_before
    card = read_judge_card(result.folder)
    assert card and card.details["rm.general"]["config"]["joint_size"] == [2, 3]


def test_the_run_configuration_reaches_every_judge_stage(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("name: a\nrm: {joint_share: 0.25, joint_size: [3, 5]}\n")
    config = load_config(tmp_path / "run.yaml")
    ctx = StageContext(tmp_path, tmp_path, config, 0)
    made = stage_config(ctx, "rm.rubric", config.rm.rubric.train)
    assert (made.joint_share, made.joint_size) == (0.25, (3, 5))
    assert load_config(tmp_path / "run.yaml", ["rm.joint_share=0"]).rm.joint_share == 0
    for wrong in ("rm.joint_share=2", "rm.joint_size=[1, 4]", "rm.joint_size=[4, 2]"):
        with pytest.raises(ConfigError, match=f"override '{re.escape(wrong)}'"):
            load_config(tmp_path / "run.yaml", [wrong])
