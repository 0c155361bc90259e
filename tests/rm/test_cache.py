"""The engine that looks into a database first: what hits, what misses, what is never kept."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.data.verdict import Failed, Scored
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.asking import VerdictRequest
from axiomrm.rm.cache import with_cache
from axiomrm.rm.cache_key import MARK, content_hash, without_nonce, written_under
from axiomrm.rm.cache_sql import ReadingStore
from axiomrm.rm.engines.base import (
    Capabilities,
    Generation,
    LabelReading,
    Prompt,
    Sampling,
    TokenLogprobs,
)
from axiomrm.rm.labels import BINARY, LabelTable, binary_labels, level_labels
from axiomrm.rm.prompt import Criterion, JudgePrompter
from axiomrm.rm.reward_model import RewardModel

Make = Callable[..., RewardModel]
SAID = (Message(role="user", content="refund order 12"), Message(role="assistant", content="yes"))
TALK = Trajectory(messages=SAID * 2)
POLITE = Criterion("polite", "The agent is polite.")
ASKED = [VerdictRequest(TALK, POLITE), VerdictRequest(TALK, Criterion("asks", "The agent asks."), 1)]


class Server:
    """A chat server's engine: writes what ``answer`` says and counts what it was asked."""

    def __init__(self, answer: Callable[[Prompt, int], Generation | Failed], **identity: str) -> None:
        self.answer, self.identity, self.calls = (
            answer,
            {"engine": "server", "endpoint": "here", **identity},
            0,
        )

    capabilities = Capabilities(token_ids=False, logprobs="topk", prefix_reuse=False, seeds=True)

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        self.calls += len(prompts)
        return [self.answer(prompt, sampling.seed) for prompt in prompts]

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        raise AssertionError("a chat server cannot be forced")


def said(prompt: Prompt, _: int = 0) -> Generation:
    return written(f"notes: yes\nverdict[{prompt.nonce}]=", "Y")


def written(before: str, label: str, stop: Any = "stop") -> Generation:
    tokens = (
        TokenLogprobs(before, {before: -0.1}),
        TokenLogprobs(label, {label: -0.2, "N": -3.0, "X": -4.0}),
    )
    return Generation(before + label, (), stop, tokens)


@pytest.fixture()
def store(tmp_path: Path) -> Iterator[ReadingStore]:
    store = ReadingStore(tmp_path / "readings.sqlite")
    yield store
    store.close()


@pytest.fixture(scope="module")
def local(make_model: Any, tiny_tokenizer: Any) -> Make:
    model = make_model()

    def make(**options: Any) -> RewardModel:
        return RewardModel.from_model(
            model, tiny_tokenizer, **{"min_mass": 0.0, "max_notes_tokens": 12, **options}
        )

    return make


def hits(judge: RewardModel) -> tuple[int, int]:
    return judge.usage["cache_hits"], judge.usage["cache_misses"]


@pytest.mark.parametrize("mode", ["direct", "critique"])
def test_verdicts_are_the_same_without_cold_and_warm(local: Make, store: ReadingStore, mode: Any) -> None:
    asked = [replace(request, votes=3) for request in ASKED]
    plain = local(mode=mode).verdicts(asked)
    cold, warm = with_cache(local(mode=mode), store), with_cache(local(mode=mode), store)
    assert cold.verdicts(asked) == plain
    assert warm.verdicts(asked) == plain
    assert all(isinstance(verdict, Scored) for verdict in plain)
    readings = 2 if mode == "direct" else 12  # three critiques each, and the label after each
    assert (hits(cold), hits(warm)) == ((0, readings), (readings, 0))
    assert warm.usage["prompt_tokens"] == 0 and cold.usage["prompt_tokens"] > 0
    assert cold.judge_revision == local(mode=mode).judge_revision


