"""The engine for OpenAI-compatible servers: synchronous outside, asynchronous inside.

What the server can do is settled by a probe at the start (:mod:`axiomrm.rm.engines.http_probe`) and decides
the route: completions of token ids (with a tokenizer; exact, as for a local model), a chat whose answer we
begin with the lead-in, or a plain chat, where the label is read at its own place in the verdict line that the
judge writes. A server without log-probabilities is an error at the start; one that leaves them out later
yields ``Failed("no_logprobs")``. Keys come from ``OPENAI_API_KEY`` or the URL's user info and are shown
nowhere, nor are prompts.
"""

import asyncio
import hashlib
import json
import os
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.chat import chat_frame, frame_ids, text_of
from axiomrm.rm.engines.base import Capabilities, Generation, LabelReading, Prompt, Sampling, too_long
from axiomrm.rm.engines.http_client import HttpClient, Job, bearer
from axiomrm.rm.engines.http_limits import HttpLimits
from axiomrm.rm.engines.http_loop import LoopThread
from axiomrm.rm.engines.http_pool import Endpoint
from axiomrm.rm.engines.http_probe import (
    CONTINUE,
    NO_THINKING,
    Probe,
    ServerFacts,
    agreed,
    asking_for,
    asking_for_ids,
)
from axiomrm.rm.engines.http_replies import (
    chat_generation,
    chat_label,
    completion_generation,
    completion_label,
)
from axiomrm.rm.engines.row_seeds import copies_before, copy_seed
from axiomrm.rm.labels import LabelTable

_CHARACTERS = 4
"""Characters a token, for the token rate's first estimate."""
Read = Callable[[Any], Any]


