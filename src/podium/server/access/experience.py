"""What requests come to, as far as experience tells: what one is taken to claim as it begins."""

from __future__ import annotations

from typing import Final

from podium.pool import Pool
from podium.store.keys import Charged

NEWEST_COUNTS: Final = 0.1
"""How much the newest request counts in the experience, against all before it."""


class Experience:
    """What requests for a model come to.

    A tier's plan may take ten calls or one, of workers at any price; how much that is shows only
    as it happens, and no longer question tells it. So a request is taken to come to what those
    before it did on average, and to no less than what reading it costs: its tokens, at `dearest`
    dollars each.
    """

    def __init__(self, dearest: float) -> None:
        self._means: dict[str, tuple[float, float]] = {}
        self._dearest = dearest

    def estimate(self, model: str, tokens: int) -> Charged:
        """What a request of so many tokens will probably come to."""
        mean_usd, mean_tokens = self._means.get(model, (0.0, 0.0))
        return Charged(max(mean_usd, tokens * self._dearest), max(round(mean_tokens), tokens))

    def learn(self, model: str, used: Charged) -> None:
        """A request has come to this."""
        usd, tokens = self._means.get(model, (used.usd, float(used.tokens)))
        self._means[model] = (
            usd + NEWEST_COUNTS * (used.usd - usd),
            tokens + NEWEST_COUNTS * (used.tokens - tokens),
        )


def dearest(pool: Pool) -> float:
    """The most that reading a token costs anywhere in the pool, in dollars, as far as known."""
    prices = (worker.price for worker in pool if worker.price is not None)
    return max((price.highest_input for price in prices), default=0.0) / 1_000_000