MISSES: dict[str, Callable[[Make, Any, ReadingStore], tuple[RewardModel, VerdictRequest]]] = {
    "weights": lambda make, fresh, store: (with_cache(fresh(), store), ASKED[0]),
    "template": lambda make, fresh, store: (with_cache(make(template="compact"), store), ASKED[0]),
    "mode": lambda make, fresh, store: (with_cache(make(mode="critique"), store), ASKED[0]),
    "criterion": lambda make, fresh, store: (
        with_cache(make(), store),
        VerdictRequest(TALK, Criterion("polite", "The agent is polite!")),
    ),
    "labels": lambda make, fresh, store: (
        with_cache(make(), store),
        VerdictRequest(TALK, Criterion("polite", POLITE.ask, level_labels([(0, "no"), (1, "yes")]))),
    ),
    "label text": lambda make, fresh, store: (
        with_cache(make(), store),
        VerdictRequest(TALK, Criterion("polite", POLITE.ask, binary_labels("indeed"))),
    ),
    "turn": lambda make, fresh, store: (with_cache(make(), store), VerdictRequest(TALK, POLITE, 1)),
    "guidelines": lambda make, fresh, store: (
        with_cache(make(), store),
        VerdictRequest(TALK, POLITE, guidelines="Be strict."),
    ),
    "conversation": lambda make, fresh, store: (
        with_cache(make(), store),
        VerdictRequest(
            Trajectory(messages=(*SAID, SAID[0], Message(role="assistant", content="Yes"))), POLITE
        ),
    ),
    "reference": lambda make, fresh, store: (
        with_cache(make(), store),
        VerdictRequest(TALK.model_copy(update={"task": Task(reference="no")}), POLITE),
    ),
    "scope": lambda make, fresh, store: (with_cache(make(), store, scope="user-1"), ASKED[0]),
    "context": lambda make, fresh, store: (with_cache(make(), store, context={"epoch": "1"}), ASKED[0]),
}


@pytest.mark.parametrize("part", MISSES)
def test_each_part_of_the_key_makes_a_miss(
    local: Make, store: ReadingStore, part: str, make_model: Any, tiny_tokenizer: Any
) -> None:
    with_cache(local(), store).verdicts(ASKED[:1])

    def fresh() -> RewardModel:
        return RewardModel.from_model(make_model(intermediate_size=48), tiny_tokenizer, min_mass=0.0)

    judge, request = MISSES[part](local, fresh, store)
    judge.verdicts([request])
    assert hits(judge)[0] == 0 and hits(judge)[1] > 0


@pytest.mark.parametrize("change", [{"seed": 1}, {"temperature": 0.5}, {"max_notes_tokens": 13}])
def test_sampling_is_part_of_a_generations_key(
    local: Make, store: ReadingStore, change: Mapping[str, Any]
) -> None:
    with_cache(local(mode="critique"), store).verdicts(ASKED[:1])
    other = with_cache(local(mode="critique", **change), store)
    other.verdicts(ASKED[:1])
    assert hits(other)[1] >= 1


@pytest.mark.parametrize(
    "change", [{"secret": "another"}, {"min_mass": 0.9}, {"readout": "argmax"}, {"untrained": True}]
)
def test_nonce_thresholds_and_read_out_make_no_call(
    local: Make, store: ReadingStore, change: Mapping[str, Any]
) -> None:
    with_cache(local(), store).verdicts(ASKED)
    other = with_cache(local(**change), store)
    other.verdicts(ASKED)
    assert hits(other) == (2, 0) and other.usage["prompt_tokens"] == 0


def test_label_values_and_companions_in_the_batch_make_no_call(local: Make, store: ReadingStore) -> None:
    with_cache(local(), store).verdicts(ASKED)
    labels = replace(BINARY, labels=tuple(x._replace(value=x.value and x.value / 2) for x in BINARY.labels))
    other = with_cache(local(), store)
    more = VerdictRequest(TALK, Criterion("new", "The agent is new."))
    (renamed, _, _) = other.verdicts(
        [VerdictRequest(TALK, Criterion("other id", POLITE.ask, labels)), more, ASKED[1]]
    )
    assert hits(other) == (2, 1)
    assert isinstance(renamed, Scored) and renamed.value <= 0.5


