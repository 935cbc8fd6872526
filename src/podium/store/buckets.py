"""How fast a key may be used: a bucket that refills as time goes by, with nothing that runs
meanwhile.

A bucket holds a minute's worth. What is taken is an estimate, made before anything is known; it
is put right afterwards, be it that the bucket is then in debt, which passes with time as well.

Nothing here knows whose buckets they are, or where they are: those of keys that several processes
serve are in their store.
"""

from __future__ import annotations

from typing import Final

SECONDS: Final = 60.0
"""What a rate counts in."""


class Bucket:
    """Refills at `per_minute`. It is full at first, unless something else is `left`, and never
    holds more than a minute's worth."""

    __slots__ = ("_at", "left", "per_minute")

    def __init__(self, per_minute: float, now: float, left: float | None = None) -> None:
        self.per_minute = per_minute
        self.left = per_minute if left is None else min(left, per_minute)
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """How many seconds must pass until that much can be taken; 0 is now.

        What is more than the bucket can ever hold may be taken as soon as it is full.
        """
        self._refill(now)
        missing = min(amount, self.per_minute) - self.left
        return max(0.0, missing * SECONDS / self.per_minute)

    def take(self, amount: float) -> None:
        """Take that much, into debt if need be; less than nothing is put back."""
        self.left = min(self.left - amount, self.per_minute)

    def _refill(self, now: float) -> None:
        passed = max(0.0, now - self._at)  # a clock may be set back
        self._at = now
        self.left = min(self.left + passed * self.per_minute / SECONDS, self.per_minute)


class Rates:
    """The buckets of one key: requests, and tokens. None is no limit. They are full at first, or
    have `left` what they had."""

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
        """How many seconds must pass until a request of so many tokens may begin; 0 is now."""
        requests = 0.0 if self._requests is None else self._requests.wait(1.0, now)
        return max(requests, 0.0 if self._tokens is None else self._tokens.wait(tokens, now))

    def begin(self, tokens: int) -> None:
        """Take a request and its tokens."""
        if self._requests is not None:
            self._requests.take(1.0)
        if self._tokens is not None:
            self._tokens.take(tokens)

    def correct(self, tokens: int) -> None:
        """So many more tokens, or fewer, were used than had been taken."""
        if self._tokens is not None:
            self._tokens.take(tokens)

    @property
    def left(self) -> tuple[float | None, float | None]:
        """What is in the buckets of requests and of tokens."""
        return (
            None if self._requests is None else self._requests.left,
            None if self._tokens is None else self._tokens.left,
        )


def _bucket(per_minute: float | None, now: float, left: float | None) -> Bucket | None:
    return None if per_minute is None else Bucket(per_minute, now, left)
