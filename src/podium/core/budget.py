"""The budget of a run, and the ledger that enforces it.

A run and its nested runs share one ledger. Before each call the engine reserves one call and the
most tokens and money it may use; at its end the reservation is settled to what the provider
reported. So caps on calls and output are exact under any concurrency; input is estimated (three
bytes a token), and tokens or money can exceed their cap by that error. Unreported usage is charged
at its estimate. A reservation is at most a fair share of what is left, so that later steps can run.
Runs may also draw on a shared budget, such as an API key's: each call is reserved there too.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from podium.core.errors import BudgetExhausted, ConfigError
from podium.core.pool import CONDUCTOR_PROVIDER, WorkerProfile
from podium.core.request import NO_USAGE, Image, Price, Request, ToolCall, ToolResult, Usage

if TYPE_CHECKING:
    from podium.core.run import Run

DEFAULT_OUTPUT_TOKENS: Final = 8192
"""Output of a capped call where neither request nor worker sets a limit."""

MIN_OUTPUT_TOKENS: Final = 16
"""A call that could afford less output than this is not worth making."""

SHORT_ANSWER_TOKENS: Final = 256
"""An answer is not capped below this by a guess of its prompt's size."""

BYTES_PER_TOKEN: Final = 3
USUAL_BYTES_PER_TOKEN: Final = 4
TOKENS_PER_IMAGE: Final = 1600
BYTES_PER_PDF_PAGE: Final = 50_000
"""In base64; pages of text alone have fewer, scanned ones more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The caps of a run; None is no cap.

    Args:
        calls: The most calls to workers, retries and nested runs included.
        tokens: The most tokens, input and output together.
        usd: The most US dollars; every worker then needs a price.
        seconds: The most seconds.
        depth: How deep runs may nest (0: not at all).
        allow_unpriced: Let workers without a price run under a cap on money.

    Raises:
        ConfigError: A cap is not a number from 0 up.

    """

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
        """Raise `ConfigError` for a cap on money where a worker's price is unknown."""
        if self.usd is None or self.allow_unpriced:
            return
        unpriced = [
            worker.name
            for worker in workers
            if worker.price is None and worker.provider != CONDUCTOR_PROVIDER
        ]
        if unpriced:
            raise _unpriced_error(unpriced)

    def narrow(self, caps: Mapping[str, float | None]) -> Budget:
        """Return this budget with the lower of its own and the given caps."""
        lower: dict[str, float] = {}
        for name, cap in caps.items():
            own = getattr(self, name)
            if cap is not None and (own is None or cap < own):
                lower[name] = cap
        return replace(self, **lower) if lower else self  # type: ignore[arg-type]


DEFAULT_BUDGET: Final = Budget()


