"""One request until it has an answer or a failure: sends, retries and failover inside its deadline."""

import asyncio
import json
import logging
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.engines.http_faults import Fault, fault, quoting, status_fault
from axiomrm.rm.engines.http_limits import Deadline, HttpLimits
from axiomrm.rm.engines.http_pool import Endpoint, Lease, Pool

log = logging.getLogger(__name__)
_CONNECT_S = 5.0
_LARGEST_REPLY = 64 * 2**20
_ODD_SENDS = 3
"""Sends of a request whose answers make no sense."""
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Job:
    """One request of a batch."""

    path: str
    """Below the base URL: ``/chat/completions``."""
    body: Json | None
    """``None``: a GET."""
    key: str = ""
    """Jobs with equal keys share a prefix."""
    texts: Sequence[str] = ()
    """What no failure may quote."""
    tokens: int = 0
    """Estimate of prompt plus completion, for the token rate."""


class HttpClient:
    """Connections to the endpoints; lives in one event loop."""

    def __init__(self, endpoints: Sequence[Endpoint], limits: HttpLimits, usage: Counter[str]) -> None:
        """``usage`` is counted up as requests end."""
        self.limits, self.usage = limits, usage
        self.pool = Pool(endpoints, limits.deadline_s, time.monotonic)
        self._random = random.Random()
        connections = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        # Without https no certificates need to be loaded, which takes longer than many requests.
        tls = any(endpoint.place.startswith("https:") for endpoint in endpoints)
        self._http = httpx2.AsyncClient(timeout=None, limits=connections, verify=tls)

    async def close(self) -> None:
        """Drop the connections."""
        await self._http.aclose()

    async def ask(self, job: Job, read: Callable[[Any], Any | Fault]) -> Any | Failed:
        """What ``read`` makes of the server's JSON, or the failure that remained at the deadline."""
        answer = await self.answer(job, read)
        if isinstance(answer, Fault):
            answer = answer.failure
        if isinstance(answer, Failed):
            self.usage[f"failed_{answer.kind}"] += 1
        return answer

    async def answer(self, job: Job, read: Callable[[Any], Any | Fault]) -> Any | Fault:
        """The same with the whole fault."""
        async with self.pool.queue:
            return await self._until(job, read, Deadline(time.monotonic(), self.limits.deadline_s))

    async def _until(self, job: Job, read: Callable[[Any], Any | Fault], deadline: Deadline) -> Any | Fault:
        last: Fault | None = None
        avoid: Endpoint | None = None
        odd = 0
        for sent in range(self.limits.attempts):
            lease = await self.pool.lease(job.key, deadline, avoid)
            if isinstance(lease, Fault):
                return last or lease
            self.usage["retries"] += sent > 0
            try:
                answer = await self._send(lease, job, read, deadline)
            finally:
                self.pool.release(lease)
            if not isinstance(answer, Fault):
                return answer
            last, avoid, odd = answer, lease.endpoint, odd + answer.odd
            if not answer.again or odd >= _ODD_SENDS or sent + 1 == self.limits.attempts:
                break
            pause = self._pause(sent, lease.endpoint)
            if pause >= deadline.left(time.monotonic()):
                break
            log.debug("%s: %s, again in %.2f s", lease.endpoint.place, answer.failure.kind, pause)
            await asyncio.sleep(pause)
        return last

    def _pause(self, sent: int, failed: Endpoint) -> float:
        """Full jitter; none where another endpoint can take over at once for the first time."""
        if sent == 0 and self.pool.other_works(failed, time.monotonic()):
            return 0.0
        longest = min(self.limits.longest_wait_s, self.limits.first_wait_s * 2.0**sent)
        return self._random.uniform(0, longest)

    async def _send(
        self, lease: Lease, job: Job, read: Callable[[Any], Any | Fault], deadline: Deadline
    ) -> Any | Fault:
        endpoint = lease.endpoint
        now = time.monotonic()
        paced = max(endpoint.requests.take(1, now), endpoint.tokens.take(job.tokens, now))
        if paced:
            deadline.stand_still(paced)
            await asyncio.sleep(paced)
        started = time.monotonic()
        allowed = deadline.left(started)
        if self.pool.other_works(endpoint, started):
            allowed /= 2  # leave the other one its half
        try:
            async with asyncio.timeout(allowed):
                answer = await self._exchange(endpoint, job)
        except TimeoutError:
            answer = fault("timeout", f"no answer within {allowed:.1f} s", again=True, broken=True)
        if not isinstance(answer, Fault):
            self._count(answer, endpoint, job)
            answer = read(answer)
        self._learn(lease, answer, started)
        return answer

    async def _exchange(self, endpoint: Endpoint, job: Job) -> Any | Fault:
        key = endpoint.login or bearer()
        headers = {"Content-Type": "application/json"} | ({"Authorization": key} if key else {})
        # ASCII: half a surrogate pair in a conversation must not stop its batch.
        content = None if job.body is None else json.dumps(job.body).encode()
        request = self._http.build_request(
            "GET" if content is None else "POST",
            endpoint.place + job.path,
            content=content,
            headers=headers,
            timeout=httpx2.Timeout(None, connect=_CONNECT_S),
        )
        self.usage["requests"] += 1
        try:
            response = await self._http.send(request, stream=True)
            try:
                payload = await _bounded(response)
            finally:
                await response.aclose()
        except httpx2.RequestError as error:
            return _broken(error)
        if not response.is_success:
            secrets = (key, key.partition(" ")[2])
            return status_fault(
                response.status_code, response.headers, payload[:4000], quoting(job.texts, secrets)
            )
        return parsed(payload)

    def _learn(self, lease: Lease, answer: Any | Fault, started: float) -> None:
        now, endpoint = time.monotonic(), lease.endpoint
        if isinstance(answer, Fault) and answer.broken:
            endpoint.breaker.failed(now, answer.failure.kind, lease.trial)
        elif not (isinstance(answer, Fault) and answer.odd):
            endpoint.breaker.answered()
        if isinstance(answer, Fault):
            endpoint.not_before = max(endpoint.not_before, now + answer.retry_after_s)
            if answer.failure.kind == "rate_limited":
                endpoint.concurrency.refused(started, now)
        else:
            endpoint.concurrency.answered()

    def _count(self, reply: Any, endpoint: Endpoint, job: Job) -> None:
        told = reply.get("usage") if isinstance(reply, dict) else None
        told = told if isinstance(told, dict) else {}
        spent = [told.get(name) for name in ("prompt_tokens", "completion_tokens")]
        counts = [n if isinstance(n, int) and n >= 0 else 0 for n in spent]
        self.usage["prompt_tokens"] += counts[0]
        self.usage["completion_tokens"] += counts[1]
        if sum(counts):
            endpoint.tokens.correct(job.tokens - sum(counts))


