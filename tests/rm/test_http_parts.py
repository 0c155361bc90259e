"""The parts of the HTTP engine that need no server: pacing, breaker, faults, replies."""

import json
import math
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import Generation, LabelReading, TokenLogprobs
from axiomrm.rm.engines.http_faults import Fault, quoting, retry_after, status_fault
from axiomrm.rm.engines.http_limits import Deadline, HttpLimits
from axiomrm.rm.engines.http_pacing import FAULTS_TO_OPEN, Breaker, Concurrency, TokenBucket
from axiomrm.rm.engines.http_pool import Endpoint, Pool
from axiomrm.rm.engines.http_replies import aligned, chat_generation, completion_label, same_model
from axiomrm.rm.labels import BINARY, LabelTable
from axiomrm.rm.positions import reading_at_label, top_reading


@given(st.lists(st.floats(0, 3), min_size=1, max_size=60), st.sampled_from([30, 60, 600]))
def test_no_minute_sees_more_than_the_rate_and_one_second_more(gaps: list[float], per_minute: int) -> None:
    bucket, now, sent = TokenBucket(per_minute), 100.0, []
    for gap in gaps:
        now += gap
        sent.append(now + bucket.take(1, now))
    assert sent == sorted(sent)
    most = per_minute + max(1, per_minute / 60)
    for start in sent:
        assert sum(start <= at < start + 60 for at in sent) <= most + 1e-6


def test_a_bucket_grants_debts_and_takes_corrections() -> None:
    bucket = TokenBucket(6000)  # 100 a second, holds 100
    assert bucket.take(100, 0) == 0
    assert bucket.take(300, 0) == pytest.approx(3)
    assert bucket.take(100, 2) == pytest.approx(2)  # 200 came back, 200 are owed
    bucket.correct(150)
    assert bucket.take(0, 2) == pytest.approx(0.5)
    assert TokenBucket(None).take(1e9, 0) == 0


def test_concurrency_halves_once_a_round_and_grows_back() -> None:
    limit = Concurrency(8)
    limit.refused(sent_at=1, now=2)
    limit.refused(sent_at=1.5, now=2.1)  # in flight when the limit was cut
    assert limit.limit == 4
    limit.refused(sent_at=3, now=4)
    assert limit.limit == 2
    for _ in range(100):
        limit.answered()
    assert limit.limit == 8
    for at in range(10, 20):
        limit.refused(at, at + 0.5)
    assert limit.limit == 1


def test_the_breaker_opens_after_faults_in_a_row_and_lets_one_trial_through() -> None:
    breaker = Breaker()
    for at in range(FAULTS_TO_OPEN - 1):
        breaker.failed(at, "timeout", trial=False)
    breaker.answered()
    for at in range(10, 10 + FAULTS_TO_OPEN):
        assert breaker.allows(at)
        breaker.failed(at, "unreachable", trial=False)
    assert breaker.open and breaker.since == 10
    assert breaker.retry_at is not None
    first = breaker.retry_at
    breaker.failed(first - 0.01, "unreachable", trial=False)  # one that was in flight tells nothing new
    assert breaker.retry_at == first and not breaker.allows(first - 0.01)
    assert breaker.allows(first) and breaker.admit() and not breaker.allows(first)
    breaker.given_up(trial=True)
    assert breaker.allows(first) and breaker.admit()
    breaker.failed(first, "timeout", trial=True)
    assert breaker.retry_at == pytest.approx(first + 1.0)  # twice the first pause
    assert breaker.kind == "timeout" and breaker.since == 10
    breaker.admit()
    breaker.answered()
    assert breaker.allows(0) and not breaker.open


def test_a_deadline_stands_still_for_our_own_pacing() -> None:
    deadline = Deadline(now=5, seconds=2)
    deadline.stand_still(3)
    assert deadline.left(9) == 1


def test_retry_after_is_read_as_seconds_and_as_a_date() -> None:
    now = datetime(2026, 11, 29, 23, 0, tzinfo=UTC)
    later = {"retry-after": format_datetime(now + timedelta(seconds=90), usegmt=True)}
    assert retry_after({**later, "date": format_datetime(now, usegmt=True)}) == 90  # by the server's clock
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    assert 25 < retry_after({"retry-after": soon}) <= 30
    assert retry_after({"retry-after": " 1.5 "}) == 1.5
    for useless in ("", "-3", "nan", "inf", "soon", "Sun, 99 Nov 2026 99:00:00 GMT"):
        assert retry_after({"retry-after": useless}) == 0, useless
    assert retry_after({"retry-after": format_datetime(now - timedelta(days=999), usegmt=True)}) == 0


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "the request exceeds the available context size, try increasing it",
        "The input (5000 tokens) is longer than the model's context length (4096 tokens).",
        "prompt is too long: 5000 tokens > 4096 maximum",
        "context_length_exceeded",
    ],
)
def test_every_server_says_too_long_in_its_own_words(words: str) -> None:
    for code in (400, 422, 500):
        found = status_fault(code, {}, words.encode(), quoting([]))
        assert (found.failure.kind, found.again, found.broken) == ("context_overflow", False, False)


