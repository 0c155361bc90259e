"""What keeps an endpoint from being overrun or waited for in vain: rates, concurrency, circuit breaker.

Pure state: every method is told the time, nothing here sleeps.
"""

from axiomrm.data.verdict import FailureKind

FAULTS_TO_OPEN = 5
"""Faults in a row after which an endpoint gets no more requests for a while."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 30.0


class TokenBucket:
    """A token bucket that grants debts: a taker is told how long to wait, so takers keep their order.

    It holds at most one second's worth (at least one token), so any minute sees at most
    ``per_minute + max(1, per_minute / 60)``.
    """

    def __init__(self, per_minute: float | None) -> None:
        """``None``: unlimited."""
        self._rate = None if per_minute is None else per_minute / 60
        self._most = max(1.0, self._rate or 0.0)
        self._level, self._at = self._most, 0.0

    def take(self, amount: float, now: float) -> float:
        """Seconds to wait before ``amount`` may be spent."""
        if self._rate is None:
            return 0.0
        self._level = min(self._most, self._level + max(0.0, now - self._at) * self._rate) - amount
        self._at = max(now, self._at)
        return max(0.0, -self._level / self._rate)

    def correct(self, amount: float) -> None:
        """Give back what was not spent, or take what was spent beyond the estimate (negative)."""
        if self._rate is not None:
            self._level = min(self._most, self._level + amount)


class Concurrency:
    """Additive increase, multiplicative decrease: half on 429, one more for each round without."""

    def __init__(self, most: int) -> None:
        """Start at the most."""
        self._most, self._limit, self._cut_at = most, float(most), float("-inf")

    @property
    def limit(self) -> int:
        """Requests that may be in flight, at least 1."""
        return max(1, int(self._limit))

    def answered(self) -> None:
        """A request was served."""
        self._limit = min(float(self._most), self._limit + 1 / self._limit)

    def refused(self, sent_at: float, now: float) -> None:
        """A request was answered with 429; those sent before the last cut do not cut again."""
        if sent_at > self._cut_at:
            self._limit, self._cut_at = max(1.0, self._limit / 2), now


class Breaker:
    """Closed → open after faults in a row → half-open: one trial request decides.

    ``since`` is when the first fault of the row came, so callers can tell an outage from a hiccup.
    """

    def __init__(self) -> None:
        """Closed."""
        self.faults, self.since = 0, 0.0
        self.kind: FailureKind = "unreachable"
        self.retry_at: float | None = None
        self._pause, self._trying = FIRST_PAUSE_S, False

    @property
    def open(self) -> bool:
        """Whether only trial requests pass."""
        return self.retry_at is not None

    def allows(self, now: float) -> bool:
        """Whether a request may go out."""
        return self.retry_at is None or (now >= self.retry_at and not self._trying)

    def admit(self) -> bool:
        """Count a request as going out; true: it is the trial."""
        self._trying = self.open
        return self._trying

    def answered(self) -> None:
        """The endpoint works."""
        self.faults, self.retry_at, self._pause, self._trying = 0, None, FIRST_PAUSE_S, False

    def given_up(self, trial: bool) -> None:
        """The request ended without telling anything (cancelled)."""
        self._trying = self._trying and not trial

    def failed(self, now: float, kind: FailureKind, trial: bool) -> None:
        """A fault of the endpoint itself: no connection, no answer in time, 5xx."""
        if self.open and not trial:
            return  # sent before it opened; known already
        self.since = now if self.faults == 0 else self.since
        self.faults, self.kind, self._trying = self.faults + 1, kind, False
        if trial or self.faults >= FAULTS_TO_OPEN:
            self.retry_at = now + self._pause
            self._pause = min(LONGEST_PAUSE_S, 2 * self._pause)
