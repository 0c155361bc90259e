"""Patience and pressure: how long one request may take, and how hard a server may be pressed."""

import math
from dataclasses import dataclass, fields

from axiomrm.errors import ConfigError


@dataclass(frozen=True)
class HttpLimits:
    """Limits of the HTTP engine; rates and concurrency count for each endpoint."""

    deadline_s: float = 60.0
    """For one request, its retries and waits included. The clock runs from the request's turn on and stands
    still while our own rate limit holds it back."""
    concurrency: int = 8
    """Requests in flight; halves when the server answers 429 and grows back."""
    rpm: float | None = None
    """Requests a minute, evenly paced."""
    tpm: float | None = None
    """Prompt plus completion tokens a minute, evenly paced."""
    first_wait_s: float = 0.5
    """Upper end of the first backoff; doubles with each retry up to ``longest_wait_s``."""
    longest_wait_s: float = 8.0
    attempts: int = 8
    """Most sends of one request."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise ConfigError(f"{field.name} {value!r}: expected a number above 0")
        for name in ("concurrency", "attempts"):
            if int(getattr(self, name)) != getattr(self, name):
                raise ConfigError(f"{name} {getattr(self, name)!r}: expected a whole number")


class Deadline:
    """Time left for one request; the clock is the caller's, so that it can be tested without waiting."""

    def __init__(self, now: float, seconds: float) -> None:
        """Start at ``now``."""
        self.at = now + seconds

    def left(self, now: float) -> float:
        """Seconds, negative when it is over."""
        return self.at - now

    def stand_still(self, seconds: float) -> None:
        """Do not count ``seconds``."""
        self.at += seconds