TEXT = 'the user wrote: "my name is Annabel"\nand left'


@given(st.integers(0, len(TEXT) - 8), st.text(max_size=20))
@example(at=0, around="\\")
@example(at=TEXT.index("nnabel"), around="\\")
def test_a_message_that_repeats_eight_characters_of_the_prompt_is_not_shown(at: int, around: str) -> None:
    quotes = quoting([TEXT])
    piece = TEXT[at : at + 8]
    for form in (
        piece,
        piece.upper(),
        repr(piece)[1:-1],
        piece.replace("\n", "\\n"),
        json.dumps(piece)[1:-1],
    ):
        assert quotes(f"{around}{form}{around}"), form


def test_a_message_of_the_servers_own_is_shown() -> None:
    quotes = quoting([TEXT], ["sk-secret"])
    assert not quotes("max_tokens must be at most 4096")
    assert quotes("bad key sk-secret") and quotes("ids 12, 5, 900, 4 are out of range")
    body = b'{"error": {"message": "top_logprobs must be at most 5", "code": "bad_value", "input": "secret"}}'
    assert status_fault(400, {}, body, quotes).failure.detail == (
        "HTTP 400: top_logprobs must be at most 5; bad_value"
    )
    hidden = status_fault(400, {}, b'{"detail": "my name is Annabel"}', quotes).failure
    assert "Annabel" not in hidden.detail and "not shown" in hidden.detail


def tokens(*texts: str) -> list[TokenLogprobs]:
    return [TokenLogprobs(text, {text: -0.1, "?": -3.0}) for text in texts]


def test_tokens_are_aligned_with_the_text_or_dropped() -> None:
    def shown(found: tuple[TokenLogprobs, ...]) -> list[str]:
        return [token.text for token in found]

    answer = tokens("<think>", "Y?", "</think>", "\n", "verdict[gamu", "]=", "Y", "<|im_end|>")
    assert shown(aligned(answer, "verdict[gamu]=Y")) == ["verdict[gamu", "]=", "Y"]
    broken = tokens("notes: caf", "\ufffd", "\ufffd", "\n", "verdict[gamu]=", "N", "</s>")
    found = aligned(broken, "notes: café\nverdict[gamu]=N")
    assert shown(found) == ["notes: café\n", "verdict[gamu]=", "N"]
    reading = reading_at_label(found, BINARY, "gamu")
    assert isinstance(reading, LabelReading) and reading.logprobs == {"N": -0.1}
    joint = tokens(
        "caf", "\ufffd", "\ufffd", "\nquote none", "\n", "v[g.1]=", "Y", "\n", "v[g.2]=", "N", "</s>"
    )
    lines = aligned(joint, "café\nquote none\nv[g.1]=Y\nv[g.2]=N\n")  # all whole lines after the broken one
    assert shown(lines) == ["café\n", "quote none", "\n", "v[g.1]=", "Y", "\n", "v[g.2]=", "N"]
    other = tokens("\ufffd", "x\n", "v[g.1]=", "Y", "\n", "v[g.2]=", "N")  # the line before is not the text's
    assert shown(aligned(other, "éy\nv[g.1]=N\nv[g.2]=N")) == ["éy\nv[g.1]=N\n", "v[g.2]=", "N"]
    assert aligned(answer, "something else") == () == aligned(answer, "")
    assert aligned(tokens("verdict[gamu]=", "Y", "\nno\n", "more"), "x\nverdict[gamu]=Y") == ()


@given(st.lists(st.text(max_size=4), max_size=8), st.integers(0, 20), st.integers(0, 20))
def test_aligned_tokens_join_to_the_text(texts: list[str], a: int, b: int) -> None:
    text = "".join(texts)[min(a, b) : max(a, b)]
    found = aligned(tokens(*texts), text)
    assert "".join(token.text for token in found) in (text, "")


def test_the_sampled_token_at_the_end_of_the_list_is_no_bound() -> None:
    """Servers append the sampled token: here N was drawn, and X may be as probable as 'the'."""
    listed = {"Y": math.log(0.7), "the": math.log(0.1), "N": math.log(0.001)}
    drawn = top_reading(TokenLogprobs("N", listed), BINARY.tokens)
    greedy = top_reading(TokenLogprobs("Y", listed), BINARY.tokens)
    assert isinstance(drawn, LabelReading) and isinstance(greedy, LabelReading)
    assert drawn.bound == pytest.approx(0.1) and greedy.bound == pytest.approx(0.001)


