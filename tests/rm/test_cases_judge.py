"""Cases from public bug reports, areas verdict-parse and judge-prompt."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.openai_chat import to_trajectory
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.errors import ConfigError
from axiomrm.rm.conversation import pieces
from axiomrm.rm.engines.base import failure_of
from axiomrm.rm.foreign import FOREIGN
from axiomrm.rm.grammar import Answer, parse, parse_items
from axiomrm.rm.labels import Label, LabelSet, label_table
from axiomrm.rm.neutral import restore
from axiomrm.rm.prompt import Criterion, JudgePrompter
from axiomrm.rm.readout import Reading, Rule, read_out
from axiomrm.rm.templating import parse_template

FILE = Path(__file__).parents[1] / "cases" / "dev_cases.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def of(area: str, *kinds: str) -> list[Any]:
    chosen = [c for c in CASES if c["area"] == area and c["input"]["kind"] in kinds]
    return [pytest.param(c, id=c["id"]) for c in chosen]


def plain(outcome: Any) -> dict[str, Any]:
    """A verdict, an answer or a failure in the words of the cases."""
    if isinstance(outcome, Failed):
        return {"outcome": "failed", "kind": outcome.kind, "retryable": outcome.retryable, "flags": ()}
    if isinstance(outcome, CannotAssess):
        return {"outcome": "cannot_assess", "p_na": outcome.p_na, "flags": outcome.flags}
    if isinstance(outcome, Answer):
        return {"outcome": "scored", "label": outcome.label, "flags": outcome.flags}
    assert isinstance(outcome, Scored)
    return {**outcome.model_dump(), "outcome": "scored"}


def meets(found: dict[str, Any], expect: dict[str, Any]) -> bool:
    if "any_of" in expect:
        never = any(meets(found, bad) for bad in expect.get("never", ()))
        return any(meets(found, one) for one in expect["any_of"]) and not never
    tol = expect.get("tol", 1e-9)
    for key, wanted in expect.items():
        if key in ("tol", "note", "never"):
            continue
        if key == "flags_absent":
            ok = not set(wanted) & set(found["flags"])
        elif key == "flags":
            ok = set(wanted) <= set(found["flags"])
        elif key == "value_between":
            ok = wanted[0] <= found["value"] <= wanted[1]
        elif isinstance(wanted, float):
            ok = found.get(key) is not None and math.isclose(found[key], wanted, abs_tol=tol)
        else:
            ok = found.get(key) == wanted
        if not ok:
            return False
    return not any(meets(found, bad) for bad in _listed(expect.get("never")))


def _listed(never: Any) -> list[dict[str, Any]]:
    return [] if never is None else never if isinstance(never, list) else [never]


@pytest.mark.parametrize("case", of("verdict-parse", "text"))
def test_text_is_parsed_as_the_case_says(case: dict[str, Any]) -> None:
    given = case["input"]
    stop = given["stop_reason"]
    if "items" in given:
        outcomes, ignored = parse_items(given["text"], given["labels"], given["nonce"], given["items"], stop)
        assert ignored == case["expect"]["ignored_items"]
        for item, expected in case["expect"]["items"].items():
            assert meets(plain(outcomes[int(item)]), expected), (item, outcomes)
        return
    if given["adapter"] == "own":
        found: Any = parse(given["text"], given["labels"], given["nonce"], stop)
    elif given["adapter"] == "bracket_pair":
        found = FOREIGN["bracket_pair"](given["text"], given["labels"], stop)
    else:
        found = FOREIGN[given["adapter"]](given["text"], tuple(given["range"]), stop)
    assert meets(plain(found), case["expect"]), found


@pytest.mark.parametrize("case", of("verdict-parse", "readout"))
def test_positions_are_read_as_the_case_says(case: dict[str, Any]) -> None:
    given = case["input"]
    labels = LabelSet(tuple(Label(token, value) for token, value in given["labels"].items()))
    reading = Reading(None)
    if "positions" in given:
        at = next(i for i, p in enumerate(given["positions"]) if p.get("lead_in")) + 1
        there = given["positions"][at]
        known = there.get("probs") or there["topk"]
        logs = {label: math.log(known[label]) for label in labels.tokens if label in known}
        top = there.get("topk")
        bound = min(min(top.values()), 1 - sum(top.values())) if top else None
        reading = Reading(logs, bound)
    found = read_out([reading], labels, Rule(given["min_mass"], given["readout"]))
    expect = dict(case["expect"])
    if isinstance(found, Failed) and "captured_mass" in expect:
        assert f"{expect.pop('captured_mass'):g}" in found.detail
    assert meets(plain(found), expect), found


@pytest.mark.parametrize("case", of("verdict-parse", "label_table"))
def test_label_tables_are_checked_as_the_case_says(case: dict[str, Any]) -> None:
    encodings, expect = case["input"]["encodings"], case["expect"]
    if "error" in expect:
        with pytest.raises(ConfigError) as caught:
            label_table(encodings)
        assert all(repr(name) in str(caught.value) for name in expect["names"])
        return
    table = label_table(encodings)
    assert list(table.lead_in_ids) == expect["lead_in_ids"]
    assert table.label_ids == expect["label_ids"]


@pytest.mark.parametrize("case", of("verdict-parse", "engine_result"))
def test_engine_errors_have_the_kind_of_the_case(case: dict[str, Any]) -> None:
    assert meets(plain(failure_of(case["input"]["error"])), case["expect"])


def _expanded(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def grown(content: Any) -> Any:
        return (
            content["repeat"] * content["times"]
            if isinstance(content, dict) and "repeat" in content
            else content
        )

    return [{**m, "content": grown(m.get("content"))} for m in messages]


@pytest.mark.parametrize("case", of("judge-prompt", "render"))
def test_prompts_are_built_as_the_case_says(
    case: dict[str, Any], tiny_tokenizer: Any, tiny_llama: Any
) -> None:
    given = case["input"]
    trajectory = to_trajectory({"messages": _expanded(given["messages"])})
    expect = case["expect"].get("any_of", [case["expect"]])[0]
    if expect.get("kind") == "context_overflow":
        _overflows(trajectory, tiny_llama, tiny_tokenizer, given["max_tokens"])
        return
    prompter = JudgePrompter(tiny_tokenizer)
    prompt = prompter.render(trajectory, Criterion("c", "Is it so?"), nonce=given["nonce"])
    assert not isinstance(prompt, Failed)
    text = tiny_tokenizer.decode(prompt.ids)
    opening, closing = f"<data {given['nonce']}>", f"</data {given['nonce']}>"
    assert text.count(opening) == expect.get("fence_open_count", 1)
    assert text.count(closing) == expect.get("fence_close_count", 1)
    data = text.split(opening)[1].split(closing)[0]
    specials = set(tiny_tokenizer.added_tokens_decoder)
    assert len(specials) == 3
    assert sum(i in specials for i in prompt.ids) == 5  # system, user and answer open, two close
    _looks_right(data, expect, trajectory)


def _looks_right(data: str, expect: dict[str, Any], trajectory: Trajectory) -> None:
    for wanted in expect.get("must_contain", ()):
        assert wanted in data
    for banned in expect.get("must_not_contain", ()):
        assert banned not in data
    for name in expect.get("must_not_contain_chars", ()):
        assert chr(int(name.removeprefix("U+"), 16)) not in data
    if expect.get("reversible"):
        assert all(m.content in restore(data) for m in trajectory.messages)
    if "own_verdict_lines_in_data" in expect:
        assert not re.search(r"(?m)^verdict\[", data)
    shown = pieces(trajectory)
    if "pieces" in expect:
        found = [(p.kind, p.name if p.kind == "call" else p.neutral_text) for p in shown]
        assert found == [tuple(pair) for pair in expect["pieces"]]
        assert len(trajectory.turns) == expect["turns"]
    for call in expect.get("calls", ()):
        written = [p for p in shown if p.kind == "call" and p.name == call["name"]]
        assert [json.loads(restore(p.neutral_text)) for p in written] == [call["arguments"]]
        assert [p.turn + 1 for p in written] == [call["turn"]]
    if "assistant_text" in expect:
        said = [p.neutral_text for p in shown if p.kind == "assistant"]
        assert said == expect["assistant_text"]
        assert not any(never in text for never in expect["never_in_assistant_text"] for text in said)
    if "visible_mark_for_part" in expect:
        assert "[image" in data


def _overflows(trajectory: Trajectory, model: Any, tokenizer: Any, limit: int) -> None:
    from axiomrm.rm.engines.transformers import TransformersEngine

    engine = TransformersEngine(model, tokenizer)
    engine.max_tokens = limit
    before = dict(engine.usage)
    prompter = JudgePrompter(tokenizer)
    criterion = Criterion("c", "Is it so?")
    prompt = prompter.render(trajectory, criterion)
    assert not isinstance(prompt, Failed)
    (found,) = engine.label_logprobs([prompt], [prompter.table(criterion.labels, prompt.nonce)])
    assert isinstance(found, Failed)
    assert (found.kind, found.retryable) == ("context_overflow", False)
    assert engine.usage == before  # no model call


@pytest.mark.parametrize("case", of("judge-prompt", "template"))
def test_a_misspelt_template_variable_is_an_error_at_load(case: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_template(case["input"]["template"])
    assert all(name in str(caught.value) for name in case["expect"]["names"])


@pytest.mark.parametrize("case", of("judge-prompt", "ids"))
def test_one_begin_token_in_every_path(case: dict[str, Any], make_tokenizer: Callable[..., Any]) -> None:
    template = "{{ '<|endoftext|>' }}" + make_tokenizer().chat_template
    tokenizer = make_tokenizer(template, bos_token="<|endoftext|>", add_bos_token=True)
    trajectory = to_trajectory({"messages": case["input"]["messages"]})
    prompter = JudgePrompter(tokenizer)
    criterion = Criterion("c", "Is it so?")
    scoring = prompter.render(trajectory, criterion)
    assert not isinstance(scoring, Failed)
    row = prompter.training_row(trajectory, criterion, "Y")
    assert tuple(row.input_ids[: len(scoring.ids)]) == scoring.ids
    bos = tokenizer.bos_token_id
    assert [i for i, token in enumerate(row.input_ids) if token == bos] == [case["expect"]["bos_position"]]


def test_every_case_of_these_areas_is_run() -> None:
    known = {"text", "readout", "label_table", "engine_result", "render", "template", "ids"}
    assert {c["input"]["kind"] for c in CASES if c["area"] in ("verdict-parse", "judge-prompt")} <= known
