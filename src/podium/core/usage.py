"""Tokens and money, as the providers reported them.

Unknown is not zero: a count that a provider did not report is None, and so is a sum with an unknown
part. Nothing is estimated here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeVar

Number = TypeVar("Number", int, float)


def add(one: Number | None, other: Number | None) -> Number | None:
    """Add; None if a part is None."""
    return None if one is None or other is None else one + other


def subtract(one: Number | None, other: Number | None) -> Number | None:
    """Subtract; None if a part is None."""
    return None if one is None or other is None else one - other


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one call, or the sum over several.

    `input_tokens` counts everything that was read, so `cached_input_tokens` (read from the
    provider's cache) and `cache_write_tokens` (written to it) are parts of it; those written for an
    hour, which Anthropic prices apart, are `cache_write_1h_tokens`, a part of the latter.
    `reasoning_tokens` are a part of `output_tokens`.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None
    cache_write_1h_tokens: int | None = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            add(self.input_tokens, other.input_tokens),
            add(self.output_tokens, other.output_tokens),
            add(self.cached_input_tokens, other.cached_input_tokens),
            add(self.reasoning_tokens, other.reasoning_tokens),
            add(self.cache_write_tokens, other.cache_write_tokens),
            add(self.cache_write_1h_tokens, other.cache_write_1h_tokens),
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            subtract(self.input_tokens, other.input_tokens),
            subtract(self.output_tokens, other.output_tokens),
            subtract(self.cached_input_tokens, other.cached_input_tokens),
            subtract(self.reasoning_tokens, other.reasoning_tokens),
            subtract(self.cache_write_tokens, other.cache_write_tokens),
            subtract(self.cache_write_1h_tokens, other.cache_write_1h_tokens),
        )

    @property
    def total_tokens(self) -> int | None:
        """Input and output together."""
        return add(self.input_tokens, self.output_tokens)


NO_USAGE: Final = Usage(0, 0, 0, 0, 0)
"""Known to be zero: the sum over no calls, or a call refused unbilled."""

UNKNOWN_USAGE: Final = Usage()
"""The provider did not report."""

MAX_TOKENS: Final = 10**9
"""No call uses more; a higher report is a mistake."""


def plausible_usage(usage: Usage) -> Usage:
    """Return the usage with impossible counts made unknown.

    Impossible are negative, fractional or huge counts, and parts larger than their whole, which
    would make a cost negative.
    """
    read, written = usage.input_tokens, usage.output_tokens
    cached, reasoned = usage.cached_input_tokens, usage.reasoning_tokens
    kept, hour = usage.cache_write_tokens, usage.cache_write_1h_tokens
    if (
        type(read) is type(written) is type(cached) is type(reasoned) is type(kept) is int
        and type(hour) is int
        and 0 <= reasoned <= written <= MAX_TOKENS
        and cached >= 0
        and 0 <= hour <= kept
        and cached + kept <= read <= MAX_TOKENS
    ):
        return usage
    counts = Usage(*map(_count, (read, written, cached, reasoned, kept, hour)))
    if (counts.cache_write_1h_tokens or 0) > (counts.cache_write_tokens or 0):
        counts = replace(counts, cache_write_1h_tokens=None)
    parts = (counts.cached_input_tokens or 0) + (counts.cache_write_tokens or 0)
    if counts.input_tokens is not None and parts > counts.input_tokens:
        counts = replace(counts, cached_input_tokens=None, cache_write_tokens=None)
    if counts.output_tokens is not None and (counts.reasoning_tokens or 0) > counts.output_tokens:
        counts = replace(counts, reasoning_tokens=None)
    return usage if counts == usage else counts


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """US dollars per million tokens.

    `cached` and `cache_write` default to the input price, `cache_write_1h` to `cache_write`.
    `beyond` holds the prices that replace these for the whole call when its input is longer than
    `beyond.over` tokens.
    """

    input: float
    output: float
    cached: float | None = None
    cache_write: float | None = None
    cache_write_1h: float | None = None
    over: int = 0
    beyond: Price | None = None

    def cost(self, usage: Usage) -> float | None:
        """Return the cost in US dollars; None if a count that matters is unknown."""
        if self.is_free:
            return 0.0
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        if self.beyond is not None and usage.input_tokens > self.beyond.over:
            return self.beyond.cost(usage)
        cached, written = usage.cached_input_tokens, usage.cache_write_tokens
        hour = usage.cache_write_1h_tokens
        if (
            (cached is None and self.cached is not None)
            or (written is None and self.cache_write is not None)
            or (hour is None and self.cache_write_1h is not None)
        ):
            return None
        cached, written, hour = cached or 0, written or 0, hour or 0
        write_price = self.input if self.cache_write is None else self.cache_write
        dollars = (
            (usage.input_tokens - cached - written) * self.input
            + cached * (self.input if self.cached is None else self.cached)
            + (written - hour) * write_price
            + hour * (write_price if self.cache_write_1h is None else self.cache_write_1h)
            + usage.output_tokens * self.output
        )
        return dollars / 1_000_000

    @property
    def is_free(self) -> bool:
        """True if every price is zero."""
        return not (self.highest_input or self.highest_output)

    @property
    def highest_input(self) -> float:
        """The most that one input token can cost, for reserving money before a call."""
        prices = [self.input, self.cached or 0, self.cache_write or 0, self.cache_write_1h or 0]
        return max(prices + ([self.beyond.highest_input] if self.beyond else []))

    @property
    def highest_output(self) -> float:
        """The most that one output token can cost, for reserving money before a call."""
        return max(self.output, self.beyond.highest_output if self.beyond else 0)


FREE: Final = Price(input=0, output=0)
"""The price of a model on one's own machine."""
