"""Several deployments of one model as one worker.

    worker = BalancedWorker(profile, [Deployment("eu", eu), Deployment("us", us, weight=2)])

Each call goes to one deployment, by `balance`:

    least-latency   the one that answers soonest: the moving average of its time to the first byte,
                    times its calls in flight (peak EWMA); an old average counts for less
    weighted        in turn, in proportion to the weights

A deployment that is rate limited, unavailable or too slow cools down: for its `Retry-After`, else
for a second, doubled with each failure in a row. If the failed call was certainly free and has sent
nothing yet, the next deployment is called at once. Otherwise the engine counts the possible charge
and retries, without waiting if another deployment is ready. While all cool down, none is called.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from typing import Final, Literal

from podium.core.errors import BadReply, RateLimited, TimedOut, Unavailable, WorkerError
from podium.core.pool import WorkerProfile
from podium.core.request import Delta, Reply, Request
from podium.core.worker import Worker
from podium.workers.hosted import PassThrough, Wire

Balance = Literal["least-latency", "weighted"]

SMOOTHING: Final = 0.3
"""The share of the latest call in the moving average."""

HALF_LIFE_SECONDS: Final = 60.0
"""After so long without a call an average counts half, so that a slow one is tried again."""

MIN_COOLDOWN: Final = 0.1
FIRST_COOLDOWN: Final = 1.0
LONGEST_COOLDOWN: Final = 60.0

_log: Final = logging.getLogger("podium.workers")


def _decay(seconds: float) -> float:
    return float(0.5 ** (seconds / HALF_LIFE_SECONDS))


@dataclass(slots=True, eq=False)
class Deployment:
    """One deployment, and what is known of it; times to the first byte apart for streams."""

    name: str
    worker: Worker
    weight: float = 1.0
    in_flight: int = 0
    failures: int = 0
    ready_at: float = 0.0
    round_robin_credit: float = 0.0
    error: WorkerError | None = None
    latency: dict[bool, tuple[float, float]] = field(default_factory=dict)

    def score(self, now: float, *, stream: bool) -> float:
        """Return the expected seconds to the first byte; 0 if it was never called."""
        average, measured = self.latency.get(stream, (0.0, now))
        return average * _decay(now - measured) * (self.in_flight + 1)

    def measure(self, seconds: float, now: float, *, stream: bool) -> None:
        average, measured = self.latency.get(stream, (seconds, now))
        share = max(SMOOTHING, 1 - _decay(now - measured))
        self.latency[stream] = (average + share * (seconds - average), now)

    def cool_down(self, error: WorkerError, now: float) -> None:
        """Leave it alone for as long as the error asks, or for longer after each failure.

        Calls that fail while it cools down began before, and count as the same failure.
        """
        if self.ready_at <= now:
            self.failures += 1
        wait = min(LONGEST_COOLDOWN, FIRST_COOLDOWN * 2.0 ** (self.failures - 1))
        if error.retry_after is not None:
            wait = max(MIN_COOLDOWN, error.retry_after)
        self.ready_at = max(self.ready_at, now + wait)
        self.error = error


def _identity(worker: Worker) -> Worker:
    return worker


class BalancedWorker:
    """A worker that calls one of its deployments."""

    def __init__(
        self,
        profile: WorkerProfile,
        deployments: Sequence[Deployment],
        balance: Balance = "least-latency",
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.profile = profile
        self.deployments = tuple(deployments)
        self._balance = balance
        self._clock = clock

    @property
    def wire(self) -> Wire | None:
        """The format that all deployments pass extra fields on in."""
        wires = {getattr(one.worker, "wire", None) for one in self.deployments}
        return wires.pop() if len(wires) == 1 else None

    def takes_extra(self, name: str) -> bool:
        return all(
            isinstance(one.worker, PassThrough) and one.worker.takes_extra(name)
            for one in self.deployments
        )

    @property
    def supports_forwarding(self) -> bool:
        """True if all deployments may have OpenAI's other paths, such as `/embeddings`."""
        return all(getattr(one.worker, "supports_forwarding", False) for one in self.deployments)

    async def reply(
        self, request: Request, wrap_worker: Callable[[Worker], Worker] = _identity
    ) -> Reply:
        """Return the reply of the first deployment that does not fail."""
        for deployment in self._attempts(stream=False):
            with self._record_call(deployment, stream=False) as call:
                reply = await wrap_worker(deployment.worker).reply(request)
                call.mark_answered()
                return reply
        raise self._cooling_error()

    async def stream(
        self, request: Request, wrap_worker: Callable[[Worker], Worker] = _identity
    ) -> AsyncGenerator[Delta | Reply]:
        """Stream from the first deployment that does not fail before it begins."""
        for deployment in self._attempts(stream=True):
            with self._record_call(deployment, stream=True) as call:
                async with aclosing(wrap_worker(deployment.worker).stream(request)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Reply) or piece.kind != "start":
                            call.mark_answered()
                        yield piece
                return
        raise self._cooling_error()

    async def close(self) -> None:
        for deployment in self.deployments:
            close = getattr(deployment.worker, "close", None)
            if close is not None:
                await close()

    def _attempts(self, *, stream: bool) -> Iterator[Deployment]:
        """Yield deployments that are ready, each once, the best first."""
        tried: list[Deployment] = []
        while ready := [one for one in self._ready() if one not in tried]:
            tried.append(self._choose(ready, stream=stream))
            yield tried[-1]

    def _ready(self) -> list[Deployment]:
        now = self._clock()
        return [deployment for deployment in self.deployments if deployment.ready_at <= now]

    def _seconds_until_ready(self) -> float:
        return max(0.0, min(one.ready_at for one in self.deployments) - self._clock())

    def _choose(self, ready: Sequence[Deployment], *, stream: bool) -> Deployment:
        if self._balance == "least-latency":
            now = self._clock()
            return min(ready, key=lambda one: (one.score(now, stream=stream), one.in_flight))
        for deployment in ready:  # smooth weighted round-robin
            deployment.round_robin_credit += deployment.weight
        chosen = max(ready, key=lambda one: one.round_robin_credit)
        chosen.round_robin_credit -= sum(one.weight for one in ready)
        return chosen

    @contextmanager
    def _record_call(self, deployment: Deployment, *, stream: bool) -> Iterator[_Call]:
        """Record a call; swallow the error if the next deployment may be called at once."""
        call = _Call(deployment, self._clock, stream=stream)
        deployment.in_flight += 1
        try:
            yield call
        except (RateLimited, Unavailable, TimedOut, BadReply) as error:
            deployment.cool_down(error, self._clock())
            _log.warning("deployment cools down: %s", error)
            wait = self._seconds_until_ready()
            if wait > 0 or error.billed or call.has_answered:
                error.retry_after = wait
                raise
        except asyncio.CancelledError:
            self._note_cancellation(call)
            raise
        finally:
            deployment.in_flight -= 1

    def _note_cancellation(self, call: _Call) -> None:
        """Remember a deployment that had not answered; at the worker's time limit, it failed."""
        waited = self._clock() - call.began
        limit = self.profile.limits.timeout_seconds
        if waited >= 0.99 * limit:
            error = TimedOut(f"deployment {call.deployment.name!r} took more than {limit:g} s")
            call.deployment.cool_down(error, self._clock())
        elif not call.has_answered:
            average = call.deployment.latency.get(call.stream, (0.0, 0.0))[0]
            if waited > average:
                call.deployment.measure(waited, self._clock(), stream=call.stream)

    def _cooling_error(self) -> WorkerError:
        """Return the error of the deployment that is ready first, and when that is."""
        first = min(self.deployments, key=lambda deployment: deployment.ready_at)
        wait = self._seconds_until_ready()
        kind = type(first.error) if isinstance(first.error, RateLimited) else Unavailable
        return kind(
            f"all {len(self.deployments)} deployments of worker {self.profile.name!r} cool down; "
            f"the next call is possible in {wait:.1f} s: {first.error}",
            retry_after=wait,
        )


class _Call:
    """One call; its first answer ends the measured time."""

    def __init__(self, deployment: Deployment, clock: Callable[[], float], *, stream: bool) -> None:
        self.deployment = deployment
        self.stream = stream
        self.began = clock()
        self.has_answered = False
        self._clock = clock

    def mark_answered(self) -> None:
        if not self.has_answered:
            self.has_answered = True
            self.deployment.failures = 0
            now = self._clock()
            self.deployment.measure(now - self.began, now, stream=self.stream)
