"""The HTTP engine against a scripted server on the loopback interface."""

import asyncio
import logging
import math
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed, Scored
from axiomrm.errors import ConfigError
from axiomrm.rm import Criterion, JudgePrompter, VerdictRequest
from axiomrm.rm.asking import Asking, ask
from axiomrm.rm.engines.base import Generation, Prompt, Sampling
from axiomrm.rm.engines.http_limits import HttpLimits
from axiomrm.rm.engines.openai import OpenAIEngine

SECRET_WORDS = "my sister Annabel lives in Ghent"
DIALOGUE = Trajectory(
    messages=(Message(role="user", content=SECRET_WORDS), Message(role="assistant", content="hello"))
)
KEY = "sk-do-not-log-me"
PROMPTER = JudgePrompter(None)
GREEDY = Sampling(max_new_tokens=24, temperature=0.0)
Reply = tuple[int, dict[str, str], Any]


def request(question: str = "Is it polite?") -> VerdictRequest:
    return VerdictRequest(DIALOGUE, Criterion("c", question))


def prompt(question: str = "Is it polite?") -> Prompt:
    made = PROMPTER.render(DIALOGUE, Criterion("c", question))
    assert isinstance(made, Prompt)
    return made


def engine(*servers: Any, deadline: float = 5.0, **limits: Any) -> OpenAIEngine:
    quick = HttpLimits(**{"deadline_s": deadline, "first_wait_s": 0.01, "longest_wait_s": 0.05, **limits})
    return OpenAIEngine([server.url for server in servers], "m", quick)


def kinds(found: Sequence[Generation | Failed]) -> list[str]:
    return [row.kind if isinstance(row, Failed) else "ok" for row in found]


