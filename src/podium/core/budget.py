"""The budget of a run, and the ledger that keeps it.

A run and every run nested in it share one ledger. Before each call the engine takes a *hold*:
one call, the tokens and the money that the call may use at most. When the call ends the hold is
settled to what the provider reported. A hold that would pass a cap is refused, so caps on calls
and on output hold exactly, under any concurrency; the size of an input is only known roughly
beforehand (three bytes a token), and a cap on tokens or money can be passed by that error.
A call whose usage stays unknown is settled at its full hold: the budget assumes the worst. So
that one call cannot take everything, a hold is at most a fair share of what is left, between it
and the steps that are still to come.

Where several runs draw on one account besides, such as that of a server's key, each hold is taken
there as well, so that its caps hold for all of them together.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, Protocol

from podium.core.errors import BudgetExhausted, ConfigError
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import Image, Request, ToolCall, ToolResult
from podium.core.usage import NO_USAGE, Price, Usage

DEFAULT_OUTPUT_TOKENS: Final = 8192
"""The output a capped call may use where neither the request nor the worker says."""

LEAST_OUTPUT_TOKENS: Final = 16
"""A call that could afford less output than this is not worth making."""

BYTES_A_TOKEN: Final = 3
TOKENS_AN_IMAGE: Final = 1600


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The caps of a run. None is no cap. `depth` is how deep runs may nest (0: not at all)."""

    calls: int | None = None
    tokens: int | None = None
    usd: float | None = None
    seconds: float | None = None
    depth: int = 2
    allow_unpriced: bool = False

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "usd", "seconds", "depth"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ConfigError(f"budget.{name} is {value}; a cap is a number from 0 up")

    def check(self, workers: Iterable[WorkerProfile]) -> None:
        """Refuse a cap on money over workers whose price nobody knows."""
        if self.usd is None or self.allow_unpriced:
            return
        unpriced = [
            worker.name
            for worker in workers
            if worker.price is None and worker.provider != CONDUCTOR_PROVIDER
        ]
        if unpriced:
            raise _unpriced(unpriced)

    def narrowed(self, caps: Mapping[str, float | None]) -> Budget:
        """This budget with those caps, by their names, where they are lower than its own. None is
        no cap, so nothing can be made wider."""
        lower: dict[str, float] = {}
        for name, cap in caps.items():
            own = getattr(self, name)
            if cap is not None and (own is None or cap < own):
                lower[name] = cap
        return replace(self, **lower) if lower else self  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has used so far, as its budget counts it."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CallReservation:
    """A reservation for one call. `max_tokens` is the most output it may ask for, if capped."""

    tokens: int = 0
    usd: float = 0.0
    max_tokens: int | None = None


_UNCAPPED: Final = CallReservation()


class Remaining(NamedTuple):
    """What is left of caps, besides what calls in flight hold. None is no cap."""

    tokens: int | None
    usd: float | None


class Account(Protocol):
    """What a run draws on besides its own budget, together with runs that it knows nothing of."""

    @property
    def left(self) -> Remaining:
        """What this run may still hold."""
        ...

    @property
    def may_get_back(self) -> bool:
        """Whether calls in flight, of any run, may be settled for less than they hold."""
        ...

    def exhausted(self, cap: str) -> BudgetExhausted:
        """The error that says whose `tokens` or `usd` are spent."""
        ...

    def hold(self, hold: CallReservation) -> None:
        """A call begins that may use so much."""
        ...

    def settle(self, hold: CallReservation, tokens: int, usd: float) -> None:
        """That call has ended, and this is what it counts for."""
        ...

    async def change(self) -> None:
        """Wait until more may be left, or nothing can come back any more."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether other processes draw on it too, so that a hold must be secured."""
        ...

    async def secure(self) -> bool:
        """Make sure of all that this run holds; False where others were faster, and what is left
        is known anew. Raises `StoreError` where nobody can tell."""
        ...


