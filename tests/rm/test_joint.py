"""Several criteria in one prompt: who stands together, in which order, and one verdict for each."""

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from axiomrm.cli import main
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.errors import ConfigError
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.asking import Asking, ask
from axiomrm.rm.engines.base import (
    Capabilities,
    Generation,
    LabelReading,
    Prompt,
    Sampling,
    TokenLogprobs,
)
from axiomrm.rm.engines.transformers import TransformersEngine
from axiomrm.rm.labels import level_labels
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.questions import groups, permutation
from axiomrm.rm.templating import parse_template

Write = Callable[[Prompt], str]
LEVELS = level_labels([(0.0, "no"), (0.5, "half"), (1.0, "yes")])


def talk(*said: str, name: str = "d1") -> Trajectory:
    roles: tuple[Any, Any] = ("user", "assistant")
    messages = tuple(Message(role=roles[i % 2], content=s) for i, s in enumerate(said))
    return Trajectory(messages=messages, id=name)


TALK = talk("hi", "Hello there.", "order 12?", "On its way to you.")


def about(trajectory: Trajectory, count: int, turn: int | None = None, **fields: Any) -> list[VerdictRequest]:
    return [
        VerdictRequest(
            trajectory,
            Criterion(f"c{i}", f"Is it number {i}?", LEVELS if i % 2 else BINARY_LIKE),
            turn,
            **fields,
        )
        for i in range(count)
    ]


BINARY_LIKE = Criterion("", "").labels


class Writes(TransformersEngine):
    """A real model whose own words are given: labels are read after them for real."""

    def __init__(self, model: Any, tokenizer: Any, write: Write) -> None:
        super().__init__(model, tokenizer)
        self.write, self.asked = write, list[tuple[Prompt, Sampling]]()

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        self.asked += [(prompt, sampling) for prompt in prompts]
        texts = [self.write(prompt) for prompt in prompts]
        ids = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        return [Generation(text, tuple(i), "stop") for text, i in zip(texts, ids, strict=True)]


class Chats:
    """An engine without ids that answers as it is told, one token a character."""

    capabilities = Capabilities(token_ids=False, logprobs="topk", prefix_reuse=False, seeds=True)
    identity: ClassVar = {"engine": "chats"}

    def __init__(self, write: Write, top: Callable[[str], dict[str, float]] | None = None) -> None:
        self.write, self.top, self.asked = write, top, list[tuple[Prompt, Sampling]]()

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        self.asked += [(prompt, sampling) for prompt in prompts]
        return [self._said(self.write(prompt)) for prompt in prompts]

    def _said(self, text: str) -> Generation:
        tokens = tuple(TokenLogprobs(c, self.top(c)) for c in text) if self.top else ()
        return Generation(text, (), "stop", tokens)

    def label_logprobs(self, prompts: Any, tables: Any) -> list[LabelReading | Failed]:
        raise AssertionError("a chat server forces no lead-in")


def numbered(prompt: Prompt) -> list[int]:
    """Criterion numbers in the order in which the prompt lists them."""
    return [int(n) for n in re.findall(r"(?m)^\d+\. Is it number (\d+)\?", prompt.messages[-1]["content"])]


def line(prompt: Prompt, item: int, label: str) -> str:
    return f"verdict[{prompt.nonce}.{item}]={label}"


def label_of(number: int) -> str:
    return "2" if number % 2 else "N"


def answers_all(prompt: Prompt) -> str:
    order = numbered(prompt)
    return "\n".join(line(prompt, item, label_of(n)) for item, n in enumerate(order, 1))


SAMPLED = Asking(readout="sampled", joint=4, min_mass=0.0)


def test_a_unit_is_dealt_out_evenly_and_units_are_never_mixed() -> None:
    requests = [*about(TALK, 9), *about(TALK, 3, 0), *about(talk("a", "b"), 1)]
    found = groups(requests, Asking(joint=8))
    assert sorted(len(g) for g in found) == [1, 3, 4, 5]
    assert sorted(i for g in found for i in g) == list(range(13))
    assert all(len({(id(requests[i].trajectory), requests[i].turn) for i in g}) == 1 for g in found)
    assert groups(requests, Asking()) == [(i,) for i in range(13)]