class OpenAIEngine:
    """The :class:`~axiomrm.rm.engines.base.Engine` for servers that speak OpenAI's protocol."""

    def __init__(
        self,
        urls: str | Sequence[str],
        model: str,
        limits: HttpLimits = HttpLimits(),  # noqa: B008
        *,
        facts: ServerFacts = ServerFacts(),  # noqa: B008
        tokenizer: Any | None = None,
        end_ids: Sequence[int] = (),
    ) -> None:
        """Check the URLs and the key; nothing is sent yet.

        Args:
            urls: base URLs of servers of the same model, up to and with ``/v1``.
            model: the server's name of the model.
            limits: patience and pressure.
            facts: what the servers can do; :meth:`probe` finds it out.
            tokenizer: the model's own; prompts then go as token ids.
            end_ids: tokens that end an answer, with a tokenizer.

        Raises:
            ConfigError: no URL, one that cannot be used, or a key that cannot stand in a header.
        """
        different = dict.fromkeys([urls] if isinstance(urls, str) else urls)
        self.endpoints = [Endpoint(url, limits) for url in different]
        if not self.endpoints or not model:
            raise ConfigError(f"judge model {model!r} at {self.endpoints}: expected a model name and a URL")
        bearer()
        self.model, self.limits, self.facts, self.tokenizer = model, limits, facts, tokenizer
        self.end_ids = frozenset(end_ids)
        self.usage: Counter[str] = Counter(dict.fromkeys(("requests", "retries"), 0))
        """Requests sent and sent again, the servers' token counts, failures by kind; since the start."""
        self._loop: LoopThread | None = None
        self._client: HttpClient | None = None

    def __repr__(self) -> str:
        places = [endpoint.place for endpoint in self.endpoints]
        return f"OpenAIEngine({places!r}, {self.model!r}, route={self.facts.route!r})"

    @property
    def capabilities(self) -> Capabilities:
        """As the probe found; seeds are asked for, servers differ in keeping them."""
        return Capabilities(
            token_ids=self.facts.route == "ids",
            logprobs=self.facts.logprobs,
            prefix_reuse=False,
            seeds=True,
            max_tokens=self.facts.max_tokens,
            prefill=self.facts.route == "prefill",
        )

    @property
    def identity(self) -> Mapping[str, str]:
        """Endpoints without user info, model name and route; the servers' weights are not known."""
        return {
            "engine": "openai",
            "endpoint": " ".join(sorted(e.place for e in self.endpoints)),
            "model": self.model,
            "route": self.facts.route,
            "logprobs": f"{self.facts.logprobs} {self.facts.top}",
        }

    def probe(self, *, need_logprobs: bool = True) -> ServerFacts:
        """Find out what the servers can do and rely on it from now on.

        Args:
            need_logprobs: whether the read-out needs log-probabilities; ``False`` asks for none.

        Raises:
            JudgeError: no server answers.
            ConfigError: they cannot be this judge's servers, or differ from each other.
        """
        self.facts = agreed(self._run(lambda client: self._probe(need_logprobs)))
        return self.facts

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        """One completion a prompt, in order; copies of a prompt get different seeds."""
        same = [json.dumps(p.ids or [dict(message) for message in p.messages]) for p in prompts]
        seeds = [copy_seed(sampling.seed, copies) for copies in copies_before(same)]
        return self._all([self._generation(p, sampling, s) for p, s in zip(prompts, seeds, strict=True)])

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        """Labels right after the lead-in; ``Failed`` on the plain chat route, which cannot force one."""
        if self.facts.route == "chat":
            detail = "this server cannot be given the lead-in; the label is read where the judge writes it"
            return [Failed(kind="no_logprobs", detail=detail)] * len(prompts)
        return self._all([self._label(p, t) for p, t in zip(prompts, tables, strict=True)])

    def close(self) -> None:
        """Drop the connections; what is in flight comes back as ``Failed("cancelled")``."""
        loop, client, self._loop, self._client = self._loop, self._client, None, None
        if loop is not None:
            loop.stop(client.close if client is not None else None)

    def _generation(self, prompt: Prompt, sampling: Sampling, seed: int) -> tuple[Job, Read] | Failed:
        facts, budget = self.facts, sampling.max_new_tokens
        body: dict[str, Any] = {"model": self.model, "temperature": sampling.temperature, "seed": seed}
        if facts.route == "ids":
            if (failure := too_long(len(prompt.ids), budget, facts.max_tokens)) is not None:
                return failure
            body |= {"prompt": list(prompt.ids), "max_tokens": budget, "return_token_ids": True}
            body |= {"stop_token_ids": sorted(self.end_ids)} if self.end_ids else {}
            decode = partial(text_of, self.tokenizer)
            read: Read = lambda reply: completion_generation(reply, self.model, decode, self.end_ids)  # noqa: E731
        else:
            body |= {"messages": [dict(m) for m in prompt.messages], facts.budget: budget}
            body |= asking_for(facts.top) | (NO_THINKING if facts.route == "prefill" else {})
            read = lambda reply: chat_generation(reply, self.model)  # noqa: E731
        return self._job(prompt, body, budget), read

    def _label(self, prompt: Prompt, table: LabelTable) -> tuple[Job, Read] | Failed:
        body: dict[str, Any] = {"model": self.model, "temperature": 0}
        if self.facts.route == "ids":
            ids = [*prompt.ids, *table.lead_in_ids]
            if (failure := too_long(len(ids), 1, self.facts.max_tokens)) is not None:
                return failure
            body |= {"prompt": ids, "max_tokens": 1}
            body |= asking_for_ids(self.facts.top, list(table.label_ids.values()))
            return self._job(prompt, body, 1), lambda reply: completion_label(reply, self.model, table)
        begun = {"role": "assistant", "content": prompt.answer + table.lead_in}
        body |= {"messages": [*(dict(m) for m in prompt.messages), begun], self.facts.budget: 1}
        body |= asking_for(self.facts.top) | NO_THINKING | CONTINUE
        return self._job(prompt, body, 1), lambda reply: chat_label(reply, self.model, table)

    def _job(self, prompt: Prompt, body: Mapping[str, Any], budget: int) -> Job:
        texts = [message["content"] for message in prompt.messages]
        path = "/completions" if "prompt" in body else "/chat/completions"
        size = len(body["prompt"]) if "prompt" in body else sum(map(len, texts)) // _CHARACTERS
        recording = texts[-1].rpartition(f"</data {prompt.nonce}>")[0] if texts else ""
        key = hashlib.sha256((recording or prompt.nonce).encode("utf-8", "surrogatepass")).hexdigest()
        return Job(path, body, key, texts, size + budget)

    def _all(self, jobs: Sequence[tuple[Job, Read] | Failed]) -> list[Any]:
        results: list[Any] = [Failed(kind="cancelled", detail="the engine was closed")] * len(jobs)

        async def one(client: HttpClient, i: int) -> None:
            job = jobs[i]
            try:
                results[i] = job if isinstance(job, Failed) else await client.ask(*job)
            except Exception as error:  # one row's crash is one failure, not the batch's end
                detail = f"the engine crashed: {type(error).__name__}"
                results[i] = Failed(kind="engine_error", detail=detail)

        async def batch(client: HttpClient) -> None:
            await asyncio.gather(*(one(client, i) for i in range(len(jobs))))

        with suppress(CancelledError):  # closed by another thread: what has arrived stays
            self._run(batch)
        return results

    async def _probe(self, need_logprobs: bool) -> dict[str, ServerFacts | Failed]:
        async def one(endpoint: Endpoint) -> ServerFacts | Failed:
            client = HttpClient([endpoint], self.limits, Counter())
            try:
                return await Probe(client, self.model, self.tokenizer, need_logprobs).facts()
            finally:
                await client.close()

        found = await asyncio.gather(*map(one, self.endpoints))
        return dict(zip((e.place for e in self.endpoints), found, strict=True))

    def _run(self, work: Callable[[HttpClient], Any]) -> Any:
        if self._loop is None or self._loop.pid != os.getpid():
            self._loop, self._client = LoopThread(), None
            for endpoint in self.endpoints:
                endpoint.in_flight = 0  # the parent's, after a fork
            weakref.finalize(self, self._loop.stop)

        async def inside() -> Any:
            if self._client is None:
                self._client = HttpClient(self.endpoints, self.limits, self.usage)
            return await work(self._client)

        return self._loop.run(inside)


