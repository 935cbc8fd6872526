"""Rate limits: token buckets that refill evenly."""

from __future__ import annotations


class TokenBucket:
    """A token bucket that refills at `per_minute` and holds at most a minute's worth."""

    __slots__ = ("_at", "left", "per_minute")

    def __init__(self, per_minute: float, now: float, left: float | None = None) -> None:
        self.per_minute = per_minute
        self.left = per_minute if left is None else min(left, per_minute)
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Return the seconds until the amount can be taken; 0 is now.

        An amount larger than the bucket can be taken as soon as the bucket is full.
        """
        passed = max(0.0, now - self._at)  # the clock may be set back
        self._at = now
        self.left = min(self.left + passed * self.per_minute / 60, self.per_minute)
        missing = min(amount, self.per_minute) - self.left
        return max(0.0, missing * 60 / self.per_minute)

    def take(self, amount: float) -> None:
        """Take the amount, into debt if need be; a negative amount is put back."""
        self.left = min(self.left - amount, self.per_minute)


class RateLimiter:
    """Limits on requests and on tokens; None is no limit."""

    __slots__ = ("_requests", "_tokens")

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        now: float,
        left: tuple[float | None, float | None] = (None, None),
    ) -> None:
        self._requests = _bucket(requests_per_minute, now, left[0])
        self._tokens = _bucket(tokens_per_minute, now, left[1])

    def wait(self, tokens: int, now: float) -> float:
        """Return the seconds until a request of so many tokens may begin; 0 is now."""
        requests = 0.0 if self._requests is None else self._requests.wait(1.0, now)
        return max(requests, 0.0 if self._tokens is None else self._tokens.wait(tokens, now))

    def take(self, tokens: int, *, requests: int = 1) -> None:
        """Count requests and their tokens; negative numbers are put back."""
        if self._requests is not None:
            self._requests.take(requests)
        self.correct(tokens)

    def correct(self, tokens: int) -> None:
        """Count tokens used beyond those taken before; a negative number is put back."""
        if self._tokens is not None:
            self._tokens.take(tokens)

    @property
    def left(self) -> tuple[float | None, float | None]:
        """The requests and tokens left."""
        return (
            None if self._requests is None else self._requests.left,
            None if self._tokens is None else self._tokens.left,
        )


def _bucket(per_minute: float | None, now: float, left: float | None) -> TokenBucket | None:
    return None if per_minute is None else TokenBucket(per_minute, now, left)