class Ledger:
    """Keeps one budget for a whole tree of runs, and to the account that they draw on. Not
    thread-safe: it lives on one event loop."""

    def __init__(
        self,
        budget: Budget,
        spent: Spent = Spent(),
        clock: Callable[[], float] = time.monotonic,
        account: Account | None = None,
    ) -> None:
        self.budget = budget
        self._account = account
        self.is_shared = account is not None and account.is_shared
        self._clock = clock
        self._started = clock() - spent.seconds
        self._calls = spent.calls
        self._tokens = spent.tokens
        self._usd = spent.usd
        self._held_tokens = 0
        self._held_usd = 0.0
        self._holds = 0
        self._waiting: list[asyncio.Future[None]] = []

    def hold(
        self, profile: WorkerProfile, request: Request, share: int = 1
    ) -> CallReservation | None:
        """Reserve one call, with the output cut down to one of `share` parts of what is left.

        Returns None when the call could be afforded only after calls now in flight have been
        settled for less than they hold: await `change` and try again.
        """
        budget = self.budget
        if budget.calls is not None and self._calls >= budget.calls:
            raise BudgetExhausted("calls", budget.calls)
        if budget.seconds is not None and self.seconds_left == 0:
            raise BudgetExhausted("seconds", budget.seconds)
        account = self._account
        if budget.tokens is None and budget.usd is None and account is None:
            self._calls += 1
            return _UNCAPPED
        hold = self._affordable(profile, request, share)
        if hold is None:
            return None
        self._calls += 1
        self._holds += 1
        self._held_tokens += hold.tokens
        self._held_usd += hold.usd
        if account is not None:
            account.hold(hold)
        return hold

    async def secured(
        self, hold: CallReservation | None, profile: WorkerProfile, request: Request, share: int = 1
    ) -> CallReservation:
        """The hold, once it is certain with all who draw on the same account; for None, the one
        that can be taken when what is missing has come back."""
        while True:
            if hold is None:
                await self.change()
            elif await self.is_certain(hold):
                return hold
            hold = self.hold(profile, request, share)

    async def is_certain(self, hold: CallReservation) -> bool:
        """Whether the hold stands; it is given back where it does not."""
        if self._account is None:
            return True
        certain = False
        try:
            certain = await self._account.secure()
        finally:
            if not certain:
                self.release(hold)
        return certain

    def count(self) -> None:
        """Count as a call what is none to a worker and costs nothing: the use of a tool."""
        if self.budget.calls is not None and self._calls >= self.budget.calls:
            raise BudgetExhausted("calls", self.budget.calls)
        self._calls += 1

    def release(self, hold: CallReservation) -> None:
        """Give a hold back whose call was never made."""
        self._calls -= 1
        self.settle(hold, NO_USAGE, 0.0)

    def settle(self, hold: CallReservation, usage: Usage, cost: float | None) -> None:
        """Replace a hold by what the call really used."""
        total = usage.total_tokens
        if hold is _UNCAPPED:
            self._tokens += total or 0
            self._usd += cost or 0.0
            return
        self._holds -= 1
        self._held_tokens -= hold.tokens
        self._held_usd -= hold.usd
        tokens = hold.tokens if total is None else total
        usd = hold.usd if cost is None else cost
        self._tokens += tokens
        self._usd += usd
        if self._account is not None:
            self._account.settle(hold, tokens, usd)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def change(self) -> None:
        """Wait until a hold has been settled."""
        if self._account is not None:
            await self._account.change()  # it hears of every hold of this ledger's too
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    @property
    def seconds_left(self) -> float | None:
        """Wall time until the deadline, or None without one."""
        if self.budget.seconds is None:
            return None
        return max(0.0, self.budget.seconds - (self._clock() - self._started))

    @property
    def spent(self) -> Spent:
        """What has been used so far; holds in flight are not in it."""
        return Spent(self._calls, self._tokens, self._usd, self._clock() - self._started)

    def _affordable(
        self, profile: WorkerProfile, request: Request, share: int
    ) -> CallReservation | None:
        """The largest hold that fits: output is cut down to its share of what is left. None where
        what is missing may come back."""
        budget, account = self.budget, self._account
        price = profile.price
        if budget.usd is not None and price is None and not budget.allow_unpriced:
            raise _unpriced([profile.name])
        inputs = estimate_input_tokens(request)
        wanted = request.max_tokens or profile.limits.max_output_tokens or DEFAULT_OUTPUT_TOKENS
        outputs, missing = _affordable_output(self._left, price, inputs, wanted, share)
        if missing:
            if self._holds:
                return None
            raise BudgetExhausted(missing, getattr(budget, missing))
        if account is not None:
            outputs, missing = _affordable_output(account.left, price, inputs, outputs, share)
            if missing:
                if account.may_get_back:
                    return None
                raise account.exhausted(missing)
        return CallReservation(inputs + outputs, self._usd_at_most(price, inputs, outputs), outputs)

    @property
    def _left(self) -> Remaining:
        tokens, usd = self.budget.tokens, self.budget.usd
        return Remaining(
            None if tokens is None else tokens - self._tokens - self._held_tokens,
            None if usd is None else usd - self._usd - self._held_usd,
        )

    def _usd_at_most(self, price: Price | None, inputs: int, outputs: int) -> float:
        """What a call may cost, where anybody caps money."""
        if price is None or (self.budget.usd is None and self._account is None):
            return 0.0
        return (inputs * price.highest_input + outputs * price.highest_output) / 1_000_000