def test_orders_differ_between_units_repeat_and_leave_the_global_generator_alone() -> None:
    state = random.getstate()
    ids = [f"c{i}" for i in range(8)]
    orders = [permutation(ids, 0, f"unit {u}") for u in range(40)]
    assert orders == [permutation(ids, 0, f"unit {u}") for u in range(40)]
    assert len({tuple(order) for order in orders}) > 35
    assert {order.index(0) for order in orders} == set(range(8))  # the first criterion stands everywhere
    assert permutation(ids, 1, "unit 0") != orders[0]
    assert permutation(ids, 0, "unit 0", "another purpose") != orders[0]
    assert random.getstate() == state


def test_an_order_depends_on_the_unit_and_not_on_later_turns() -> None:
    how = Asking(joint=8)
    nameless = [talk("hi", "Hello.", "and?", end, name="") for end in ("fine", "changed")]
    first, edited = (groups(about(t, 8, 0), how) for t in nameless)
    assert first == edited
    assert groups(about(nameless[0], 8, 1), how) != first
    assert groups(about(nameless[0], 8), how) != groups(about(nameless[1], 8), how)


def test_each_criterion_gets_the_verdict_of_its_own_line(tiny_tokenizer: Any) -> None:
    engine = Chats(answers_all)
    requests = about(TALK, 7)
    found = ask(engine, JudgePrompter(None), requests, SAMPLED)
    assert [v.label for v in found if isinstance(v, Scored)] == [label_of(n) for n in range(7)]
    assert sorted(len(numbered(prompt)) for prompt, _ in engine.asked) == [3, 4]
    assert any(numbered(prompt) != sorted(numbered(prompt)) for prompt, _ in engine.asked)


@pytest.mark.parametrize("mode", ["direct", "critique"])
@pytest.mark.parametrize("template", ["default", "compact"])
def test_labels_are_read_after_the_lines_before_them(
    tiny_llama: Any, tiny_tokenizer: Any, mode: Any, template: str
) -> None:
    import torch

    opening = "" if mode == "direct" else "notes: all 3 of 4, Y or N\nquote none\n"

    def write(prompt: Prompt) -> str:
        return opening + answers_all(prompt)

    engine = Writes(tiny_llama, tiny_tokenizer, write)
    prompter = JudgePrompter(tiny_tokenizer, template=template)
    requests = about(TALK, 3, 0)
    found = ask(engine, prompter, requests, Asking(mode=mode, joint=4, min_mass=0.0, untrained=True))
    ((prompt, sampling),) = engine.asked
    assert sampling.temperature == (0.0 if mode == "direct" else 0.7)
    lines = write(prompt).split("\n")
    for request, verdict in zip(requests, found, strict=True):
        assert isinstance(verdict, Scored)
        item = numbered(prompt).index(int(request.criterion.id[1:]))
        at = len(lines) - 3 + item
        before = "".join(f"{text}\n" for text in lines[:at]) + lines[at].partition("=")[0] + "="
        ids = [*prompt.ids, *tiny_tokenizer.encode(before, add_special_tokens=False)]
        with torch.no_grad():
            logits = tiny_llama(torch.tensor([ids])).logits[0, -1].double()
        p = torch.softmax(logits, -1)
        known = {
            t: float(p[tiny_tokenizer.convert_tokens_to_ids(t)]) for t in request.criterion.labels.tokens
        }
        total = sum(v for t, v in known.items() if t != "X")
        wanted = {t: v / total for t, v in known.items() if t != "X"}
        assert verdict.distribution == pytest.approx(wanted, abs=1e-5)
        assert verdict.captured_mass == pytest.approx(sum(known.values()), abs=1e-5)
        assert verdict.critique == ("" if mode == "direct" else "all 3 of 4, Y or N")