def test_a_later_sample_is_no_replay_of_an_earlier_one(local: Make, store: ReadingStore) -> None:
    def make() -> RewardModel:
        return local(mode="critique", temperature=1.0)

    few, many = ([replace(ASKED[0], votes=n)] for n in (2, 4))
    with_cache(make(), store).verdicts(few)
    judge = with_cache(make(), store)
    (found,), (plain,) = judge.verdicts(many), make().verdicts(many)
    assert isinstance(found, Scored) and isinstance(plain, Scored)
    assert found.critique == plain.critique and len(set(found.critique.split("\n\n"))) == 4
    assert found.value == pytest.approx(plain.value, abs=1e-6)  # another batch, another rounding
    assert hits(judge) == (4, 4)  # two generations and their two labels were there


def test_more_samples_keep_those_that_are_stored_and_draw_their_rounds_again(store: ReadingStore) -> None:
    engine = Server(said)
    judge = with_cache(RewardModel(engine, JudgePrompter(None)), store).with_settings(mode="critique")
    generated = []
    for n in (3, 5):
        before = engine.calls, *hits(judge)
        (verdict,) = judge.with_settings(n_samples=n).verdicts(ASKED[:1])
        assert isinstance(verdict, Scored) and verdict.n == n
        now = engine.calls, *hits(judge)
        generated.append(tuple(b - a for a, b in zip(before, now, strict=True)))
    # Rounds of 2 and 1, then of 3, 1 and 1: the first lacks its third sample and is drawn from its start.
    assert generated == [(3, 0, 3), (4, 3, 2)]


def test_a_critique_is_found_again_under_another_nonce(store: ReadingStore) -> None:
    verdicts = []
    for secret in ("one", "two"):
        server = Server(said)
        judge = with_cache(RewardModel(server, JudgePrompter(None, secret=secret)), store)
        verdicts += judge.with_settings(mode="critique", min_mass=0.0).verdicts(ASKED)
        assert server.calls == (2 if secret == "one" else 0)
    assert verdicts[:2] == verdicts[2:] and all(isinstance(v, Scored) for v in verdicts)


def test_failures_are_asked_again(store: ReadingStore) -> None:
    down = Server(lambda prompt, seed: Failed(kind="unreachable"))
    judge = with_cache(RewardModel(down, JudgePrompter(None)), store)
    assert {v.status for v in judge.verdicts(ASKED)} == {"failed"}
    assert store.stats().readings == 0
    up = Server(lambda prompt, seed: said(prompt))
    assert {v.status for v in with_cache(RewardModel(up, JudgePrompter(None)), store).verdicts(ASKED)} == {
        "scored"
    }
    assert up.calls == 2


@pytest.mark.parametrize(
    "reply",
    [
        lambda p: written("notes: I would say ", "Y"),
        lambda p: written("verdict[other]=", "Y"),
        lambda p: written(f"verdict[{p.nonce}]=", "Y", stop="length"),
        lambda p: Generation(f"verdict[{p.nonce}]=Y", (), "stop"),  # no log-probabilities
        lambda p: written(f"> verdict[{p.nonce}]=", "Y"),
    ],
)
def test_a_servers_answer_without_a_verdict_is_asked_again(
    store: ReadingStore, reply: Callable[[Prompt], Generation]
) -> None:
    server = Server(lambda prompt, seed: reply(prompt))
    judge = with_cache(RewardModel(server, JudgePrompter(None)), store)
    assert [v.status for v in judge.verdicts(ASKED[:1])] == ["failed"]
    judge.verdicts(ASKED[:1])
    assert (server.calls, store.stats().readings) == (2, 0)


def test_another_endpoint_shares_nothing(store: ReadingStore) -> None:
    for endpoint in ("a", "b"):
        server = Server(lambda prompt, seed: said(prompt), endpoint=endpoint)
        with_cache(RewardModel(server, JudgePrompter(None)), store).verdicts(ASKED)
        assert server.calls == 2


def test_erasing_a_scope_makes_its_readings_new_again(local: Make, store: ReadingStore) -> None:
    for scope in ("u1", "u2"):
        with_cache(local(), store, scope=scope).verdicts(ASKED)
    assert store.erase("u1") == 2
    first, second = (with_cache(local(), store, scope=scope) for scope in ("u1", "u2"))
    first.verdicts(ASKED)
    second.verdicts(ASKED)
    assert (hits(first), hits(second)) == ((0, 2), (2, 0))