@dataclass(frozen=True, slots=True)
class Spent:
    """The usage of a run, as its budget counts it."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0


NOTHING_SPENT: Final = Spent()


def recorded_spending(run: Run) -> Spent:
    """Return what a run had used when it was cut off.

    Its process may have died before `spent` was written, so recorded calls are counted too.
    """
    calls = [call for call in run.calls if call.was_sent]
    return Spent(
        calls=max(run.spent.calls, len(calls)),
        tokens=max(run.spent.tokens, sum(call.usage.total_tokens or 0 for call in calls)),
        usd=max(run.spent.usd, sum(call.cost_usd or 0.0 for call in calls)),
        seconds=max(run.spent.seconds, *(call.finished_ms / 1000 for call in calls), 0.0),
    )


@dataclass(frozen=True, slots=True)
class CallReservation:
    """A reservation for one call. `max_tokens` caps its output, if set."""

    tokens: int = 0
    usd: float = 0.0
    max_tokens: int | None = None


_UNCAPPED: Final = CallReservation()


class Remaining(NamedTuple):
    """The rest of caps after the reservations in flight. None is no cap."""

    tokens: int | None
    usd: float | None


class SharedBudget(Protocol):
    """A budget that a run shares with other runs."""

    @property
    def left(self) -> Remaining:
        """Return what this run may still reserve."""

    @property
    def has_calls_in_flight(self) -> bool:
        """True if calls in flight, of any run, may free part of their reservation."""

    def exhausted_error(self, cap: str, run_limit: float | None = None) -> BudgetExhausted | None:
        """Return the error that names the budget whose `tokens` or `usd` are spent.

        `run_limit` is the run's own cap, if that is spent. Return None if it is tighter than what
        the shared budget has left: the error then names the run's own cap.
        """

    def reserve(self, reservation: CallReservation) -> None:
        """Reserve for a call that begins."""

    def settle(self, reservation: CallReservation, tokens: int, usd: float) -> None:
        """Settle the reservation of a call that ended."""

    async def wait_for_change(self) -> None:
        """Wait until more may be left, or nothing can be freed any more."""

    @property
    def is_shared(self) -> bool:
        """True if other processes draw on it too, so that reservations must be confirmed."""

    async def confirm(self) -> bool:
        """Confirm all reservations of this run; False if others were faster.

        Raises `StoreError` where the shared budget cannot be read.
        """


class Ledger:
    """Enforces one budget, and a shared one, for a tree of runs. It lives on one event loop."""

    def __init__(
        self,
        budget: Budget,
        spent: Spent = NOTHING_SPENT,
        clock: Callable[[], float] = time.monotonic,
        shared_budget: SharedBudget | None = None,
    ) -> None:
        self.budget = budget
        self._shared = shared_budget
        self.is_shared = shared_budget is not None and shared_budget.is_shared
        self._clock = clock
        self._started = clock() - spent.seconds
        self._calls = spent.calls
        self._tokens = spent.tokens
        self._usd = spent.usd
        self._reserved_tokens = 0
        self._reserved_usd = 0.0
        self._reservations = 0
        self._waiting: list[asyncio.Future[None]] = []

    def reserve(
        self, profile: WorkerProfile, request: Request, budget_divisor: int = 1
    ) -> CallReservation | None:
        """Reserve one call, with output capped at one part in `budget_divisor` of what is left.

        None if calls in flight must be settled first: await `wait_for_change` and try again. Raises
        `BudgetExhausted`.
        """
        budget = self.budget
        if budget.calls is not None and self._calls >= budget.calls:
            raise BudgetExhausted("calls", budget.calls)
        if budget.seconds is not None and self.seconds_left == 0:
            raise BudgetExhausted("seconds", budget.seconds)
        shared = self._shared
        if budget.tokens is None and budget.usd is None and shared is None:
            self._calls += 1
            return _UNCAPPED
        reservation = self._affordable(profile, request, budget_divisor)
        if reservation is None:
            return None
        self._calls += 1
        self._reservations += 1
        self._reserved_tokens += reservation.tokens
        self._reserved_usd += reservation.usd
        if shared is not None:
            shared.reserve(reservation)
        return reservation

    def has_room(self, profile: WorkerProfile, request: Request, times: int) -> bool:
        """True if so many calls like this, with all the output they may want, fit what is left."""
        budget, shared, price = self.budget, self._shared, profile.price
        if budget.calls is not None and budget.calls - self._calls < times:
            return False
        if budget.tokens is None and budget.usd is None and shared is None:
            return True
        inputs = estimate_input_tokens(request)
        outputs = request.max_tokens or profile.limits.max_output_tokens or DEFAULT_OUTPUT_TOKENS
        for left in (self._left, self._left if shared is None else shared.left):
            if left.tokens is not None and left.tokens < times * (inputs + outputs):
                return False
            if left.usd is not None:
                if price is None:
                    return False
                usd = inputs * price.highest_input + outputs * price.highest_output
                if left.usd < times * usd / 1_000_000:
                    return False
        return True

    async def wait_for_reservation(
        self,
        reservation: CallReservation | None,
        profile: WorkerProfile,
        request: Request,
        budget_divisor: int = 1,
    ) -> CallReservation:
        """Return the reservation once it is confirmed, reserving again as long as it takes."""
        while True:
            if reservation is None:
                await self.wait_for_change()
            elif await self.confirm(reservation):
                return reservation
            reservation = self.reserve(profile, request, budget_divisor)

    async def confirm(self, reservation: CallReservation) -> bool:
        """True if the shared budget confirms the reservation; otherwise it is released."""
        if self._shared is None:
            return True
        confirmed = False
        try:
            confirmed = await self._shared.confirm()
        finally:
            if not confirmed:
                self.release(reservation)
        return confirmed

    def count_tool_call(self) -> None:
        """Count a call of a tool: it counts as a call and costs nothing."""
        if self.budget.calls is not None and self._calls >= self.budget.calls:
            raise BudgetExhausted("calls", self.budget.calls)
        self._calls += 1

    def release(self, reservation: CallReservation) -> None:
        """Release the reservation of a call that was not made."""
        self._calls -= 1
        self.settle(reservation, NO_USAGE, 0.0)

    def settle(self, reservation: CallReservation, usage: Usage, cost: float | None) -> None:
        """Replace a reservation by what the call used."""
        read, written = usage.input_tokens, usage.output_tokens
        total = None if read is None or written is None else read + written
        if reservation is _UNCAPPED:
            self._tokens += total or 0
            self._usd += cost or 0.0
            return
        self._reservations -= 1
        self._reserved_tokens -= reservation.tokens
        self._reserved_usd -= reservation.usd
        tokens = reservation.tokens if total is None else total
        usd = reservation.usd if cost is None else cost
        self._tokens += tokens
        self._usd += usd
        if self._shared is not None:
            self._shared.settle(reservation, tokens, usd)
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait_for_change(self) -> None:
        """Wait until a reservation was settled."""
        if self._shared is not None:
            await self._shared.wait_for_change()  # it sees every reservation of this ledger too
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline, or None without one."""
        if self.budget.seconds is None:
            return None
        return max(0.0, self.budget.seconds - (self._clock() - self._started))

    @property
    def spent(self) -> Spent:
        """Return the usage, without the reservations in flight."""
        return Spent(self._calls, self._tokens, self._usd, self._clock() - self._started)

    def _affordable(
        self, profile: WorkerProfile, request: Request, budget_divisor: int
    ) -> CallReservation | None:
        """Return the largest reservation that fits; None if calls in flight may free enough."""
        budget, shared = self.budget, self._shared
        price = profile.price
        if budget.usd is not None and price is None and not budget.allow_unpriced:
            raise _unpriced_error([profile.name])
        inputs = estimate_input_tokens(request)
        wanted = request.max_tokens or profile.limits.max_output_tokens or DEFAULT_OUTPUT_TOKENS
        least = min(wanted, MIN_OUTPUT_TOKENS) * request.output_count
        wanted *= request.output_count
        outputs, missing = _affordable_output(
            self._left, price, inputs, wanted, least, budget_divisor
        )
        if missing:
            if self._reservations:
                return None
            limit = getattr(budget, missing)
            error = shared.exhausted_error(missing, limit) if shared is not None else None
            raise error or BudgetExhausted(missing, limit)
        if shared is not None:
            outputs, missing = _affordable_output(
                shared.left, price, inputs, outputs, min(least, outputs), budget_divisor
            )
            if missing:
                if shared.has_calls_in_flight:
                    return None
                raise shared.exhausted_error(missing) or BudgetExhausted(missing, 0)
        usd = self._usd_at_most(price, inputs, outputs)
        return CallReservation(inputs + outputs, usd, outputs // request.output_count)

    @property
    def _left(self) -> Remaining:
        tokens, usd = self.budget.tokens, self.budget.usd
        return Remaining(
            None if tokens is None else tokens - self._tokens - self._reserved_tokens,
            None if usd is None else usd - self._usd - self._reserved_usd,
        )

    def _usd_at_most(self, price: Price | None, inputs: int, outputs: int) -> float:
        """Return the most a call may cost, where money is capped."""
        if price is None or (self.budget.usd is None and self._shared is None):
            return 0.0
        return (inputs * price.highest_input + outputs * price.highest_output) / 1_000_000


def _affordable_output(
    left: Remaining, price: Price | None, inputs: int, wanted: int, least: int, budget_divisor: int
) -> tuple[int, str]:
    """Return how much output is affordable, and the cap that leaves too little, if any."""
    outputs = wanted
    if left.tokens is not None:
        tokens = left.tokens - inputs
        if tokens < least:
            return 0, "tokens"
        outputs = min(outputs, max(tokens // budget_divisor, least))
    if left.usd is not None and price is not None:
        usd = left.usd - inputs * price.highest_input / 1_000_000
        if usd < least * price.highest_output / 1_000_000:
            return 0, "usd"
        if price.highest_output:
            affordable = int(usd * 1_000_000 / price.highest_output)
            outputs = min(outputs, max(affordable // budget_divisor, least))
    return outputs, ""


def _unpriced_error(names: list[str]) -> ConfigError:
    return ConfigError(
        f"the budget caps money, but no price is known for {', '.join(dict.fromkeys(names))}; "
        f"set a price, drop the worker, or set budget.allow_unpriced = true"
    )


def estimate_input_tokens(request: Request) -> int:
    """Estimate the request's tokens, on the high side: text, images, tools and extra fields."""
    tokens = 1
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Image):
                tokens += _tokens_of_image(part)
            else:
                tokens += _tokens_of(part.arguments if isinstance(part, ToolCall) else part.text)
            if isinstance(part, ToolResult):
                tokens += sum(map(_tokens_of_image, part.images))
    for tool in request.tools:
        tokens += _tokens_of(json.dumps([tool.name, tool.description, dict(tool.parameters)]))
    if request.extra:
        tokens += _tokens_of(json.dumps(dict(request.extra)))
    return tokens


def _tokens_of_image(image: Image) -> int:
    pages = len(image.data) // BYTES_PER_PDF_PAGE if image.is_pdf else 0
    return TOKENS_PER_IMAGE * (pages or 1)


def _tokens_of(text: str) -> int:
    return -(-len(text.encode("utf-8", "surrogatepass")) // BYTES_PER_TOKEN)


def cap_output(request: Request, profile: WorkerProfile, reservation: CallReservation) -> Request:
    """Cap the request's output by the reservation, the worker's limit and its window.

    One of the first two must be set.
    """
    limits = profile.limits
    caps = (request.max_tokens, limits.max_output_tokens, reservation.max_tokens)
    most = min(cap for cap in caps if cap is not None)
    if limits.context_window is not None:
        estimate = estimate_input_tokens(request)
        room = limits.context_window - estimate
        if room < min(most, SHORT_ANSWER_TOKENS):
            # The estimate is on the high side; believe the usual length of a token before an
            # answer is cut short. If there is no room even so, the provider says that.
            room = limits.context_window - estimate * BYTES_PER_TOKEN // USUAL_BYTES_PER_TOKEN
        if room >= MIN_OUTPUT_TOKENS:
            most = min(most, room)
    return request if most == request.max_tokens else replace(request, max_tokens=most)