def test_a_missing_a_doubled_and_an_illegal_item_fail_alone_and_strangers_are_ignored() -> None:
    def write(prompt: Prompt) -> str:
        order = numbered(prompt)
        item = {n: order.index(n) + 1 for n in order}
        return "\n".join(
            [
                line(prompt, item[0], "Y"),
                line(prompt, item[1], "2"),
                line(prompt, item[1], "2"),
                line(prompt, item[2], "maybe"),
                line(prompt, 9, "Y"),
                f"verdict[{prompt.nonce}]=Y",
            ]
        )

    engine = Chats(write)
    found = ask(engine, JudgePrompter(None), about(TALK, 4), SAMPLED)
    first, *rest = found
    assert isinstance(first, Scored) and first.flags == ("unasked_items",)
    kinds = [v.kind for v in rest if isinstance(v, Failed)]
    assert kinds == ["incomplete", "illegal_label", "incomplete"]


def test_an_answer_cut_by_the_budget_keeps_its_whole_lines() -> None:
    class Cut(Chats):
        def _said(self, text: str) -> Generation:
            return Generation(text, (), "length")

    found = ask(Cut(answers_all), JudgePrompter(None), about(TALK, 3), SAMPLED)
    assert sorted(type(v).__name__ for v in found) == ["Failed", "Scored", "Scored"]
    (cut,) = (v for v in found if isinstance(v, Failed))
    assert cut.kind == "incomplete" and "cut by the budget" in cut.detail


def test_a_chat_server_gives_each_label_its_own_probability() -> None:
    def top(c: str) -> dict[str, float]:
        shares = {"2": {"2": 0.6, "0": 0.2, "1": 0.1, "X": 0.1}, "N": {"N": 0.7, "Y": 0.2, "X": 0.1}}
        return {t: math.log(p) for t, p in shares.get(c, {c: 0.9, "Y": 0.1}).items()}

    found = ask(Chats(answers_all, top), JudgePrompter(None), about(TALK, 4), Asking(joint=4))
    values = [v.value for v in found if isinstance(v, Scored)]
    assert values == pytest.approx([2 / 9, (0.6 + 0.05) / 0.9, 2 / 9, (0.6 + 0.05) / 0.9])
    without = ask(Chats(answers_all), JudgePrompter(None), about(TALK, 4), Asking(joint=4))
    assert [v.kind for v in without if isinstance(v, Failed)] == ["no_logprobs"] * 4


def test_votes_are_several_answers_to_one_prompt() -> None:
    turns = iter([answers_all, lambda prompt: "nothing", answers_all])

    class Several(Chats):
        def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
            self.asked += [(prompt, sampling) for prompt in prompts]
            return [self._said(next(turns)(prompt)) for prompt in prompts]

    how = Asking(mode="critique", readout="sampled", joint=4)
    found = ask(Several(answers_all), JudgePrompter(None), about(TALK, 2, votes=3), how)
    assert all(isinstance(v, Scored) and v.n == 2 and "failed_readings" in v.flags for v in found)


def test_one_criterion_alone_is_asked_as_ever(tiny_llama: Any, tiny_tokenizer: Any) -> None:
    judge = RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.0)
    together = judge.with_settings(joint=8)
    assert together.verdicts(about(TALK, 1)) == judge.verdicts(about(TALK, 1))
    assert together.judge_revision != judge.judge_revision


