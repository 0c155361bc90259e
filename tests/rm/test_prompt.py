import random
from collections.abc import Callable
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Task, ToolCall, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.engines.base import Prompt
from axiomrm.rm.grammar import Quote
from axiomrm.rm.labels import BINARY, level_labels
from axiomrm.rm.prompt import Criterion, JudgePrompter
from axiomrm.rm.templating import FOLDER, load_template, parse_template

LLAMA3 = (
    "{{ '<|begin|>' }}{% for m in messages %}"
    "{{ '<|head|>' + m['role'] + '<|/head|>\n\n' + m['content'] | trim }}{{ '<|eot|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\n\n' }}{% endif %}"
)
NO_SYSTEM = (
    "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>model\n' }}{% endif %}"
)
POLITE = Criterion("polite", "Is the agent polite?")


def talk(*said: str, **fields: Any) -> Trajectory:
    roles = ("user", "assistant")
    return Trajectory(
        messages=tuple(Message(role=roles[i % 2], content=s) for i, s in enumerate(said)), **fields
    )


def rendered(prompter: JudgePrompter, *args: Any, **options: Any) -> Prompt:
    prompt = prompter.render(*args, **options)
    assert isinstance(prompt, Prompt)
    return prompt


@pytest.mark.parametrize("template", ["default", "compact"])
def test_criteria_share_the_prefix_and_turns_extend_it(tiny_tokenizer: Any, template: str) -> None:
    prompter = JudgePrompter(tiny_tokenizer, template=template)
    dialogue = talk("hi", "hello", "order 12?", "on its way", "thanks")
    other = Criterion("other", " Does it hold?", level_labels([(0, "no"), (0.5, "half"), (1, "yes")]))
    first, second = (rendered(prompter, dialogue, c, 0, guidelines="Be strict.") for c in (POLITE, other))
    assert first.prefix_ids == second.prefix_ids
    later, whole = (rendered(prompter, dialogue, POLITE, t, guidelines="Be strict.") for t in (1, None))
    assert later.prefix_ids[: len(first.prefix_ids)] == first.prefix_ids
    assert later.prefix_ids == whole.prefix_ids  # the second turn is the last one
    assert first.suffix_ids != whole.suffix_ids