def test_a_verdict_is_read_at_its_own_position(http: Any, server: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.answers = [http.verdict("Y", Y=0.9, N=0.08, X=0.01)]
    (found,) = ask(engine(server), PROMPTER, [request()], Asking(min_mass=0.8))
    assert isinstance(found, Scored)
    assert found.value == pytest.approx(0.9 / 0.98)
    assert found.captured_mass == pytest.approx(0.99)
    assert "mass_bound" not in found.flags
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert (server.requests[0]["top_logprobs"], server.paths) == (20, ["/v1/chat/completions"])


def test_an_unlisted_label_makes_the_mass_a_lower_bound(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", Y=0.9, the=0.06, N=0.03)]
    (found,) = ask(engine(server), PROMPTER, [request()], Asking(min_mass=0.8))
    assert isinstance(found, Scored)
    assert found.captured_mass == pytest.approx(0.93)
    assert "mass_bound" in found.flags


def test_missing_logprobs_are_an_explicit_failure_and_sampling_must_be_asked_for(
    http: Any, server: Any
) -> None:
    for bare in (http.verdict("Y", logprobs=False), http.verdict("Y", Y=0.9)):  # none; one alternative
        server.answers = [bare]
        (found,) = ask(engine(server), PROMPTER, [request()], Asking())
        assert isinstance(found, Failed) and found.kind == "no_logprobs"
    (sampled,) = ask(engine(server), PROMPTER, [request()], Asking(readout="sampled"))
    assert isinstance(sampled, Scored)
    assert (sampled.value, sampled.readout, sampled.captured_mass) == (1.0, "sampled", None)


@pytest.mark.parametrize("bare", [{"logprobs": False}, {"Y": 0.9}])  # none; one alternative
def test_one_sample_without_logprobs_leaves_the_others_alone(
    http: Any, server: Any, bare: dict[str, Any]
) -> None:
    good = http.verdict("Y", Y=0.9, N=0.09)
    server.answers = [good, http.verdict("Y", **bare), good]
    how = Asking(mode="critique", min_mass=0.8)
    asked = VerdictRequest(DIALOGUE, Criterion("c", "Is it polite?"), votes=5)
    (found,) = ask(engine(server, concurrency=1), PROMPTER, [asked], how)
    assert isinstance(found, Scored)
    assert (found.n, found.flags) == (4, ("failed_readings", "mass_bound"))
    # X is not listed: at most .01 and counted as .005, and the value is without it
    assert found.value == pytest.approx(0.9 / 0.99)


def test_retries_follow_the_server_and_end_in_a_verdict(http: Any, server: Any) -> None:
    good = http.verdict("N", Y=0.1, N=0.89)
    bad = [http.status(429, Retry_After="0.2"), http.status(500), http.status(http.CUT), http.status(503)]
    server.answers = [*bad, http.status(http.CUT_INSIDE, b'{"choices": ['), good]
    judge = engine(server)
    assert kinds(judge.generate([prompt()], GREEDY)) == ["ok"]
    assert server.times[1] - server.times[0] >= 0.2
    assert judge.usage == {
        "requests": 6,
        "retries": 5,
        "prompt_tokens": 100,
        "completion_tokens": 4,
    }


def chat(**choice: Any) -> Callable[[Any], Reply]:
    return lambda _: (200, {}, {"choices": [choice], "model": "m"})


def _bodies(text: str) -> dict[str, Any]:
    return {"message": {"content": text}, "finish_reason": "stop"}


FAULTS: list[tuple[Callable[[Any], Any], str, int]] = [
    (lambda h: h.status(429, Retry_After="99"), "rate_limited", 1),
    (lambda h: h.status(429, {"error": {"code": "insufficient_quota"}}), "rate_limited", 1),
    (lambda h: h.status(503), "unreachable", 4),
    (lambda h: h.status(504), "timeout", 4),
    (lambda h: h.status(500), "engine_error", 4),
    (lambda h: h.status(h.CUT), "unreachable", 4),
    (lambda h: h.status(h.CUT_INSIDE, b'{"cho'), "unreachable", 4),
    (lambda h: h.status(400, {"error": "maximum context length is 4096 tokens"}), "context_overflow", 1),
    (lambda h: h.status(413, b"too large"), "context_overflow", 1),
    (lambda h: h.status(422, {"error": "unknown role"}), "bad_input", 1),
    (lambda h: h.status(400, {"error": {"code": "content_filter"}}), "refused", 1),
    (lambda h: h.status(401, {"error": "wrong key"}), "engine_error", 1),
    (lambda h: h.status(404, {"error": "no such model"}), "engine_error", 1),
    (lambda h: h.status(307, b"", Location="http://127.0.0.1:9/"), "engine_error", 1),
    (lambda h: h.status(200, b"{not json"), "engine_error", 3),
    (lambda h: h.status(200, b"<html>welcome</html>"), "engine_error", 3),
    (lambda h: h.status(200, b'{"choices": [NaN]}'), "engine_error", 3),
    (lambda h: h.status(200, b"[" * 100_000), "engine_error", 3),
    (lambda h: h.status(200, {"choices": []}), "engine_error", 3),
    (lambda h: h.status(200, ["choices"]), "engine_error", 3),
    (lambda h: h.verdict("Y", model="another", Y=0.9, N=0.1), "engine_error", 3),
    (lambda h: chat(message={"content": ["a"]}), "engine_error", 3),
    (lambda h: chat(message={"content": "a"}, finish_reason="abort"), "engine_error", 4),
    (lambda h: chat(message={"content": None}, finish_reason="content_filter"), "refused", 1),
    (lambda h: chat(message={"content": None, "refusal": "I will not"}), "refused", 1),
]


@pytest.mark.parametrize(("fault", "kind", "sends"), FAULTS)
def test_each_fault_has_its_kind_within_the_deadline(
    http: Any, server: Any, fault: Callable[[Any], Any], kind: str, sends: int
) -> None:
    server.answers = [fault(http)]
    started = time.monotonic()
    assert kinds(engine(server, deadline=6.0, attempts=4).generate([prompt()], GREEDY)) == [kind]
    assert time.monotonic() - started < 6.0
    assert len(server.requests) == sends


@pytest.mark.parametrize(
    ("text", "reason", "kind"),
    [("I like it.", "stop", "no_verdict"), ("notes: it", "length", "truncated"), ("", "stop", "no_verdict")],
)
def test_an_answer_without_a_verdict_is_no_engine_fault(
    server: Any, text: str, reason: str, kind: str
) -> None:
    server.answers = [chat(message={"content": text}, finish_reason=reason)]
    (found,) = ask(engine(server), PROMPTER, [request()], Asking())
    assert isinstance(found, Failed) and found.kind == kind
    assert len(server.requests) == 1


def test_a_hanging_or_dripping_server_is_a_timeout(http: Any, server: Any) -> None:
    for slow in (http.after(5, http.status(200, {})), _dripping):
        server.answers = [slow]
        started = time.monotonic()
        assert kinds(engine(server, deadline=0.3).generate([prompt()], GREEDY)) == ["timeout"]
        assert time.monotonic() - started < 4


def _dripping(_: Any) -> Reply:
    time.sleep(0.2)
    return 200, {"Content-Length": "99"}, b"{"  # the rest never comes


def test_nobody_listening_is_unreachable_and_soon_no_longer_asked() -> None:
    judge = OpenAIEngine("http://127.0.0.1:9/v1", "m", HttpLimits(deadline_s=3, first_wait_s=0.1))
    started = time.monotonic()
    assert kinds(judge.generate([prompt()] * 200, GREEDY)) == ["unreachable"] * 200
    # 200 / 8 in flight * 3 s would be 75 s without the breaker.
    assert time.monotonic() - started < 25
    assert judge.usage["requests"] < 100


def test_one_bad_reply_of_many_fails_alone_and_order_is_kept(http: Any, server: Any) -> None:
    def mixed(body: Any) -> Reply:
        time.sleep(random.uniform(0, 0.02))
        bad = "number 3?" in body["messages"][-1]["content"]
        reply: Reply = (http.status(422, {"error": "no"}) if bad else chat(**_bodies(_number(body))))(body)
        return reply

    server.answers = [mixed]
    found = engine(server).generate([prompt(f"Is it number {i}?") for i in range(30)], GREEDY)
    texts = [row.text if isinstance(row, Generation) else row.kind for row in found]
    assert texts == [str(i) if i != 3 else "bad_input" for i in range(30)]


def _number(body: Any) -> str:
    return str(body["messages"][-1]["content"].rpartition("number ")[2].partition("?")[0])


OUTCOMES = ("ok", "bad_input", "context_overflow", "engine_error", "refused")


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(OUTCOMES), st.integers(0, 12), st.integers(0, 2)), max_size=12))
def test_results_keep_their_order_and_kind_under_any_latencies_and_failures(
    http: Any, server: Any, plan: list[tuple[str, int, int]]
) -> None:
    hiccups = {i: failing for i, (_, _, failing) in enumerate(plan)}
    replies = {
        "bad_input": http.status(422, {"error": "no"}),
        "context_overflow": http.status(400, {"error": "prompt is too long"}),
        "engine_error": http.status(403),
        "refused": chat(message={"content": None}, finish_reason="content_filter"),
    }

    def planned(body: Any) -> Reply:
        number = int(_number(body))
        outcome, late, _ = plan[number]
        time.sleep(late / 1000)
        with server.lock:
            hiccups[number] -= 1
            if hiccups[number] >= 0:
                return 429, {}, b""
        reply: Reply = replies[outcome](body) if outcome != "ok" else chat(**_bodies(str(number)))(body)
        return reply

    server.answers = [planned]
    judge = engine(server, first_wait_s=0.001)
    found = judge.generate([prompt(f"Is it number {i}?") for i in range(len(plan))], GREEDY)
    judge.close()
    assert kinds(found) == [outcome for outcome, _, _ in plan]
    assert all(row.text == str(i) for i, row in enumerate(found) if isinstance(row, Generation))


