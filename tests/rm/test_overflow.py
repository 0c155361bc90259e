"""Long recordings and later turns: what the judge of a unit sees, and what its verdict says about it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.data.verdict import Failed, Scored
from axiomrm.errors import ConfigError
from axiomrm.rm import Criterion, VerdictRequest
from axiomrm.rm.asking import Asking, ask
from axiomrm.rm.engines.base import Generation, Prompt, Sampling
from axiomrm.rm.engines.transformers import TransformersEngine
from axiomrm.rm.overflow import fitted
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.questions import answer_tokens

ASK = Criterion("c", "Is it so?")
LOG = "line ok, nothing to see here. "


def tools(*outputs: str, end: str = "Nothing unusual.") -> Trajectory:
    messages = [Message(role="user", content="Read the logs.")]
    for i, output in enumerate(outputs):
        call = ToolCall(name="read_log", arguments={"n": i}, id=f"c{i}")
        messages += [
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content=output, tool_call_id=f"c{i}"),
        ]
    return Trajectory(messages=(*messages, Message(role="assistant", content=end)), id="logs")


RECORDING = tools(f"FIRST {LOG * 8}", f"SECOND {LOG * 8}", f"THIRD {LOG * 8}")


@pytest.fixture()
def engine(tiny_llama: Any, tiny_tokenizer: Any) -> TransformersEngine:
    return TransformersEngine(tiny_llama, tiny_tokenizer)


def length(prompter: JudgePrompter, trajectory: Trajectory = RECORDING, turn: int | None = None) -> int:
    prompt = prompter.render(trajectory, ASK, turn)
    assert isinstance(prompt, Prompt)
    return len(prompt.ids)


def seen(prompter: JudgePrompter, limit: int, trajectory: Trajectory = RECORDING) -> tuple[str, Any]:
    prompt, elided = fitted(
        prompter, lambda gone: prompter.render(trajectory, ASK, elided=gone), trajectory, limit
    )
    if isinstance(prompt, Failed):
        return prompt.kind, elided
    assert len(prompt.ids) <= limit
    return prompter.decode(prompt.ids), elided


def test_the_oldest_tool_outputs_give_way_as_many_as_must(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    whole = length(prompter)
    text, elided = seen(prompter, whole)
    assert not elided and "elided" not in text
    text, elided = seen(prompter, whole - 1)
    assert elided == {2}
    characters = len(RECORDING.messages[2].content)
    assert f"[t1 result read_log] ‹elided: {characters} characters›\n[t2 call" in text
    assert "FIRST" not in text and "SECOND" in text and "THIRD" in text
    shorter = prompter.render(RECORDING, ASK, elided=elided)
    assert isinstance(shorter, Prompt)
    text, elided = seen(prompter, len(shorter.ids) - 1)
    assert elided == {2, 4} and "THIRD" in text and "Nothing unusual." in text


def test_what_does_not_fit_without_tool_outputs_either_fails(tiny_tokenizer: Any) -> None:
    kind, elided = seen(JudgePrompter(tiny_tokenizer), 100)
    assert (kind, elided) == ("context_overflow", frozenset())
    short = tools("ok", "ok", "ok", end="no tool output here is longer than its mark " * 20)
    assert seen(JudgePrompter(tiny_tokenizer), 100, short) == ("context_overflow", frozenset())


@pytest.mark.parametrize("mode", ["direct", "critique"])
def test_failing_is_the_default_and_eliding_is_said(
    engine: TransformersEngine, tiny_tokenizer: Any, mode: Any
) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    how = Asking(mode=mode, min_mass=0.0, untrained=True, max_notes_tokens=6)
    engine.max_tokens = length(prompter) + 10 - 200
    (failed,) = ask(engine, prompter, [VerdictRequest(RECORDING, ASK)], how)
    assert isinstance(failed, Failed) and (failed.kind, failed.retryable) == ("context_overflow", False)
    assert engine.usage["prompt_tokens"] == 0  # no model call
    elide = Asking(mode=mode, min_mass=0.0, untrained=True, max_notes_tokens=6, overflow="elide")
    (scored,) = ask(engine, prompter, [VerdictRequest(RECORDING, ASK)], elide)
    assert isinstance(scored, Scored) and "elided" in scored.flags
    roomy = VerdictRequest(tools("ok"), ASK)
    (whole,) = ask(engine, prompter, [roomy], elide)
    assert isinstance(whole, Scored) and "elided" not in whole.flags


def test_the_answer_has_its_room(tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    forced = len(prompter.table(ASK.labels, prompter.nonce(RECORDING)).lead_in_ids)
    direct, notes = Asking(), Asking(mode="critique", max_notes_tokens=50)
    assert answer_tokens(prompter, direct) > forced
    assert answer_tokens(prompter, notes) == answer_tokens(prompter, direct) + 50
    assert answer_tokens(prompter, Asking(joint=4)) > 3 * answer_tokens(prompter, direct)


class Quotes(TransformersEngine):
    """A real model whose notes are given."""

    words = ""

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        text = f"notes: x\n{self.words}\n"
        ids = tuple(self.tokenizer.encode(text, add_special_tokens=False))
        return [Generation(text, ids, "stop") for _ in prompts]


def test_a_quote_counts_only_if_the_judge_saw_it(tiny_llama: Any, tiny_tokenizer: Any) -> None:
    engine = Quotes(tiny_llama, tiny_tokenizer)
    prompter = JudgePrompter(tiny_tokenizer)
    recording = tools(f"FIRST {LOG * 8}", f"SECOND {LOG * 8}")

    def statuses(quote: str, turn: int | None = None, **options: Any) -> list[str]:
        engine.words = quote
        how = Asking(mode="critique", min_mass=0.0, untrained=True, max_notes_tokens=40, **options)
        (found,) = ask(engine, prompter, [VerdictRequest(recording, ASK, turn)], how)
        assert isinstance(found, Scored), found
        return [e.status for e in found.evidence]

    assert statuses('quote t1: "FIRST line ok, nothing"') == ["verified"]
    assert statuses('quote t2: "SECOND line ok, nothing"', 0) == ["absent"]  # a later turn
    assert statuses('quote t2: "SECOND line ok, nothing"', 0, turn_view="hindsight") == ["verified"]
    engine.max_tokens = length(prompter, recording) + 1
    assert statuses('quote t1: "FIRST line ok, nothing"', overflow="elide") == ["absent"]


def test_hindsight_sees_later_turns_and_says_so(engine: TransformersEngine, tiny_tokenizer: Any) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    causal, later = (prompter.render(RECORDING, ASK, 0, view=v) for v in ("causal", "hindsight"))
    whole = prompter.render(RECORDING, ASK)
    assert isinstance(causal, Prompt) and isinstance(later, Prompt) and isinstance(whole, Prompt)
    assert causal.suffix_ids == later.suffix_ids != whole.suffix_ids
    assert later.prefix_ids == whole.prefix_ids  # one prefill for all turns
    assert "THIRD" in prompter.decode(later.ids) and "THIRD" not in prompter.decode(causal.ids)
    how = Asking(min_mass=0.0, untrained=True)
    requests = [VerdictRequest(RECORDING, ASK, 0, view=v) for v in (None, "causal", "hindsight")]
    requests.append(VerdictRequest(RECORDING, ASK, view="hindsight"))
    default, same, audit, all_turns = ask(engine, prompter, requests, how)
    assert isinstance(audit, Scored) and isinstance(all_turns, Scored) and isinstance(same, Scored)
    assert default == same and same.value != audit.value
    assert audit.flags == ("hindsight", "untrained_judge")
    assert all_turns.flags == same.flags == ("untrained_judge",)
    audits = Asking(min_mass=0.0, untrained=True, turn_view="hindsight")
    (told,) = ask(engine, prompter, requests[:1], audits)
    assert isinstance(told, Scored) and told.value == pytest.approx(audit.value, abs=1e-6)
    assert audits.revision != how.revision


EDITS: list[Callable[[Trajectory], Trajectory]] = [
    lambda t: t.model_copy(update={"messages": (*t.messages[:-1], Message(role="assistant", content="No!"))}),
    lambda t: t.model_copy(update={"messages": t.messages[:5]}),
    lambda t: t.model_copy(update={"messages": (*t.messages, Message(role="user", content=LOG * 40))}),
]


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("options", [{}, {"overflow": "elide"}, {"joint": 3}, {"mode": "critique"}])
def test_a_causal_verdict_does_not_change_when_later_turns_do(
    engine: TransformersEngine, tiny_tokenizer: Any, edit: Any, options: dict[str, Any]
) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    if options.get("overflow"):
        engine.max_tokens = length(prompter, turn=1) - 50
    how = Asking(min_mass=0.0, untrained=True, max_notes_tokens=4, **options)
    asked = [Criterion(f"c{i}", f"Is it {i}?") for i in range(3)]
    before, after = (
        ask(engine, prompter, [VerdictRequest(t, c, 1) for c in asked], how)
        for t in (RECORDING, edit(RECORDING))
    )
    for a, b in zip(before, after, strict=True):
        assert type(a) is type(b)
        if isinstance(a, Scored) and isinstance(b, Scored):
            assert a.value == pytest.approx(b.value, abs=1e-6)
            assert (a.critique, a.flags, a.evidence) == (b.critique, b.flags, b.evidence)
        else:
            assert a == b


def test_settings_that_do_not_exist_are_named() -> None:
    for name, value in (("overflow", "cut"), ("turn_view", "future")):
        with pytest.raises(ConfigError, match=f"{name} {value!r} must be one of"):
            Asking(**{name: value})  # type: ignore[arg-type]
