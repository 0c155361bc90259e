"""What a server can do is settled by a probe at the start; whatever it cannot is an error there."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed, Scored
from axiomrm.errors import ConfigError, JudgeError
from axiomrm.rm import Criterion, JudgePrompter, RewardModel, VerdictRequest
from axiomrm.rm.engines.base import Generation, LabelReading, Prompt, Sampling
from axiomrm.rm.engines.http_limits import HttpLimits
from axiomrm.rm.engines.http_probe import ServerFacts
from axiomrm.rm.engines.openai import OpenAIEngine
from axiomrm.rubrics import Rubric

Body = dict[str, Any]
Reply = tuple[int, dict[str, str], Any]
DIALOGUE = Trajectory(
    messages=(Message(role="user", content="hi"), Message(role="assistant", content="hello"))
)
ASKED = [VerdictRequest(DIALOGUE, Criterion("c", "Is it polite?"))]
LISTED: Reply = (200, {}, {"data": [{"id": "m", "max_model_len": 900}]})
LIKELY = {"Y": 0.7, "N": 0.2, "X": 0.05}


def quick(**limits: Any) -> dict[str, Any]:
    return {"deadline_s": 5.0, "first_wait_s": 0.01, "longest_wait_s": 0.02, "attempts": 2, **limits}


def test_a_plain_chat_is_asked_for_its_verdict_line(http: Any, server: Any) -> None:
    server.answers, server.models = [http.verdict("Y", **LIKELY)], LISTED
    judge = RewardModel.connect(server.url, model="m", min_mass=0.8, **quick())
    assert isinstance(judge.engine, OpenAIEngine)
    assert judge.engine.facts == ServerFacts("chat", "topk", 20, max_tokens=900)
    (found,) = judge.verdicts(ASKED)
    assert isinstance(found, Scored)
    assert found.value == pytest.approx(0.7 / 0.9)
    assert judge.engine.identity["route"] == "chat"
    assert judge.usage["requests"] == 1  # the probe is not counted


def test_the_list_is_read_for_the_very_model_and_no_relative_of_it(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", **LIKELY)]
    entries = [{"id": "m-0613", "max_model_len": 500}, {"id": "m-base", "max_model_len": 600}]
    for listed, expected in (([*entries, {"id": "m", "max_model_len": 900}], 900), (entries, 500)):
        server.models = (200, {}, {"data": listed})
        engine = RewardModel.connect(server.url, model="m", **quick()).engine
        assert isinstance(engine, OpenAIEngine) and engine.facts.max_tokens == expected
    server.models = (200, {}, {"data": [{"id": "m-mini"}, {"id": "lab/m-base"}]})
    with pytest.raises(ConfigError, match="no model 'm' there; it serves 'm-mini', 'lab/m-base'"):
        RewardModel.connect(server.url, model="m", **quick())


class Continuing:
    """A chat server that goes on where an assistant message ends, as vLLM does."""

    def __init__(self, http: Any) -> None:
        self.http = http

    def __call__(self, body: Body) -> Reply:
        reply: Reply
        if body["messages"][-1]["role"] != "assistant":
            reply = self.http.verdict("Y", **LIKELY)(body)
            return reply
        goes_on = body.get("continue_final_message") and body.get("add_generation_prompt") is False
        written = "Y" if goes_on else "Hello"
        choice = {
            "message": {"content": written},
            "finish_reason": "length",
            "logprobs": {"content": self.http.entries([written], written, LIKELY)},
        }
        usage = {"prompt_tokens": 50 if goes_on else 56, "completion_tokens": 1}
        return 200, {}, {"choices": [choice], "model": "m", "usage": usage}


def test_a_server_that_goes_on_is_given_the_lead_in(http: Any, server: Any) -> None:
    server.answers = [Continuing(http)]
    judge = RewardModel.connect(server.url, model="m", min_mass=0.8, **quick())
    assert isinstance(judge.engine, OpenAIEngine) and judge.engine.capabilities.prefill
    prompter = JudgePrompter(None)
    prompt = prompter.render(DIALOGUE, ASKED[0].criterion)
    assert isinstance(prompt, Prompt)
    table = prompter.table(ASKED[0].criterion.labels, prompt.nonce)
    (read,) = judge.engine.label_logprobs([prompt], [table])
    assert isinstance(read, LabelReading) and read.bound is None
    assert read.logprobs["N"] == pytest.approx(math.log(0.2))
    sent = server.requests[-1]
    assert sent["messages"][-1] == {"role": "assistant", "content": f"verdict[{prompt.nonce}]="}
    assert (sent["max_tokens"], sent["continue_final_message"]) == (1, True)
    (found,) = judge.verdicts(ASKED)
    assert isinstance(found, Scored) and found.value == pytest.approx(0.7 / 0.9)
    assert server.requests[-1]["messages"] == sent["messages"]  # direct mode: one request, the label alone


def test_a_critique_without_a_verdict_line_is_given_the_lead_in_after_its_notes(
    http: Any, server: Any
) -> None:
    continuing = Continuing(http)

    def rambling(body: Body) -> Reply:
        if len(server.requests) == probing + 1:
            choice = {"message": {"content": "notes: it is fine "}, "finish_reason": "length"}
            return 200, {}, {"choices": [choice], "model": "m"}
        return continuing(body)

    server.answers = [continuing]
    judge = RewardModel.connect(server.url, model="m", mode="critique", min_mass=0.8, **quick())
    probing, server.answers = len(server.requests), [rambling]
    (found,) = judge.verdicts(ASKED)
    assert isinstance(found, Scored) and found.critique == "it is fine"
    assert "critique_truncated" in found.flags
    begun = server.requests[-1]["messages"][-1]
    assert begun["content"].startswith("notes: it is fine\nverdict[") and len(server.requests) == probing + 2
    (written,) = judge.verdicts(ASKED)  # with a verdict line of its own: read there, nothing forced
    assert isinstance(written, Scored) and len(server.requests) == probing + 3


class Completing:
    """A server of completions that takes and names token ids, as vLLM does."""

    def __init__(self, tokenizer: Any, *, exact: bool = True, foreign: bool = False) -> None:
        self.tokenizer, self.exact, self.foreign = tokenizer, exact, foreign

    def __call__(self, body: Body) -> Reply:
        ids = body["prompt"]
        text = "" if not body.get("echo") else self.tokenizer.decode(ids)
        choice: Body = {"text": text[::-1] if self.foreign else text, "finish_reason": "stop"}
        if "logprobs" in body:
            wanted = body["logprob_token_ids"] if self.exact else [*body["logprob_token_ids"][:2], 7]
            spread = dict(zip(wanted, (0.7, 0.2, 0.05), strict=True))
            top = {f"token_id:{i}": math.log(p) for i, p in spread.items()}
            choice |= {"logprobs": {"tokens": [next(iter(top))], "top_logprobs": [top]}, "token_ids": [9]}
        if body.get("return_token_ids"):
            choice["token_ids"] = [*self.tokenizer.encode("notes"), self.tokenizer.eos_token_id]
        return 200, {}, {"choices": [choice], "model": "m"}


@pytest.fixture()
def saved(tiny_tokenizer: Any, tmp_path: Path) -> Path:
    tiny_tokenizer.save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("exact", [True, False])
def test_with_a_tokenizer_prompts_are_the_ids_of_a_local_judge(
    server: Any, saved: Path, tiny_tokenizer: Any, exact: bool
) -> None:
    server.answers, server.models = [Completing(tiny_tokenizer, exact=exact)], LISTED
    judge = RewardModel.connect(server.url, model="m", tokenizer=saved, min_mass=0.8, **quick())
    assert isinstance(judge.engine, OpenAIEngine) and judge.prompter is not None
    assert judge.engine.capabilities.logprobs == ("exact" if exact else "topk")
    (found,) = judge.verdicts(ASKED)
    assert isinstance(found, Scored)
    assert ("mass_bound" in found.flags) is not exact
    assert found.value == pytest.approx(0.7 / 0.9)
    prompt = JudgePrompter(tiny_tokenizer).render(DIALOGUE, ASKED[0].criterion)
    assert isinstance(prompt, Prompt)
    table = judge.prompter.table(ASKED[0].criterion.labels, prompt.nonce)
    assert server.requests[-1]["prompt"] == [*prompt.ids, *table.lead_in_ids]
    (written,) = judge.engine.generate([prompt], Sampling())
    assert written == Generation("notes", tuple(tiny_tokenizer.encode("notes")), "stop")
    long = Prompt(prompt.ids * 9, (), prompt.messages, prompt.nonce)
    before = len(server.requests)
    (refused,) = judge.engine.generate([long], Sampling())
    assert isinstance(refused, Failed) and refused.kind == "context_overflow"
    assert len(server.requests) == before  # known without asking


def test_a_foreign_tokenizer_is_found_out(server: Any, saved: Path, tiny_tokenizer: Any) -> None:
    server.answers = [Completing(tiny_tokenizer, foreign=True)]
    with pytest.raises(ConfigError, match="give the tokenizer of 'm'"):
        RewardModel.connect(server.url, model="m", tokenizer=saved, **quick())


def _refusing(http: Any, word: str, then: Any) -> Any:
    """400 for each request that holds a field or value named ``word``."""

    def answer(body: Body) -> Reply:
        if word in body or str(body.get("top_logprobs")) == word:
            return 400, {}, {"error": {"message": f"{word} unsupported: logprobs, max_completion_tokens"}}
        reply: Reply = then(body)
        return reply

    return answer


def test_the_server_says_how_many_alternatives_and_which_budget_it_takes(http: Any, server: Any) -> None:
    server.answers = [_refusing(http, "max_tokens", _refusing(http, "20", http.verdict("Y", **LIKELY)))]
    engine = OpenAIEngine(server.url, "m", HttpLimits(**quick()))
    facts = engine.probe()
    assert (facts.top, facts.budget) == (10, "max_completion_tokens")
    assert isinstance(engine.generate([_prompt()], Sampling())[0], Generation)
    assert "max_tokens" not in server.requests[-1] and server.requests[-1]["top_logprobs"] == 10


def _prompt() -> Prompt:
    made = JudgePrompter(None).render(DIALOGUE, ASKED[0].criterion)
    assert isinstance(made, Prompt)
    return made


def test_a_server_without_logprobs_serves_the_sampled_readout_only(http: Any, server: Any) -> None:
    for bare in (http.verdict("Y", logprobs=False), http.verdict("Y", Y=1.0)):
        server.answers = [bare]
        with pytest.raises(ConfigError, match="readout='sampled'"):
            RewardModel.connect(server.url, model="m", **quick())
    judge = RewardModel.connect(server.url, model="m", readout="sampled", **quick())
    assert "logprobs" not in server.requests[-1]
    (found,) = judge.verdicts(ASKED)
    assert isinstance(found, Scored) and found.readout == "sampled"
    (failed,) = judge.with_settings(readout="expected").verdicts(ASKED)
    assert isinstance(failed, Failed) and failed.kind == "no_logprobs"


def test_a_label_that_shares_its_token_is_found_out(http: Any, server: Any) -> None:
    def glued(body: Body) -> Reply:
        pieces = [f"verdict[{http.nonce_of(body)}", "]=Y"]
        content = http.entries(pieces, "]=Y", {"]=Y": 0.9, "]=N": 0.1})
        choice = {"message": {"content": "".join(pieces)}, "logprobs": {"content": content}}
        return 200, {}, {"choices": [choice], "model": "m"}

    server.answers = [glued]
    with pytest.raises(ConfigError, match="no token of its own"):
        RewardModel.connect(server.url, model="m", **quick())


def test_a_wrong_set_up_is_an_error_with_its_remedy(http: Any, server: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    good = http.verdict("Y", **LIKELY)
    wrong = http.verdict("Y", model="other", **LIKELY)
    for models, answer, words in [
        ((200, {}, {"data": [{"id": "llama"}, {"id": "qwen"}]}), good, "no model 'm' there.*'llama', 'qwen'"),
        ((401, {}, {"error": "bad key sk-secret"}), good, "set OPENAI_API_KEY"),
        (LISTED, http.status(404, {"error": "chat is off"}), "HTTP 404: chat is off"),
        (LISTED, http.status(400, {"error": "no seeds here"}), "HTTP 400: no seeds here"),
        (LISTED, wrong, "answered by model 'other' instead of 'm'"),
        (LISTED, http.status(200, b"<html>"), "the reply is no JSON"),
    ]:
        server.models, server.answers = models, [answer]
        with pytest.raises(ConfigError, match=words) as caught:
            RewardModel.connect(server.url, model="m", **quick())
        assert "sk-secret" not in str(caught.value)


def test_no_server_is_an_error_and_one_of_two_is_enough(http: Any, server: Any) -> None:
    away = "http://127.0.0.1:9/v1"
    with pytest.raises(JudgeError, match=r"no judge server answers: http://127.0.0.1:9/v1: unreachable"):
        RewardModel.connect(away, model="m", **quick())
    server.answers = [http.status(503)]
    with pytest.raises(JudgeError, match="unreachable: HTTP 503"):
        RewardModel.connect([server.url, away], model="m", **quick())
    server.answers = [http.verdict("Y", **LIKELY)]
    judge = RewardModel.connect([away, server.url], model="m", **quick(attempts=4))
    found = judge.verdicts(ASKED * 12)
    assert all(isinstance(v, Scored) for v in found)


def test_servers_that_answer_in_different_ways_are_no_one_judge(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", **LIKELY)]
    with http.serving(http.Script()) as other:
        other.answers = [Continuing(http)]
        with pytest.raises(ConfigError, match="different ways"):
            RewardModel.connect([server.url, other.url], model="m", **quick())


def test_the_examples_of_the_page_run(http: Any, server: Any, capsys: Any, one_theorem: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "judge.md"
    section = page.read_text(encoding="utf-8").split("\n## HTTP servers\n")[1].split("\n## ")[0]
    server.answers = [http.verdict("Y", model="judge", **LIKELY)]
    names = {
        "RewardModel": RewardModel,
        "rubric": Rubric.loads(one_theorem, "one.yaml"),
        "trajectory": DIALOGUE,
    }
    for block in re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL):
        exec(re.sub(r"http://127.0.0.1:800\d/v1", server.url, block), names)
    assert "route='chat'" in capsys.readouterr().out
