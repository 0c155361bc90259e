"""What a server can do, found out once at the start with a text of our own, and then relied on.

Nothing is renegotiated for a single request: a judge that read some labels one way and some another would mix
two scales.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError, JudgeError
from axiomrm.rm.chat import data_ids, text_of
from axiomrm.rm.engines.http_client import HttpClient, Job
from axiomrm.rm.engines.http_faults import Fault
from axiomrm.rm.engines.http_replies import (
    Choice,
    chat_generation,
    chat_tokens,
    choice_of,
    same_model,
)
from axiomrm.rm.grammar import answer_text, lead_in
from axiomrm.rm.labels import BINARY
from axiomrm.rm.positions import reading_at_label

TOP_LOGPROBS = (20, 10, 5)
"""Alternatives to ask for, the most that the server allows."""
NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
CONTINUE = {"continue_final_message": True, "add_generation_prompt": False}
_DOWN = frozenset({"unreachable", "timeout", "rate_limited"})
_NONCE = "bafedi"
_LINE = answer_text("Y", _NONCE)
_MESSAGES = ({"role": "user", "content": f"Write exactly this line and nothing else:\n{_LINE}"},)
_SAMPLED = "or ask for readout='sampled' (shares of written labels; needs several votes)"
Json = dict[str, Any]
Route = Literal["chat", "prefill", "ids"]
Budget = Literal["max_tokens", "max_completion_tokens"]


@dataclass(frozen=True)
class ServerFacts:
    """How a server is talked to."""

    route: Route = "chat"
    """``chat``: the judge writes its verdict line by itself. ``prefill``: a chat whose answer we begin with
    the lead-in. ``ids``: completions of token ids, as for a local model."""
    logprobs: Literal["exact", "topk", "none"] = "topk"
    top: int = TOP_LOGPROBS[0]
    """Alternatives asked for with each token."""
    budget: Budget = "max_tokens"
    """The server's name of the completion budget."""
    max_tokens: int | None = None
    """Longest prompt plus completion, where the server says so."""