def test_labels_are_read_with_the_blank_that_their_token_has() -> None:
    listed = {" Y": math.log(0.8), "Y": math.log(0.1), " N": math.log(0.05), " X": math.log(0.01)}
    pieces = [*tokens("verdict[gamu", "]="), TokenLogprobs(" Y", listed)]
    found = reading_at_label(pieces, BINARY, "gamu")
    assert isinstance(found, LabelReading) and found.bound is None
    assert found.logprobs["Y"] == pytest.approx(math.log(0.8))


def test_numbers_that_are_no_log_probabilities_are_refused() -> None:
    two = TokenLogprobs("Y", {"Y": -0.1, "N": -0.1})
    found = top_reading(two, BINARY.tokens)
    assert isinstance(found, Failed) and "add up to 1.81" in found.detail
    for bad in (0.5, "high", [1]):
        entry = {"token": "Y", "top_logprobs": [{"token": "Y", "logprob": bad}]}
        choice = {"message": {"content": "Y"}, "logprobs": {"content": [entry]}}
        assert isinstance(chat_generation({"choices": [choice]}, "m"), Fault), bad
    entry = {"token": "Y", "top_logprobs": [{"token": "Y", "logprob": x} for x in (-0.2, -4, None)]}
    choice = {"message": {"content": "Y"}, "logprobs": {"content": [entry]}}
    written = chat_generation({"choices": [choice]}, "m")
    assert isinstance(written, Generation)
    assert written.tokens[0].top == {"Y": -0.2}  # two tokens that look alike: the likelier one


def test_completions_are_read_by_token_id() -> None:
    table = LabelTable("verdict[gamu]=", (5, 6), {"Y": 11, "N": 12, "X": 13})
    top = {"token_id:11": -0.2, "token_id:12": -2.0, "token_id:13": -5.0, "token_id:99": -9.0}
    logprobs = {"tokens": ["token_id:11"], "top_logprobs": [top]}
    reply = {"choices": [{"text": "Y", "logprobs": logprobs}], "model": "m"}
    found = completion_label(reply, "m", table)
    assert found == LabelReading({"Y": -0.2, "N": -2.0, "X": -5.0})
    for missing in ({}, {"logprobs": None}, {"logprobs": {"top_logprobs": [None]}}):
        gone = completion_label({"choices": [{"text": "Y", **missing}]}, "m", table)
        assert isinstance(gone, Failed) and gone.kind == "no_logprobs"


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("gpt-9", "gpt-9"),
        ("gpt-9", "gpt-9-2026-01-01"),
        ("gpt-9", "gpt-9-20260101"),
        ("gpt-9", "gpt-9-0613"),
        ("gpt-9", "gpt-9-002"),
        ("gpt-9", "openai/gpt-9"),
        ("openai/gpt-9", "gpt-9-2026-01-01"),
        ("a/b/judge", "judge"),
        ("./checkpoints/judge/", "./checkpoints/judge/"),  # as a server names the folder it was started with
    ],
)
def test_the_model_of_an_answer_may_be_dated_and_may_lack_its_owner(asked: str, answered: str) -> None:
    assert same_model(asked, answered)


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("gpt-9", "gpt-90"),
        ("gpt-9", ""),
        ("", "gpt-9"),
        ("", "-002"),
        ("gpt-9o", "gpt-9o-mini"),
        ("gpt-9", "gpt-9-turbo-0613"),
        ("gpt-9", "gpt-9-mini-2026-01-01"),
        ("lab/judge-8b", "lab/judge-8b-base"),
        ("lab/judge", "lab/judge-70"),
        ("lab/judge", "other/judge"),
        ("lab/judge", "other/judge-002"),
        ("gpt-9-0613", "gpt-9"),
        ("gpt-9-0613", "gpt-9-0125"),
    ],
)
def test_another_model_or_owner_counts_for_nothing(asked: str, answered: str) -> None:
    assert not same_model(asked, answered)


def test_the_preferred_endpoint_gives_way_when_it_is_clearly_busier() -> None:
    endpoints = [Endpoint(f"http://host{i}/v1", HttpLimits()) for i in range(3)]
    pool = Pool(endpoints, 60, lambda: 0.0)
    home = pool.choose("a conversation", 0.0)
    assert home is not None and home is pool.choose("a conversation", 0.0)
    home.in_flight = 4
    assert pool.choose("a conversation", 0.0) is home
    home.in_flight = 5
    assert pool.choose("a conversation", 0.0) is not home
    home.in_flight, home.not_before = 0, 9.0  # asked to be left alone
    assert pool.choose("a conversation", 0.0) is not home
    assert len({pool.choose(str(i), 9.0) for i in range(50)}) == 3
