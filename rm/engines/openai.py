"""A minimal engine for OpenAI-compatible chat servers (standard library only).

One request a prompt, a few at a time, each inside one deadline with retries for 408, 429, 5xx and broken
connections. A chat server takes messages, no ids: the judge writes its verdict line itself and the label's
probability is read at its own position from ``top_logprobs``. A server that gives none yields
``Failed("no_logprobs")`` under the expected read-out; there is no silent fallback.
Keys come from ``OPENAI_API_KEY`` only; prompts and keys are never logged.
"""

import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.engines.base import (
    Capabilities,
    Generation,
    LabelReading,
    Prompt,
    Sampling,
    TokenLogprobs,
    failure_of,
)
from axiomrm.rm.labels import LabelTable

TOP_LOGPROBS = 20
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True)
class HttpLimits:
    """Patience and pressure."""

    deadline_s: float = 60.0
    """For one prompt, retries included."""
    first_wait_s: float = 0.5
    """Before the first retry; doubles, unless the server's ``Retry-After`` says longer."""
    parallel: int = 8


class OpenAIEngine:
    """The :class:`~axiomrm.rm.engines.base.Engine` for ``POST <url>/chat/completions``."""

    def __init__(self, url: str, model: str, limits: HttpLimits = HttpLimits()) -> None:
        """Check the URL; nothing is sent yet.

        Raises:
            ConfigError: not an http(s) URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"judge url {url!r}: expected http(s)://host[:port]/v1")
        self.url, self.model, self.limits = url.rstrip("/"), model, limits
        self._place = f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    @property
    def capabilities(self) -> Capabilities:
        """No ids; log-probabilities of the top tokens, where the server gives them."""
        return Capabilities(token_ids=False, logprobs="topk", prefix_reuse=False, seeds=True)

    @property
    def identity(self) -> Mapping[str, str]:
        """Endpoint without user info, and model name; the server's weights are not known."""
        return {"engine": "openai", "endpoint": self._place, "model": self.model}

    def generate(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Generation | Failed]:
        """One completion a prompt, with top log-probabilities where the server gives them.

        Copies of a prompt get different seeds.
        """
        copies: dict[Any, int] = {}
        jobs: list[tuple[Prompt, int]] = []
        for prompt in prompts:
            key = json.dumps([dict(message) for message in prompt.messages])
            jobs.append((prompt, sampling.seed + copies.get(key, 0)))
            copies[key] = copies.get(key, 0) + 1
        with ThreadPoolExecutor(self.limits.parallel) as pool:
            return list(pool.map(lambda job: self._one(job[0], sampling, job[1]), jobs))

    def label_logprobs(
        self, prompts: Sequence[Prompt], tables: Sequence[LabelTable]
    ) -> list[LabelReading | Failed]:
        """Not possible without ids: a lead-in cannot be forced through a chat endpoint."""
        detail = "a chat endpoint takes no token ids; the label is read where the judge writes it"
        return [Failed(kind="no_logprobs", detail=detail)] * len(prompts)

    def _one(self, prompt: Prompt, sampling: Sampling, seed: int) -> Generation | Failed:
        body = {
            "model": self.model,
            "messages": [dict(message) for message in prompt.messages],
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "seed": seed,
            "logprobs": True,
            "top_logprobs": TOP_LOGPROBS,
        }
        try:
            reply = self._post(body)
        except _Refused as refused:
            return refused.failure
        return _generation(reply)

    def _post(self, body: Mapping[str, Any]) -> Any:
        deadline = time.monotonic() + self.limits.deadline_s
        wait = self.limits.first_wait_s
        while True:
            try:
                return self._send(body, max(0.05, deadline - time.monotonic()))
            except _Refused as refused:
                pause = max(wait, refused.retry_after)
                if not refused.again or time.monotonic() + pause >= deadline:
                    raise
                time.sleep(pause)
                wait *= 2

    def _send(self, body: Mapping[str, Any], timeout: float) -> Any:
        headers = {"Content-Type": "application/json"}
        if key := os.environ.get("OPENAI_API_KEY"):
            headers["Authorization"] = f"Bearer {key}"
        request = Request(f"{self.url}/chat/completions", json.dumps(body).encode(), headers, method="POST")
        try:
            with urlopen(request, timeout=timeout) as response:
                return json.loads(response.read())
        except HTTPError as error:
            raise _refused(error) from error
        except (URLError, TimeoutError, ConnectionError) as error:
            failure = failure_of(str(getattr(error, "reason", error)) or type(error).__name__)
            kind = "timeout" if isinstance(getattr(error, "reason", error), TimeoutError) else failure.kind
            kind = "unreachable" if kind == "engine_error" else kind
            raise _Refused(Failed(kind=kind, detail=failure.detail), again=kind != "timeout") from error
        except (ValueError, OSError) as error:
            raise _Refused(Failed(kind="engine_error", detail=f"unreadable reply: {error}"[:300])) from error


class _Refused(Exception):
    def __init__(self, failure: Failed, *, again: bool = False, retry_after: float = 0.0) -> None:
        super().__init__(failure.detail)
        self.failure, self.again, self.retry_after = failure, again, retry_after


def _refused(error: HTTPError) -> _Refused:
    detail = f"HTTP {error.code}: {error.read(2000).decode('utf-8', 'replace')}"
    failure = failure_of(detail)
    if error.code >= 500 and failure.kind not in ("timeout", "context_overflow"):
        failure = Failed(
            kind="unreachable" if error.code in (502, 503) else "engine_error", detail=detail[:300]
        )
    elif 400 <= error.code < 500 and error.code not in (408, 429) and failure.kind != "context_overflow":
        failure = Failed(kind="bad_input", detail=detail[:300])
    try:
        retry_after = float(error.headers.get("Retry-After", 0))
    except ValueError:
        retry_after = 0.0
    return _Refused(failure, again=error.code in _RETRIED, retry_after=retry_after)


def _generation(reply: Any) -> Generation | Failed:
    try:
        choice = reply["choices"][0]
        text = choice["message"]["content"] or ""
        entries = (choice.get("logprobs") or {}).get("content") or ()
        tokens = tuple(
            TokenLogprobs(
                str(e["token"]), {str(t["token"]): float(t["logprob"]) for t in e.get("top_logprobs") or ()}
            )
            for e in entries
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        return Failed(kind="engine_error", detail=f"reply without a choice: {type(error).__name__} {error}")
    if choice.get("finish_reason") == "content_filter":
        return Failed(kind="refused", detail="the server's content filter stopped the answer")
    stop: Literal["stop", "length"] = "length" if choice.get("finish_reason") == "length" else "stop"
    same = "".join(token.text for token in tokens) == text
    return Generation(str(text), (), stop, tokens if same else ())
