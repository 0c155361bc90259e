"""The HTTP engine against a scripted server on the loopback interface."""

import json
import math
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed, Scored
from axiomrm.errors import ConfigError
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.engines.openai import HttpLimits, OpenAIEngine

Reply = tuple[int, dict[str, str], Any]
DIALOGUE = Trajectory(
    messages=(Message(role="user", content="hi"), Message(role="assistant", content="hello"))
)
ASKED = [VerdictRequest(DIALOGUE, Criterion("c", "Is it polite?"))]
KEY = "sk-do-not-log-me"


class Script:
    """What the server answers, in order; the last answer is repeated."""

    def __init__(self) -> None:
        self.answers: list[Callable[[dict[str, Any]], Reply]] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""


@pytest.fixture()
def server() -> Iterator[Script]:
    script = Script()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            script.requests.append(body)
            script.headers.append(dict(self.headers))
            answer = script.answers[min(len(script.requests), len(script.answers)) - 1]
            code, headers, reply = answer(body)
            if code == 0:
                self.connection.close()
                return
            payload = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(code)
            for name, value in {**headers, "Content-Length": str(len(payload))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script.url = f"http://127.0.0.1:{http.server_port}/v1"
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield script
    http.shutdown()
    http.server_close()


def verdict(label: str, logprobs: bool = True, **p: float) -> Callable[[dict[str, Any]], Reply]:
    """A well-behaved chat reply: the judge writes its verdict line, label as a token of its own."""

    def answer(body: dict[str, Any]) -> Reply:
        nonce = body["messages"][-1]["content"].rpartition("verdict[")[2].partition("]")[0]
        pieces = ["verdict[", nonce, "]=", label]
        top = [{"token": k, "logprob": math.log(v)} for k, v in p.items()]
        content = [{"token": t, "logprob": 0.0, "top_logprobs": top if t == label else []} for t in pieces]
        choice: dict[str, Any] = {"message": {"content": "".join(pieces)}, "finish_reason": "stop"}
        if logprobs:
            choice["logprobs"] = {"content": content}
        return 200, {}, {"choices": [choice], "model": "m"}

    return answer


def status(code: int, reply: Any = b"", **headers: str) -> Callable[[dict[str, Any]], Reply]:
    return lambda _: (code, {k.replace("_", "-"): v for k, v in headers.items()}, reply)


def judge(script: Script, deadline: float = 5.0, **options: Any) -> RewardModel:
    model = RewardModel.connect(script.url, model="m", **options)
    model.engine = OpenAIEngine(script.url, "m", HttpLimits(deadline_s=deadline, first_wait_s=0.01))
    return model


def test_a_verdict_is_read_at_its_own_position(server: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answers = [verdict("Y", Y=0.9, N=0.08, X=0.01)]
    (found,) = judge(server, min_mass=0.8).verdicts(ASKED)
    assert isinstance(found, Scored)
    assert found.value == pytest.approx(0.9 / 0.98)
    assert found.captured_mass == pytest.approx(0.99)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert server.requests[0]["top_logprobs"] == 20


def test_missing_logprobs_are_an_explicit_failure_and_sampling_must_be_asked_for(server: Script) -> None:
    server.answers = [verdict("Y", logprobs=False)]
    (found,) = judge(server).verdicts(ASKED)
    assert isinstance(found, Failed) and found.kind == "no_logprobs"
    (sampled,) = judge(server, readout="sampled").verdicts(ASKED)
    assert isinstance(sampled, Scored)
    assert (sampled.value, sampled.readout, sampled.captured_mass) == (1.0, "sampled", None)


def test_retries_follow_the_server_and_end_in_a_verdict(server: Script) -> None:
    server.answers = [status(429, Retry_After="0.02"), status(500), status(0), verdict("N", Y=0.1, N=0.89)]
    (found,) = judge(server).verdicts(ASKED)
    assert isinstance(found, Scored)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (status(429, Retry_After="99"), "rate_limited"),
        (status(503), "unreachable"),
        (status(500), "engine_error"),
        (status(400, {"error": "maximum context length is 4096 tokens"}), "context_overflow"),
        (status(422, {"error": "unknown role"}), "bad_input"),
        (status(401, {"error": "wrong key"}), "bad_input"),
        (status(200, b"{not json"), "engine_error"),
        (status(200, {"choices": []}), "engine_error"),
        (
            status(200, {"choices": [{"message": {"content": "I like it."}, "finish_reason": "stop"}]}),
            "no_verdict",
        ),
        (
            status(200, {"choices": [{"message": {"content": "notes"}, "finish_reason": "length"}]}),
            "truncated",
        ),
        (
            status(200, {"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]}),
            "refused",
        ),
    ],
)
def test_each_fault_has_its_kind_within_the_deadline(
    server: Script, answer: Callable[[dict[str, Any]], Reply], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answers = [answer]
    (found,) = judge(server, deadline=0.3).verdicts(ASKED)
    assert isinstance(found, Failed)
    assert found.kind == kind
    assert KEY not in found.detail


def test_a_hanging_server_is_a_timeout(server: Script) -> None:
    release = threading.Event()

    def hang(_: dict[str, Any]) -> Reply:
        release.wait(5)
        return 200, {}, {}

    server.answers = [hang]
    (found,) = judge(server, deadline=0.3).verdicts(ASKED)
    release.set()
    assert isinstance(found, Failed) and (found.kind, found.retryable) == ("timeout", True)


def test_nobody_listening_is_unreachable() -> None:
    model = RewardModel.connect("http://127.0.0.1:9/v1", model="m")
    model.engine = OpenAIEngine("http://127.0.0.1:9/v1", "m", HttpLimits(deadline_s=0.2, first_wait_s=0.05))
    (found,) = model.verdicts(ASKED)
    assert isinstance(found, Failed) and found.kind == "unreachable"


def test_one_bad_reply_of_many_fails_alone(server: Script) -> None:
    good, bad = verdict("Y", Y=0.9, N=0.08), status(422, {"error": "no"})

    def mixed(body: dict[str, Any]) -> Reply:
        return (bad if "number 3?" in body["messages"][-1]["content"] else good)(body)

    server.answers = [mixed]
    asked = [VerdictRequest(DIALOGUE, Criterion(str(i), f"Is it number {i}?")) for i in range(8)]
    found = judge(server).verdicts(asked)
    assert [isinstance(v, Failed) for v in found] == [i == 3 for i in range(8)]


def test_the_revision_names_no_user_info_and_a_bad_url_is_refused() -> None:
    plain = RewardModel.connect("http://host:1/v1", model="m").judge_revision
    assert RewardModel.connect("http://user:pass@host:1/v1", model="m").judge_revision == plain
    assert RewardModel.connect("http://host:1/v1", model="other").judge_revision != plain
    with pytest.raises(ConfigError, match="http"):
        RewardModel.connect("host:1", model="m")