def test_requests_overlap_up_to_the_limit(http: Any, server: Any) -> None:
    together = threading.Barrier(4)

    def meeting(body: Any) -> Reply:
        together.wait(20)
        reply: Reply = http.verdict("Y", Y=0.9, N=0.1)(body)
        return reply

    server.answers = [meeting]
    judge = engine(server, concurrency=4, deadline=30)
    assert kinds(judge.generate([prompt(f"Is it number {i}?") for i in range(12)], GREEDY)) == ["ok"] * 12
    assert server.most_active == 4


def test_overlapping_requests_take_less_time_than_one_after_the_other(http: Any, server: Any) -> None:
    server.answers = [http.after(0.2, http.verdict("Y", Y=0.9, N=0.1))]
    seconds = {}
    for concurrency in (1, 8):
        judge = engine(server, concurrency=concurrency, deadline=30)
        judge.generate([prompt()], GREEDY)
        started = time.monotonic()
        judge.generate([prompt(f"Is it number {i}?") for i in range(8)], GREEDY)
        seconds[concurrency] = time.monotonic() - started
    assert seconds[1] / seconds[8] > 1.5  # 8 at best; a busy machine eats much of it


def test_429_halves_the_requests_in_flight(http: Any, server: Any) -> None:
    server.answers = [http.status(429), http.verdict("Y", Y=0.9, N=0.1)]
    judge = engine(server, concurrency=8)
    assert kinds(judge.generate([prompt()], GREEDY)) == ["ok"]
    assert judge.endpoints[0].concurrency.limit == 4