def _affordable_output(
    left: Remaining, price: Price | None, inputs: int, wanted: int, share: int
) -> tuple[int, str]:
    """How much of the output that is wanted can be paid from what is left, and the cap that leaves
    too little for a call to be worth making, or nothing."""
    least = min(wanted, LEAST_OUTPUT_TOKENS)
    outputs = wanted
    if left.tokens is not None:
        tokens = left.tokens - inputs
        if tokens < least:
            return 0, "tokens"
        outputs = min(outputs, max(tokens // share, least))
    if left.usd is not None and price is not None:
        usd = left.usd - inputs * price.highest_input / 1_000_000
        if usd < least * price.highest_output / 1_000_000:
            return 0, "usd"
        if price.highest_output:
            affordable = int(usd * 1_000_000 / price.highest_output)
            outputs = min(outputs, max(affordable // share, least))
    return outputs, ""


def _unpriced(names: list[str]) -> ConfigError:
    return ConfigError(
        f"the budget caps money, but no price is known for {', '.join(names)}; "
        f"set a price, drop the worker, or set budget.allow_unpriced = true"
    )


def estimate_input_tokens(request: Request) -> int:
    """Roughly how many tokens the request is, on the high side: words, pictures and tools."""
    tokens = 1
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Image):
                tokens += TOKENS_AN_IMAGE
            else:
                tokens += _tokens_of(part.arguments if isinstance(part, ToolCall) else part.text)
            if isinstance(part, ToolResult):
                tokens += TOKENS_AN_IMAGE * len(part.images)
    for tool in request.tools:
        tokens += _tokens_of(json.dumps([tool.name, tool.description, dict(tool.parameters)]))
    return tokens


def _tokens_of(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_A_TOKEN)


def cap_output(request: Request, profile: WorkerProfile, hold: CallReservation) -> Request:
    """The request with its output cut down to what the hold, the worker's limit and its window
    allow."""
    limits = profile.limits
    if hold.max_tokens is None and limits.max_output_tokens is None:
        return request
    caps = (request.max_tokens, limits.max_output_tokens, hold.max_tokens)
    most = min(cap for cap in caps if cap is not None)
    if limits.context_window is not None:
        room = limits.context_window - estimate_input_tokens(request)
        most = min(most, max(room, LEAST_OUTPUT_TOKENS))
    return request if most == request.max_tokens else replace(request, max_tokens=most)
