"""Several endpoints of one judge: which one gets the next request, and who has to wait.

Requests about one conversation prefer one endpoint, where its prefix is cached (rendezvous hashing), unless
that endpoint is clearly busier than another, broken, or has asked to be left alone.
"""

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import unquote, urlsplit

from axiomrm.errors import ConfigError
from axiomrm.rm.engines.http_faults import Fault, fault
from axiomrm.rm.engines.http_limits import Deadline, HttpLimits
from axiomrm.rm.engines.http_pacing import Breaker, Concurrency, TokenBucket

BUSIER = 4
"""Requests that the preferred endpoint may have in flight beyond the idlest one."""
Clock = Callable[[], float]


class Endpoint:
    """One base URL with what is known about its health."""

    def __init__(self, url: str, limits: HttpLimits) -> None:
        """Check the URL.

        Raises:
            ConfigError: not an http(s) URL, or one with a query or fragment.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if host is None or parts.scheme not in ("http", "https"):
            raise ConfigError(f"judge url {_shown(url)!r}: expected http(s)://host[:port]/v1")
        if parts.query or parts.fragment:
            raise ConfigError(f"judge url {_shown(url)!r}: expected no query and no fragment after the path")
        name = f"[{host}]" if ":" in host else host
        self.place = f"{parts.scheme}://{name}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
        """The URL without user info: what may be shown."""
        self.login = _basic(parts.username, parts.password)
        """``Authorization`` of the URL's user info; empty without one. A secret."""
        self.breaker, self.concurrency = Breaker(), Concurrency(limits.concurrency)
        self.requests, self.tokens = TokenBucket(limits.rpm), TokenBucket(limits.tpm)
        self.in_flight, self.not_before = 0, 0.0

    def __repr__(self) -> str:
        return f"Endpoint({self.place!r})"

    def ready(self, now: float) -> bool:
        """Whether a request may go out now."""
        free = self.in_flight < self.concurrency.limit
        return free and now >= self.not_before and self.breaker.allows(now)

    def ready_at(self, now: float) -> float:
        """When its breaker and ``Retry-After`` let a request pass, as far as is known."""
        return max(now, self.not_before, self.breaker.retry_at or 0.0)


@dataclass(frozen=True)
class Lease:
    """A request's place at an endpoint."""

    endpoint: Endpoint
    trial: bool
    """The one request that decides whether a broken endpoint is back."""


class Pool:
    """Endpoints and the queue before them; lives in one event loop."""

    def __init__(self, endpoints: Sequence[Endpoint], patience_s: float, clock: Clock) -> None:
        """``patience_s``: how long an outage may be for requests to wait for its end."""
        self.endpoints, self.patience_s, self.clock = endpoints, patience_s, clock
        self.queue = Queue(self._places)
        self._changed = asyncio.Event()

    async def lease(self, key: str, deadline: Deadline, avoid: Endpoint | None = None) -> Lease | Fault:
        """A place at the best endpoint that is free, or the fault that nobody will be in time.

        Args:
            key: requests with equal keys prefer the same endpoint.
            deadline: of the request.
            avoid: where it has just failed; taken only if nothing else is free.
        """
        while True:
            now = self.clock()
            if (endpoint := self.choose(key, now, avoid)) is not None:
                endpoint.in_flight += 1
                return Lease(endpoint, endpoint.breaker.admit())
            if (hopeless := self._hopeless(now)) is not None:
                return hopeless
            ready = min(e.ready_at(now) for e in self.endpoints)
            if ready - now >= deadline.left(now):
                return self._late(now)
            await self._wait(max(0.001, min(ready - now or deadline.left(now), deadline.left(now))))

    def release(self, lease: Lease) -> None:
        """Free the place and wake whoever waits for one."""
        lease.endpoint.in_flight -= 1
        lease.endpoint.breaker.given_up(lease.trial)
        self.queue.wake()
        self._changed.set()
        self._changed = asyncio.Event()

    def choose(self, key: str, now: float, avoid: Endpoint | None = None) -> Endpoint | None:
        """The endpoint for a request now; ``None``: none is ready."""
        ready = [e for e in self.endpoints if e.ready(now)]
        others = [e for e in ready if e is not avoid]
        if not (ready := others or ready):
            return None
        trial = next((e for e in ready if e.breaker.open), None)
        if trial is not None:
            return trial  # one request finds out whether it is back
        idlest = min(e.in_flight for e in ready)
        near = [e for e in ready if e.in_flight <= idlest + (BUSIER if len(ready) > 1 else 0)]
        return max(near, key=lambda e: _weight(key, e.place))

    def other_works(self, endpoint: Endpoint, now: float) -> bool:
        """Whether another endpoint could take over now."""
        return any(e is not endpoint and not e.breaker.open and now >= e.not_before for e in self.endpoints)

    def _hopeless(self, now: float) -> Fault | None:
        """All endpoints are down for longer than a request would wait: fail at once, trials apart."""
        broken = [e.breaker for e in self.endpoints if e.breaker.open]
        if len(broken) < len(self.endpoints) or any(now - b.since < self.patience_s for b in broken):
            return None
        down = now - max(b.since for b in broken)
        return fault(broken[-1].kind, f"no endpoint has answered for {down:.0f} s; not asked again yet")

    def _late(self, now: float) -> Fault:
        if any(e.not_before > now for e in self.endpoints):
            return fault("rate_limited", "the server wants to be left alone beyond this request's deadline")
        kinds = [e.breaker.kind for e in self.endpoints if e.breaker.open]
        return fault(kinds[0] if kinds else "timeout", "no endpoint was free before the deadline")

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _places(self) -> int:
        working = [e.concurrency.limit for e in self.endpoints if not e.breaker.open]
        return sum(working or [e.concurrency.limit for e in self.endpoints])


class Queue:
    """First come, first served; how many are inside may change while they wait."""

    def __init__(self, capacity: Callable[[], int]) -> None:
        """``capacity`` is asked anew each time."""
        self._capacity, self._inside = capacity, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        self.wake()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def wake(self) -> None:
        """Let in whoever fits."""
        while self._waiting and self._inside < self._capacity():
            place = self._waiting.popleft()
            if not place.done():
                self._inside += 1
                place.set_result(None)

    def _leave(self) -> None:
        self._inside -= 1
        self.wake()


def _weight(key: str, place: str) -> bytes:
    return hashlib.sha256(f"{len(key)} {key} {place}".encode("utf-8", "surrogatepass")).digest()


def _basic(user: str | None, password: str | None) -> str:
    if user is None:
        return ""
    pair = f"{unquote(user)}:{unquote(password or '')}".encode()
    return f"Basic {base64.b64encode(pair).decode()}"


def _shown(url: str) -> str:
    """A URL for a message: without user info, query and fragment, which may hold secrets."""
    rest = url.split("?", 1)[0].split("#", 1)[0]
    scheme, mark, tail = rest.partition("://")
    return scheme + mark + tail.rpartition("@")[2] if mark else rest.rpartition("@")[2]