def test_the_request_rate_is_kept(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", Y=0.9, N=0.1)]
    judge = engine(server, rpm=300, deadline=1.0)  # 5 a second; waiting for one's own limit is no timeout
    started = time.monotonic()  # not the first arrival, which is late on a busy machine
    assert kinds(judge.generate([prompt(f"Is it number {i}?") for i in range(14)], GREEDY)) == ["ok"] * 14
    assert server.times[-1] - started > 0.9 * 9 / 5  # one second's worth goes out at once


def test_a_broken_endpoint_is_replaced_by_the_other(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", Y=0.9, N=0.1)]
    hanging = http.after(4, http.status(500))
    with http.serving(http.Script()) as broken:
        for fault, deadline in ((http.status(500), 30.0), (http.status(http.CUT), 30.0), (hanging, 4.0)):
            broken.answers, broken.requests = [fault], []
            judge = engine(broken, server, deadline=deadline)  # half of it for the one that hangs
            found = judge.generate([prompt(f"Is it number {i}?") for i in range(16)], GREEDY)
            assert kinds(found) == ["ok"] * 16
            assert len(broken.requests) <= 12  # the breaker opens after five, eight were in flight
            judge.close()


def test_a_revived_endpoint_is_found_by_one_trial_request(http: Any, server: Any) -> None:
    server.answers = [http.status(503)]
    judge = engine(server, deadline=5.0, attempts=7)
    judge.generate([prompt()], GREEDY)
    breaker = judge.endpoints[0].breaker
    assert breaker.open
    server.answers = [http.after(0.05, http.verdict("Y", Y=0.9, N=0.1))]
    server.most_active, before = 0, len(server.requests)
    found: list[Any] = []
    breaker.retry_at = time.monotonic() + 0.1
    found = judge.generate([prompt(f"Is it number {i}?") for i in range(8)], GREEDY)
    assert kinds(found) == ["ok"] * 8
    assert not breaker.open
    assert server.times[before + 1] - server.times[before] > 0.045  # the others waited for the trial


def test_both_endpoints_work_and_one_conversation_stays_at_one(http: Any, server: Any) -> None:
    with http.serving(http.Script()) as other:
        for script in (server, other):
            script.answers = [http.after(0.01, http.verdict("Y", Y=0.9, N=0.1))]
        judge = engine(server, other, concurrency=4)
        same = [prompt(f"Is it number {i}?") for i in range(4)]
        for one in same:
            judge.generate([one], GREEDY)
        assert sorted([len(server.requests), len(other.requests)]) == [0, 4]
        judge.generate([prompt(f"Is it number {i}?") for i in range(40)], GREEDY)
        assert min(len(server.requests), len(other.requests)) > 8  # busy, so the other helps


def test_neither_key_nor_prompt_is_told_to_anyone(
    http: Any, server: Any, monkeypatch: Any, caplog: Any, capfd: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    caplog.set_level(logging.DEBUG)

    def echo(body: Any) -> Reply:
        sent = body["messages"][-1]["content"]
        return 400, {}, {"error": {"message": f"bad: {sent!r} from Bearer {KEY}", "input": sent}}

    url = server.url.replace("http://", "http://ann:pa55word@")
    with http.serving(http.Script()) as plain:
        plain.answers = [echo, http.status(500, echo({"messages": [{"content": SECRET_WORDS}]})[2])]
        plain.answers += [http.status(http.CUT), http.status(200, SECRET_WORDS.encode()), echo]
        server.answers = [echo]
        judges = [engine(plain), OpenAIEngine(url, "m", HttpLimits(deadline_s=5))]
        found = [row for judge in judges for row in judge.generate([prompt()] * 3, GREEDY)]
    assert all(isinstance(row, Failed) for row in found)
    basic = server.headers[0]["Authorization"]
    assert basic.startswith("Basic ")
    told = [str(found), str([judge.identity for judge in judges]), repr(judges), repr(judges[1].endpoints)]
    told += [caplog.text, *capfd.readouterr(), str([dict(judge.usage) for judge in judges])]
    for secret in (KEY, "pa55word", "Annabel", "Ghent", basic.partition(" ")[2]):
        assert not any(secret in text for text in told), secret


def test_it_works_inside_a_running_loop_and_from_many_threads(http: Any, server: Any) -> None:
    server.answers = [http.after(0.01, http.verdict("Y", Y=0.9, N=0.1))]
    judge = engine(server)

    async def notebook() -> list[Any]:
        return list(judge.generate([prompt()], GREEDY))

    assert kinds(asyncio.run(notebook())) == ["ok"]
    results: list[list[str]] = []
    work = lambda: results.append(kinds(judge.generate([prompt()] * 5, GREEDY)))  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [["ok"] * 5] * 4


def test_ctrl_c_drops_the_requests_and_the_engine_goes_on(http: Any, server: Any) -> None:
    def interrupt(_: Any) -> Reply:
        if len(server.requests) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
        return 500, {}, b""

    server.answers = [interrupt]
    judge = engine(server, concurrency=2)
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        judge.generate([prompt()] * 50, GREEDY)
    assert time.monotonic() - started < 4.5
    assert len(server.requests) == 2  # the queued ones are never sent
    server.answers = [http.verdict("Y", Y=0.9, N=0.1)]
    assert kinds(judge.generate([prompt()], GREEDY)) == ["ok"]
    assert judge.endpoints[0].in_flight == 0


def test_closing_from_another_thread_leaves_cancelled_rows(http: Any, server: Any) -> None:
    def closing(_: Any) -> Reply:
        threading.Thread(target=judge.close).start()
        time.sleep(5)
        return 500, {}, b""

    server.answers = [http.verdict("Y", Y=0.9, N=0.1), closing]
    judge = engine(server, concurrency=1)
    assert kinds(judge.generate([prompt()] * 4, GREEDY)) == ["ok", "cancelled", "cancelled", "cancelled"]


def test_a_forked_child_has_connections_of_its_own(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", Y=0.9, N=0.1)]
    script = f"""
        import os
        from axiomrm.rm.engines.base import Prompt, Sampling
        from axiomrm.rm.engines.openai import OpenAIEngine
        engine = OpenAIEngine({server.url!r}, "m")
        prompt = Prompt((), (), ({{"role": "user", "content": "verdict[gamu]="}},), "gamu")
        ask = lambda: type(engine.generate([prompt], Sampling())[0]).__name__
        print(ask(), flush=True)
        if os.fork() == 0:
            print(ask(), flush=True)
            os._exit(0)
        os.wait()
        print(ask(), flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == ["Generation"] * 3, done.stderr


def test_copies_of_a_prompt_get_seeds_of_their_own(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", Y=0.9, N=0.1)]
    engine(server, concurrency=1).generate([prompt(), prompt("Is it?"), prompt()], Sampling(seed=7))
    first, other, second = [body["seed"] for body in server.requests]
    assert (first, other) == (7, 7) and second != 7


def test_runs_with_neighbouring_seeds_share_no_sample(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", Y=0.9, N=0.1)]
    for seed in (0, 1, 2):
        engine(server).generate([prompt()] * 5, Sampling(seed=seed))
    assert len({body["seed"] for body in server.requests}) == 15


def test_half_a_surrogate_pair_stops_nobody(http: Any, server: Any) -> None:
    server.answers = [http.verdict("Y", Y=0.9, N=0.1)]
    odd = Prompt((), (), ({"role": "user", "content": "\ud83d verdict[gamu]="},), "gamu")
    assert kinds(engine(server).generate([odd, prompt()], GREEDY)) == ["ok", "ok"]


def test_the_identity_names_no_user_info_and_bad_settings_are_refused(monkeypatch: Any) -> None:
    plain = OpenAIEngine("http://host:1/v1", "m").identity
    assert OpenAIEngine("http://user:pass@host:1/v1/", "m").identity == plain
    assert OpenAIEngine("http://host:1/v1", "other").identity != plain
    for url in ("host:1", "ftp://host/v1", "http://host:x/v1", "http://ann:pa55@/v1", "http://h/v1?key=pa55"):
        with pytest.raises(ConfigError, match="judge url") as caught:
            OpenAIEngine(url, "m")
        assert "pa55" not in str(caught.value)
    nothing: list[str] = []
    for urls, model in ((nothing, "m"), (["http://host/v1"], "")):
        with pytest.raises(ConfigError, match="expected a model name and a URL"):
            OpenAIEngine(urls, model)
    bad: dict[str, Any] = {"deadline_s": 0, "concurrency": 1.5, "rpm": -1, "tpm": math.nan}
    for name, value in bad.items():
        with pytest.raises(ConfigError, match=name):
            HttpLimits(**{name: value})
    monkeypatch.setenv("OPENAI_API_KEY", "sk-pa55\nX-Other: 1")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as caught:
        OpenAIEngine("http://host/v1", "m")
    assert "pa55" not in str(caught.value)