def connected(
    urls: str | Sequence[str], model: str, options: dict[str, Any], *, tokenizer: str | Path | None = None
) -> OpenAIEngine:
    """An engine whose servers have been probed.

    Args:
        urls: base URLs of servers of the same model.
        model: the servers' name of the model.
        options: of the judge; those of ``HttpLimits`` are taken out, ``readout`` and ``adapter`` say whether
            log-probabilities are needed.
        tokenizer: folder or hub id of the model's tokenizer: prompts then go as token ids.

    Raises:
        JudgeError: no server answers.
        ConfigError: they cannot be this judge's servers, or the tokenizer cannot be loaded.
    """
    names = [field.name for field in fields(HttpLimits)]
    limits = HttpLimits(**{name: options.pop(name) for name in names if name in options})
    loaded, end_ids = (None, ()) if tokenizer is None else _loaded(str(tokenizer))
    engine = OpenAIEngine(urls, model, limits, tokenizer=loaded, end_ids=end_ids)
    own = options.get("adapter", "own") == "own"
    try:
        engine.probe(need_logprobs=own and options.get("readout") != "sampled")
    except BaseException:
        engine.close()
        raise
    return engine


def _loaded(name: str) -> tuple[Any, Sequence[int]]:
    """A tokenizer and what ends its answers."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(f"tokenizer {name!r} cannot be loaded: {reason}") from error
    return tokenizer, frame_ids(chat_frame(tokenizer, {"enable_thinking": False}), tokenizer).end[-1:]