def bearer() -> str:
    """``Authorization`` from ``OPENAI_API_KEY``, empty without one.

    Raises:
        ConfigError: the key cannot stand in a header.
    """
    key = os.environ.get("OPENAI_API_KEY", "").strip()
    if not (key.isascii() and key.isprintable()):
        raise ConfigError("OPENAI_API_KEY holds characters that cannot stand in an HTTP header")
    return f"Bearer {key}" if key else ""


def parsed(payload: bytes) -> Any | Fault:
    """The reply's JSON; NaN and a cut or foreign text are faults."""
    try:
        return json.loads(payload, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        return fault("engine_error", f"the reply is no JSON: {type(error).__name__}", again=True, odd=True)


def _constant(name: str) -> float:
    if name == "-Infinity":
        return float("-inf")  # a log-probability of 0
    raise ValueError(name)


async def _bounded(response: httpx2.Response) -> bytes:
    chunks, size = [], 0
    async for chunk in response.aiter_bytes():
        size += len(chunk)
        if size > _LARGEST_REPLY:
            raise httpx2.DecodingError("the reply is too large", request=response.request)
        chunks.append(chunk)
    return b"".join(chunks)


def _broken(error: httpx2.RequestError) -> Fault:
    """The exceptions' own words can hold header values, so only the name of the exception is told."""
    name = type(error).__name__
    if isinstance(error, httpx2.DecodingError):
        return fault("engine_error", f"the reply cannot be read: {name}", again=True, odd=True)
    if isinstance(error, httpx2.LocalProtocolError | httpx2.UnsupportedProtocol):
        return fault("engine_error", f"the request cannot be sent: {name}")
    connecting = isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    detail = f"{'no connection' if connecting else 'connection cut'}: {name}"
    return fault("unreachable", detail, again=True, broken=True)