def test_joint_prompts_share_the_prefix_of_single_ones(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    criteria = [r.criterion for r in about(TALK, 3)]
    for turn in (0, None):
        alone, joint = prompter.render(TALK, criteria[0], turn), prompter.render(TALK, criteria, turn)
        assert isinstance(alone, Prompt) and isinstance(joint, Prompt)
        assert alone.prefix_ids == joint.prefix_ids
        assert prompter.render(TALK, criteria[:1], turn) == alone


def test_the_joint_question_in_full(tiny_tokenizer: Any) -> None:
    criteria = [r.criterion for r in about(TALK, 2)]
    prompt = JudgePrompter(tiny_tokenizer, template="default").render(TALK, criteria, 1, "critique")
    assert isinstance(prompt, Prompt)
    text = tiny_tokenizer.decode(prompt.suffix_ids).partition("<|im_end|>")[0]
    assert text == (
        f"</data {prompt.nonce}>\nLook at turn 2.\nTo check, each on its own:\n"
        "1. Is it number 0?\nLabels of 1: Y = yes; N = no; X = the recording does not tell\n"
        "2. Is it number 1?\nLabels of 2: 0 = no; 1 = half; 2 = yes; X = the recording does not tell\n"
        "Mode: notes\nWrite exactly this, then stop:\nnotes: <what speaks for and against>\n"
        'quote t<turn>: "<words copied from it>"\n'
        f"verdict[{prompt.nonce}.1]=<label>\nverdict[{prompt.nonce}.2]=<label>"
    )
    short = JudgePrompter(tiny_tokenizer, template="compact").render(TALK, criteria)
    assert isinstance(short, Prompt)
    text = tiny_tokenizer.decode(short.suffix_ids).partition("<|im_end|>")[0]
    asked = "1. Is it number 0?\nY N X \n2. Is it number 1?\n0 1=half; 2 X \ndirect"
    assert text == f"</data {short.nonce}>\nAll turns.\n{asked}"


def test_a_template_without_the_joint_block_says_so_before_anything_is_asked(
    tiny_llama: Any, tiny_tokenizer: Any
) -> None:
    source = "{% block system %}{% endblock %}{% block open %}<data {{ nonce }}>\n{% endblock %}"
    source += "{% block close %}</data {{ nonce }}>\n{% endblock %}{% block look %}{{ turn }}\n{% endblock %}"
    template = parse_template(source + "{% block question %}{{ ask }}{% endblock %}", "mine")
    prompter = JudgePrompter(tiny_tokenizer, template=template)
    prompter.check_joint(1)
    with pytest.raises(ConfigError, match="'mine': missing block 'joint'"):
        ask(TransformersEngine(tiny_llama, tiny_tokenizer), prompter, about(TALK, 1), Asking(joint=2))
    with pytest.raises(ConfigError, match="joint 0 must be at least 1"):
        Asking(joint=0)


def test_an_x_in_a_joint_answer_is_cannot_assess() -> None:
    found = ask(
        Chats(lambda prompt: f"{line(prompt, 1, 'X')}\n{line(prompt, 2, 'X')}"),
        JudgePrompter(None),
        about(TALK, 2),
        SAMPLED,
    )
    assert all(isinstance(v, CannotAssess) for v in found)


RUBRIC = """
schema: atr/1
rubric: {id: two, version: 1.0.0}
defaults: {judge: {kind: llm}}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
theorems:
  - {id: th.done, derived_from: [ax.help], derivation: purpose, statement: The request is settled.}
  - {id: th.calm, derived_from: [ax.help], derivation: tone, statement: The agent stays calm.}
"""


def test_score_joint_asks_the_criteria_together(tmp_path: Path, tiny_llama: Any, tiny_tokenizer: Any) -> None:
    tiny_llama.save_pretrained(tmp_path / "model")
    tiny_tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "two.yaml").write_text(RUBRIC, encoding="utf-8")
    said = [{"role": m.role, "content": m.content} for m in TALK.messages]
    (tmp_path / "logs.jsonl").write_text(json.dumps({"messages": said}) + "\n", encoding="utf-8")
    places = [str(tmp_path / name) for name in ("logs.jsonl", "two.yaml", "model", "out.jsonl")]
    words = ["score", places[0], "-r", places[1], "--model", places[2], "--out", places[3], "--cache", "off"]
    assert main([*words, "--joint", "2"]) == 1  # a model that never learned it writes no lines
    (row,) = (json.loads(line) for line in Path(places[3]).read_text(encoding="utf-8").splitlines())
    kinds = [v["kind"] for v in row["judgement"]["verdicts"].values()]
    assert kinds == ["incomplete", "incomplete"]
    assert row["judgement"]["reward"] is None