@dataclass(frozen=True)
class Probe:
    """One server to find out about."""

    client: HttpClient
    model: str
    tokenizer: Any | None
    """With one, the server must take its ids."""
    need_logprobs: bool

    @property
    def place(self) -> str:
        """Where it is, for messages."""
        return self.client.pool.endpoints[0].place

    async def facts(self) -> ServerFacts | Failed:
        """What it can do; a ``Failed``: it is not there.

        Raises:
            ConfigError: it cannot be this judge's server; says what to change.
        """
        listed = await self._models()
        if isinstance(listed, Failed):
            return listed
        found = await (self._chat() if self.tokenizer is None else self._ids())
        if isinstance(found, Failed):
            return found
        return replace(found, max_tokens=listed)

    async def _models(self) -> int | Failed | None:
        """The model's context length where the list has it; checks that the list has the model."""
        reply = await self.client.answer(Job("/models", None), lambda reply: reply)
        if isinstance(reply, Fault):
            if reply.code in (404, 405, 501):
                return None  # no list; the answers name the model too
            return self._refused(reply)
        listed = reply.get("data") if isinstance(reply, dict) else None
        entries = [e for e in listed if isinstance(e, dict)] if isinstance(listed, list) else []
        mine = [e for e in entries if same_model(self.model, str(e.get("id")))]
        if entries and not mine:
            names = ", ".join(repr(str(e.get("id"))[:80]) for e in entries[:5])
            raise ConfigError(f"{self.place}: no model {self.model!r} there; it serves {names}")
        mine.sort(key=lambda entry: entry.get("id") != self.model)  # the very name first
        longest = mine[0].get("max_model_len") if mine else None
        return longest if isinstance(longest, int) else None

    async def _chat(self) -> ServerFacts | Failed:
        budget: Budget = "max_tokens"
        tops = [*TOP_LOGPROBS] if self.need_logprobs else [0]
        while True:
            body: Json = {budget: 24, "temperature": 0, "seed": 0, **asking_for(tops[0])}
            reply = await self._post("/chat/completions", {**body, "messages": _MESSAGES}, self._written)
            if not isinstance(reply, Fault):
                break
            if "max_completion_tokens" in reply.failure.detail and budget == "max_tokens":
                budget = "max_completion_tokens"
            elif "logprobs" in reply.failure.detail and len(tops) > 1:
                tops.pop(0)
            else:
                return self._refused(reply)
        if not self.need_logprobs:
            return ServerFacts(logprobs="none", top=0, budget=budget)
        self._check_labels(reply)
        route: Route = "prefill" if await self._continues(budget, tops[0]) else "chat"
        return ServerFacts(route, "topk", tops[0], budget)

    def _written(self, reply: Any) -> Any:
        """The generation with its choice: the probe wants to know of tokens that fit no text, too."""
        written = chat_generation(reply, self.model)
        return written if isinstance(written, Fault) else (written, choice_of(reply, self.model))

    def _check_labels(self, written: Any) -> None:
        generation, choice = written
        if isinstance(generation, Failed):
            raise ConfigError(f"{self.place}: {generation.detail}")
        tokens = chat_tokens(choice) if isinstance(choice, Choice) else ()
        if isinstance(tokens, Fault) or not any(len(token.top) > 1 for token in tokens):
            raise ConfigError(
                f"{self.place}: no or too few log-probabilities ('top_logprobs') of {self.model!r}; the "
                f"read-out 'expected' needs them: use a server that gives them (vLLM does), {_SAMPLED}"
            )
        found = reading_at_label(generation.tokens, BINARY, _NONCE)
        if isinstance(found, Failed) and found.kind == "no_logprobs":
            raise ConfigError(
                f"{self.place}: {self.model!r} has no token of its own for a label after {lead_in(_NONCE)!r} "
                f"({found.detail}); use another model, {_SAMPLED}"
            )

    async def _continues(self, budget: str, top: int) -> bool:
        """Whether the server goes on where an assistant message ends: then the prompt is shorter than one in
        which that message is closed and another one opened."""
        begun = [*_MESSAGES, {"role": "assistant", "content": lead_in(_NONCE)}]
        body: Json = {"messages": begun, budget: 1, "temperature": 0, **asking_for(top), **NO_THINKING}
        sizes = []
        for more in (CONTINUE, {}):
            reply = await self._post("/chat/completions", {**body, **more}, lambda reply: reply)
            usage = reply.get("usage") if isinstance(reply, dict) else None
            sizes.append(usage.get("prompt_tokens") if isinstance(usage, dict) else None)
        first, second = sizes
        return isinstance(first, int) and isinstance(second, int) and 0 < first < second

    async def _ids(self) -> ServerFacts | Failed:
        ids = list(data_ids(self.tokenizer, "The recording of turn 7 shows ".join(BINARY.tokens)))
        text = text_of(self.tokenizer, ids).strip()
        echo = await self._post(
            "/completions",
            {"prompt": ids, "max_tokens": 1, "temperature": 0, "echo": True},
            self._choice,
        )
        if isinstance(echo, Fault):
            return self._refused(
                echo, "it must take token ids at /completions; without a tokenizer it is a chat"
            )
        if not (isinstance(echo, Choice) and echo.text.strip().startswith(text)):
            raise ConfigError(
                f"{self.place}: what the tokenizer encodes as ids is another text there: "
                f"give the tokenizer of {self.model!r}, or leave it out for a chat"
            )
        labels = [data_ids(self.tokenizer, lead_in(_NONCE) + token)[-1] for token in BINARY.tokens]
        body = {"prompt": list(data_ids(self.tokenizer, lead_in(_NONCE))), "max_tokens": 1, "temperature": 0}
        for top in TOP_LOGPROBS:
            reply = await self._post("/completions", {**body, **asking_for_ids(top, labels)}, self._choice)
            if not (isinstance(reply, Fault) and "logprobs" in reply.failure.detail):
                break
        if isinstance(reply, Fault):
            return self._refused(reply)
        return self._id_facts(reply, labels, top)

    def _id_facts(self, choice: Any, labels: Sequence[int], top: int) -> ServerFacts:
        told = (choice.raw.get("logprobs") or {}) if isinstance(choice, Choice) else {}
        first = (told.get("top_logprobs") or [{}])[0] or {}
        if not isinstance(choice, Choice) or not isinstance(choice.raw.get("token_ids"), list):
            raise ConfigError(f"{self.place}: completions name no token ids (vLLM from 0.10.2 on does)")
        if self.need_logprobs and not any(str(name).startswith("token_id:") for name in first):
            raise ConfigError(
                f"{self.place}: completions give no log-probabilities by token id, which the read-out "
                f"'expected' needs: use vLLM, {_SAMPLED}"
            )
        exact = all(f"token_id:{label}" in first for label in labels)
        return ServerFacts("ids", "exact" if exact else "topk", top)

    def _choice(self, reply: Any) -> Any:
        return choice_of(reply, self.model)

    async def _post(self, path: str, body: Json, read: Callable[[Any], Any]) -> Any:
        return await self.client.answer(Job(path, {"model": self.model, **body}), read)

    def _refused(self, fault: Fault, remedy: str = "") -> Failed:
        """``Failed`` where the server is away; a wrong set-up is an error."""
        if fault.failure.kind in _DOWN or fault.code >= 500:
            return fault.failure
        if fault.code in (401, 403):
            remedy = "set OPENAI_API_KEY to a key that this server accepts"
        told = f"; {remedy}" if remedy else ""
        raise ConfigError(f"{self.place}: cannot serve judge {self.model!r}: {fault.failure.detail}{told}")


def agreed(found: dict[str, ServerFacts | Failed]) -> ServerFacts:
    """The facts that hold for all servers that are there.

    Raises:
        JudgeError: none is.
        ConfigError: two differ, so their verdicts could not be mixed.
    """
    there = {place: facts for place, facts in found.items() if isinstance(facts, ServerFacts)}
    if not there:
        failures = [(place, f) for place, f in found.items() if isinstance(f, Failed)]
        away = "; ".join(f"{place}: {f.kind}: {f.detail}" for place, f in failures)
        raise JudgeError(f"no judge server answers: {away}")
    kinds = {place: (f.route, f.logprobs, f.top, f.budget) for place, f in there.items()}
    if len(set(kinds.values())) > 1:
        raise ConfigError(f"these servers answer in different ways and cannot be one judge: {kinds}")
    first = next(iter(there.values()))
    lengths = [f.max_tokens for f in there.values() if f.max_tokens is not None]
    return replace(first, max_tokens=min(lengths, default=None))


def asking_for(top: int) -> Json:
    """The fields of a chat request that ask for log-probabilities."""
    return {"logprobs": True, "top_logprobs": top} if top else {}


def asking_for_ids(top: int, labels: Sequence[int]) -> Json:
    """The fields of a completion request that ask for them by token id."""
    return {
        "logprobs": top,
        "logprob_token_ids": list(labels),
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
    }