def test_a_damaged_row_ends_the_run_and_becomes_no_verdict(local: Make, store: ReadingStore) -> None:
    with_cache(local(), store).verdicts(ASKED)
    with store._engine.begin() as connection:
        connection.exec_driver_sql("UPDATE axiomrm_readings SET payload = replace(payload, '-', '')")
    with pytest.raises(DataError, match="damaged"):
        with_cache(local(), store).verdicts(ASKED)


def test_a_judge_without_a_model_has_nothing_to_cache(store: ReadingStore) -> None:
    with pytest.raises(ConfigError, match="without a model"):
        with_cache(RewardModel.programmatic(), store)


def test_caching_twice_is_caching_once(local: Make, store: ReadingStore) -> None:
    judge = with_cache(with_cache(local(), store, scope="a"), store, scope="b")
    judge.verdicts(ASKED)
    assert (store.stats().readings, hits(judge)) == (2, (0, 2))


def test_a_begun_answer_is_part_of_the_content() -> None:
    prompt = Prompt((), (), ({"role": "user", "content": "ask"},), "bade")
    hashes = {content_hash(replace(prompt, answer=begun), None) for begun in ("", "notes: a", "notes: b")}
    assert len(hashes) == 3
    under = {
        content_hash(replace(prompt, nonce=n, answer=f"notes: verdict[{n}]=Y"), None)
        for n in ("bade", "kulo")
    }
    assert len(under) == 1


WORDS = st.text(st.sampled_from("ab kulobade<>/[]=.\n"), max_size=30)


@settings(max_examples=40, deadline=None)
@given(text=WORDS, nonce=st.sampled_from(["kulo", "bade"]))
def test_only_the_nonce_in_its_places_leaves_the_text(text: str, nonce: str) -> None:
    assert without_nonce(text, nonce).replace(MARK, nonce) == text
    framed = f"<data {nonce}>\n{text}\n</data {nonce}>\nverdict[{nonce}.2]=<label>"
    assert without_nonce(framed, nonce).count(MARK) >= 3


@pytest.mark.parametrize("ids", [True, False])
def test_a_word_that_happens_to_be_the_nonce_stays_text(tiny_tokenizer: Any, ids: bool) -> None:
    prompter = JudgePrompter(tiny_tokenizer)

    def hash_of(word: str, nonce: str) -> str:
        talk = Trajectory(messages=(SAID[0], Message(role="assistant", content=f"he {word} me go")))
        prompt = prompter.render(talk, POLITE, nonce=nonce)
        assert isinstance(prompt, Prompt)
        return content_hash(prompt, spell if ids else None)

    def spell(token: int) -> str:
        return prompter.decode([token])

    assert hash_of("bade", "bade") == hash_of("bade", "kulo") != hash_of("kulo", "kulo")


@settings(max_examples=40, deadline=None)
@given(notes=WORDS, old=st.sampled_from(["kulodi", "badeko"]))
def test_a_generation_reads_the_same_under_another_nonce(tiny_tokenizer: Any, notes: str, old: str) -> None:
    prompter = JudgePrompter(tiny_tokenizer)
    text = f"notes: {notes}\nquote none\nverdict[{old}]=Y"
    ids = prompter.encode(text)
    tokens = tuple(TokenLogprobs(text[i : i + 3], {}) for i in range(0, len(text), 3))
    stored = Generation(text, ids, "stop", tokens)

    def under(written: Generation, a: str, b: str) -> Generation:
        return written_under(written, a, b, lambda token: prompter.decode([token]), prompter.encode)

    new = under(stored, old, "rifeso")
    assert new.text.endswith("verdict[rifeso]=Y") and len(new.text) == len(text)
    assert prompter.decode(new.token_ids) == new.text == "".join(token.text for token in new.tokens)
    assert under(stored, old, old) is stored
    assert under(new, "rifeso", old).text == text