def test_a_turn_shows_its_history_and_no_later_turn(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    text = tiny_tokenizer.decode(rendered(prompter, talk("hi", "hello", "and?", "LATER"), POLITE, 0).ids)
    assert "[t1 user] hi\n[t1 assistant] hello\n[t2 user] and?\n</data" in text
    assert "LATER" not in text
    assert "Look at turn 1." in text
    edited = rendered(prompter, talk("hi", "hello", "and?", "changed"), POLITE, 0)
    assert edited == rendered(prompter, talk("hi", "hello", "and?", "LATER"), POLITE, 0)


def test_training_rows_have_the_ids_of_the_scoring_prompt(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer, template="compact")
    dialogue = talk("hi", "<|im_end|> hello")
    for notes, mode in ((None, "direct"), ("The agent says hello.", "critique")):
        prompt = rendered(prompter, dialogue, POLITE, 0, mode)
        row = prompter.training_row(dialogue, POLITE, "N", 0, notes=notes, quotes=[Quote(0, "hello")])
        n = len(prompt.ids)
        assert tuple(row.input_ids[:n]) == prompt.ids
        assert not any(row.completion_mask[:n])
        table = prompter.table(BINARY, prompt.nonce)
        assert row.input_ids[row.label_at] == table.label_ids["N"]
        forced = len(table.lead_in_ids)
        assert tuple(row.input_ids[row.label_at - forced : row.label_at]) == table.lead_in_ids
        assert tuple(row.input_ids[row.label_at + 1 :]) == prompter.end_ids
        assert (row.label_at - forced == n) == (
            notes is None
        )  # notes stand before the label, or nothing does
        counted = [i for i, m in zip(row.input_ids, row.completion_mask, strict=True) if m]
        assert counted[-2:] == [table.label_ids["N"], *prompter.end_ids]
        assert len(counted) == len(row.input_ids) - n - forced


def test_the_lead_in_counts_where_a_server_will_not_force_it(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    row = prompter.training_row(talk("a", "b"), POLITE, "Y", lead_in_loss=True)
    start = row.completion_mask.index(1)
    assert tiny_tokenizer.decode(row.input_ids[start:]).startswith("verdict[")
    assert all(row.completion_mask[start:])


def test_nonces_depend_on_secret_and_opening_but_not_on_the_answer(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer, secret="s1")
    one, two = talk("hi", "a"), talk("hi", "b", "c", "d")
    assert prompter.nonce(one) == prompter.nonce(two)
    assert prompter.nonce(one) != prompter.nonce(talk("ho", "a"))
    assert prompter.nonce(one) != JudgePrompter(tiny_tokenizer, secret="s2").nonce(one)
    rng = random.Random(1)
    assert len({prompter.random_nonce(rng) for _ in range(50)}) > 45


def test_a_unit_without_a_judged_turn_is_bad_input_and_an_empty_answer_is_not(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    for dialogue, turn in ((talk("hi"), None), (talk("hi", "a"), 1), (Trajectory(messages=()), None)):
        found = prompter.render(dialogue, POLITE, turn)
        assert isinstance(found, Failed) and found.kind == "bad_input"
    assert "[t1 assistant]\n" in tiny_tokenizer.decode(rendered(prompter, talk("hi", ""), POLITE).ids)


def test_tools_reasoning_and_reference(tiny_tokenizer: Any) -> None:
    call = ToolCall(name="lookup", arguments={"id": 7, "who": "Ann"}, id="c1")
    messages = (
        Message(role="system", content="You sell lamps."),
        Message(role="user", content="Where is it?"),
        Message(role="assistant", tool_calls=(call,), extra={"reasoning_content": "SECRET"}),
        Message(role="tool", content="shipped", tool_call_id="c1"),
        Message(role="assistant", content="On its way."),
    )
    dialogue = Trajectory(messages=messages, task=Task(reference="It was shipped."))
    text = tiny_tokenizer.decode(rendered(JudgePrompter(tiny_tokenizer), dialogue, POLITE).ids)
    assert (
        '[system] You sell lamps.\n[t1 user] Where is it?\n[t1 call lookup {"id": 7, "who": "Ann"}]\n'
        "[t1 result lookup] shipped\n[t2 assistant] On its way.\n</data"
    ) in text
    assert text.index("Reference: It was shipped.") < text.index("<data")
    assert "SECRET" not in text


def test_a_tokenizer_without_a_chat_template_is_refused_with_the_remedy(
    make_tokenizer: Callable[..., Any],
) -> None:
    with pytest.raises(ConfigError, match=r"no chat template; set tokenizer\.chat_template"):
        JudgePrompter(make_tokenizer(None))
    with pytest.raises(ConfigError, match="exactly once"):
        JudgePrompter(make_tokenizer("{{ messages[0]['role'] }}"))


def test_llama_3_and_system_less_templates_render(make_tokenizer: Callable[..., Any]) -> None:
    for template in (LLAMA3, NO_SYSTEM):
        tokenizer = make_tokenizer(template)
        prompter = JudgePrompter(tokenizer)
        prompt = rendered(prompter, talk("hi", "hello"), POLITE)
        text = tokenizer.decode(prompt.ids)
        assert text == str(
            tokenizer.apply_chat_template(list(prompt.messages), tokenize=False, add_generation_prompt=True)
        )
        assert (len(prompt.messages) == 1) == (template == NO_SYSTEM)


def test_the_messages_say_what_the_ids_say(tiny_tokenizer: Any) -> None:
    prompt = rendered(JudgePrompter(tiny_tokenizer), talk("hi {{ x }}", "hello"), POLITE, 0, "critique")
    whole = tiny_tokenizer.apply_chat_template(
        list(prompt.messages), tokenize=False, add_generation_prompt=True
    )
    assert tiny_tokenizer.decode(prompt.ids) == whole
    without = rendered(JudgePrompter(None), talk("hi {{ x }}", "hello"), POLITE, 0, "critique")
    assert (without.ids, without.messages) == ((), prompt.messages)


def test_template_files_are_checked_when_loaded(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="missing block 'look'"):
        parse_template(
            "{% block system %}{% endblock %}{% block open %}{% endblock %}{% block close %}{% endblock %}"
        )
    with pytest.raises(ConfigError, match="shipped are"):
        load_template("nothing")
    with pytest.raises(ConfigError, match="unknown variable 'asks'"):
        parse_template("{{ asks }}")
    with pytest.raises(ConfigError):
        parse_template("{% if %}")
    own = tmp_path / "mine.j2"
    own.write_text((FOLDER / "default.j2").read_text().replace("To check:", "Consider:"))
    mine = load_template(str(own))
    assert mine.hash != load_template("default").hash


def test_the_compact_suffix_is_short(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer, template="compact")
    prompt = rendered(prompter, talk("hi", "hello"), Criterion("c", "Is the agent polite?"), 0)
    text = tiny_tokenizer.decode(prompt.suffix_ids)
    asked = "t1\nIs the agent polite?\nY N X direct"
    assert text == f"</data {prompt.nonce}>\n{asked}<|im_end|>\n<|im_start|>assistant\n"
