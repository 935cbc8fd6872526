"""What a key may spend: its budgets of the day, the month and in all, in money and in tokens.

Before a request begins, the purse *holds* what it will probably use; when the request is done,
the hold is settled to what it did use. A hold is never more than what is left besides the other
holds, so spent and held together stay within every cap, and a cap can only be passed by what the
requests that were in flight used beyond their estimates. What stays unknown is charged at its
hold: a budget must not be escaped by not telling. A request that settles after midnight counts
for the day on which it settles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from podium.store.keys import NO_CAP, Allowance, Charged, Rules, Standing

Period = Literal["day", "month", "total"]

_NOTHING: Final = Charged()


@dataclass(frozen=True, slots=True)
class Exhausted:
    """A cap that leaves nothing: of which period, on what, and how much it is. `held` says that
    requests in flight hold the rest, so that some of it may come back."""

    period: Period
    what: Literal["usd", "tokens"]
    cap: float
    held: bool


class Purse:
    """The budgets of one key. It lives on one event loop."""

    __slots__ = ("_caps", "_charged", "_held", "_holds")

    def __init__(self, rules: Rules) -> None:
        caps: tuple[tuple[Period, Allowance], ...] = (
            ("day", rules.per_day),
            ("month", rules.per_month),
            ("total", rules.in_total),
        )
        self._caps = tuple(cap for cap in caps if cap[1] != NO_CAP)
        self._charged: dict[Period, Charged] = dict.fromkeys(get_args(Period), _NOTHING)
        self._held = _NOTHING
        self._holds = 0

    @property
    def is_capped(self) -> bool:
        """Whether there is any cap, so that it matters what was charged."""
        return bool(self._caps)

    def stand(self, standing: Standing) -> None:
        """So much has been charged; what is held stays held."""
        self._charged = {"day": standing.day, "month": standing.month, "total": standing.total}

    def exhausted(self) -> Exhausted | None:
        """The first cap that leaves nothing, or None while each leaves something."""
        for period, cap in self._caps:
            charged = self._charged[period]
            if cap.usd is not None and charged.usd + self._held.usd >= cap.usd:
                return Exhausted(period, "usd", cap.usd, held=charged.usd < cap.usd)
            if cap.tokens is not None and charged.tokens + self._held.tokens >= cap.tokens:
                return Exhausted(period, "tokens", cap.tokens, held=charged.tokens < cap.tokens)
        return None

    def left(self, own: Charged = _NOTHING) -> Allowance:
        """What may still be used, besides what is held by others than `own`."""
        usd: float | None = None
        tokens: int | None = None
        for period, cap in self._caps:
            charged = self._charged[period]
            if cap.usd is not None:
                rest = max(0.0, cap.usd - charged.usd - self._held.usd + own.usd)
                usd = rest if usd is None else min(usd, rest)
            if cap.tokens is not None:
                remaining = max(0, cap.tokens - charged.tokens - self._held.tokens + own.tokens)
                tokens = remaining if tokens is None else min(tokens, remaining)
        return Allowance(usd=usd, tokens=tokens)

    def hold(self, estimate: Charged) -> Charged:
        """Hold the estimate, or what is left where that is less."""
        left = self.left()
        held = Charged(
            estimate.usd if left.usd is None else min(estimate.usd, left.usd),
            estimate.tokens if left.tokens is None else min(estimate.tokens, left.tokens),
        )
        self._held += held
        self._holds += 1
        return held

    def settle(self, held: Charged, used: Charged) -> None:
        """In the place of what was held, charge what was used."""
        self._holds -= 1
        rest = Charged(self._held.usd - held.usd, self._held.tokens - held.tokens)
        self._held = rest if self._holds else _NOTHING  # sums of fractions leave crumbs
        self.charge(used)

    def charge(self, used: Charged) -> None:
        """Charge what was used without a hold."""
        self._charged = {period: sum_ + used for period, sum_ in self._charged.items()}

    @property
    def held(self) -> Charged:
        """What the requests in flight hold."""
        return self._held

    def charged(self, period: Period) -> Charged:
        """What has been charged in that period."""
        return self._charged[period]


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
