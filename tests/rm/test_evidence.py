"""Quotes are looked for in what the judge was shown."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, ToolCall, Trajectory
from axiomrm.data.verdict import Scored
from axiomrm.rm.asking import Asking, VerdictRequest, ask
from axiomrm.rm.blocks import Criterion
from axiomrm.rm.engines.base import Capabilities, Generation, Prompt, Sampling
from axiomrm.rm.evidence import verify_quotes
from axiomrm.rm.grammar import Quote, parse
from axiomrm.rm.prompt import JudgePrompter

SAID = "I will write <tool_call> refund order twelve </tool_call> now… ½ off"
TALK = Trajectory(
    messages=(
        Message(role="user", content="please refund order twelve"),
        Message(
            role="assistant",
            content=SAID,
            tool_calls=(ToolCall(name="refund_order", arguments={"id": 12}, id="a"),),
        ),
        Message(role="tool", content="done and dusted", tool_call_id="a"),
    )
)


@pytest.fixture
def prompter(make_tokenizer: Callable[..., Any]) -> JudgePrompter:
    """Its tokenizer has added tokens that are no control tokens of the usual kinds."""
    from tokenizers import AddedToken

    tokenizer = make_tokenizer()
    names = ("<tool_call>", "</tool_call>")
    tokenizer.add_tokens([AddedToken(name, special=False, normalized=False) for name in names])
    return JudgePrompter(tokenizer)


def status(prompter: JudgePrompter, text: str, turn: int = 0) -> str:
    """Of a quote as the judge writes it, read as an answer is."""
    answer = parse(f'notes: so\nquote t{turn + 1}: "{text}"\nverdict[gamu]=Y', ("Y", "N"), "gamu")
    quotes: tuple[Quote, ...] = getattr(answer, "quotes", ())
    (found,) = verify_quotes(TALK, quotes, control=prompter.control)
    return found.status


def lines(prompter: JudgePrompter) -> list[str]:
    made = prompter.render(TALK, Criterion("c", "Is it so?"), None, "critique")
    assert isinstance(made, Prompt)
    return made.messages[-1]["content"].split("\n")


def test_every_line_that_the_judge_saw_can_be_quoted(prompter: JudgePrompter) -> None:
    (reply,) = [line for line in lines(prompter) if line.startswith("[t1 assistant] ")]
    (call,) = [line for line in lines(prompter) if line.startswith("[t1 call ")]
    shown = reply.removeprefix("[t1 assistant] ")
    assert "‹U+003C›tool_call>" in shown
    assert status(prompter, shown) == "verified"
    assert call == '[t1 call refund_order {"id": 12}]'
    assert status(prompter, 'refund_order {"id": 12}') == "verified"


def test_the_original_words_verify_too_and_invented_ones_do_not(prompter: JudgePrompter) -> None:
    assert status(prompter, SAID) == "verified"
    assert status(prompter, "twelve </tool_call> now… ½ off", 1) == "wrong_turn"
    assert status(prompter, 'refund_order {"id": 13}') == "absent"
    assert status(prompter, "[t1 call refund_order") == "absent"  # the mark of a line proves nothing


class Quotes:
    """An engine that copies the agent's line."""

    def __init__(self) -> None:
        self.capabilities = Capabilities(token_ids=False, logprobs="none", prefix_reuse=False, seeds=True)
        self.identity = {"engine": "quotes"}

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation]:
        found = []
        for prompt in prompts:
            (line,) = [
                x for x in prompt.messages[-1]["content"].split("\n") if x.startswith("[t1 assistant] ")
            ]
            quote = line.removeprefix("[t1 assistant] ")
            text = f'notes: so\nquote t1: "{quote}"\nverdict[{prompt.nonce}]=Y'
            found.append(Generation(text, (), "stop"))
        return found

    def label_logprobs(self, prompts: Any, tables: Any) -> Any:
        raise AssertionError("no probabilities here")


def test_a_verdict_with_an_exact_quote_has_no_flag(prompter: JudgePrompter) -> None:
    request = VerdictRequest(TALK, Criterion("c", "Is it so?"))
    (found,) = ask(Quotes(), prompter, [request], Asking(mode="critique", readout="sampled"))  # type: ignore[arg-type]  # generates no Failed
    assert isinstance(found, Scored) and found.flags == ()
    assert [quote.status for quote in found.evidence] == ["verified"]
