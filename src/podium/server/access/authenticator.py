"""Authentication by API key, and the quota of each key.

What is known of a key is cached for a few seconds, so that a request costs microseconds here; a
revoked key works that much longer. With several processes on one store, budgets and rate limits of
a key are asked of the store.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from podium._util.rate_limit import RateLimiter, TokenBucket
from podium.core.budget import SharedBudget
from podium.core.errors import BudgetUnavailable, StoreError
from podium.core.pool import Pool
from podium.core.run import Run
from podium.server.access.keys import (
    KEY_ID_PREFIX,
    ParsedSession,
    Sessions,
    matches,
    parse_session,
    parse_token,
)
from podium.server.access.policy import AccessPolicy, Principal, RequestCost, scope_of
from podium.server.access.quotas import (
    ExhaustedCap,
    KeyBudget,
    Reservation,
    ReservationWriter,
    SharedRates,
)
from podium.server.access.usage import (
    CostEstimator,
    UsageWriter,
    highest_input_price,
    measure_usage,
    uncharged_amount,
)
from podium.server.api_error import RETRY_SECONDS, ApiError, budget_unavailable
from podium.store.base import LEASE_SECONDS
from podium.store.keys import Key, KeyUsage, Scope, cap_amount, charge_of, charged_amount

if TYPE_CHECKING:
    from podium.store.sql.quotas import ReservationStore
    from podium.store.sql.records import KeyStore

log = logging.getLogger("podium")

KEY_CACHE_SECONDS: Final = 5.0
"""The time that a key is cached after it was read."""

RENEWALS_PER_LEASE: Final = 4
"""So that some renewals may be late or fail."""

FAILURES_PER_MINUTE: Final = 100
"""Wrong keys that one address may send."""

UNKNOWN_KEYS_PER_MINUTE: Final = 600
"""Unknown keys that are looked up in the store, from all addresses together."""

MAX_ADDRESSES: Final = 10_000
"""Addresses remembered; the one quiet for longest is forgotten first."""

DAY_SECONDS: Final = 86_400


def out_of_budget(key_name: str, spent: ExhaustedCap | None) -> ApiError:
    """Build the 402 of a spent cap, or the 429 of one that requests in flight hold."""
    if spent is not None and not spent.is_reserved:
        message = f"{spent.name} of key {key_name!r} is spent: {spent.state}"
        return ApiError("out_of_budget", message)
    budget = f"a budget of key {key_name!r}"
    if spent is not None:
        budget = f"the {spent.name} of key {key_name!r} ({spent.state})"
    return ApiError(
        "rate_limited",
        f"requests in flight reserve the rest of {budget}; try again when they are done",
        retry_after=RETRY_SECONDS,
    )


def too_many_failures(wait: float) -> ApiError:
    message = f"too many invalid API keys; try again in {math.ceil(wait)} s"
    return ApiError("rate_limited", message, retry_after=wait)


def unauthenticated_error(message: str) -> ApiError:
    return ApiError("unauthenticated", message)


def unavailable(subject: str) -> ApiError:
    """Build the 503 of a store that cannot be reached."""
    message = f"{subject} cannot be looked up now; try again"
    return ApiError("overloaded", message, retry_after=RETRY_SECONDS)


class FailedAuthLimiter:
    """Limits the wrong keys per address."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """Return the seconds until the address may send a key again; 0 is now."""
        bucket = self._buckets.get(network_of(address))
        return 0.0 if bucket is None else bucket.wait(1, now)

    def add(self, address: str, now: float) -> None:
        network = network_of(address)
        bucket = self._buckets.pop(network, None) or TokenBucket(FAILURES_PER_MINUTE, now)
        bucket.wait(1, now)
        bucket.take(1)
        self._buckets[network] = bucket
        if len(self._buckets) > MAX_ADDRESSES:
            self._buckets.popitem(last=False)


def network_of(address: str) -> str:
    """Return the network that counts as one address: a /64 of IPv6, which one customer has."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


@dataclass(slots=True)
class CachedKey:
    """A key as this process knows it."""

    key: Key
    budget: KeyBudget
    rates: RateLimiter | SharedRates
    read_at: float = 0.0
    day: str = ""


class KeyAuthenticator(AccessPolicy):
    """Requires API keys, or sessions begun with one. It belongs to one event loop; close it.

    `pool` tells the provider of a worker, for keys that exclude one. Where the store is `shared`
    with other processes, caps and rates hold for all of them together; what a killed process had
    reserved is released after `lease_seconds`. All must use the same `sessions`.
    """

    def __init__(
        self,
        keys: KeyStore,
        pool: Pool,
        *,
        shared: bool = False,
        lease_seconds: float = LEASE_SECONDS,
        sessions: Sessions | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = keys
        self._sessions = sessions or Sessions(clock=clock)
        self._providers = {worker.name: worker.provider for worker in pool}
        self._clock = clock
        self._failures = FailedAuthLimiter()
        self._unknown_keys = TokenBucket(UNKNOWN_KEYS_PER_MINUTE, clock())
        self._estimator = CostEstimator(highest_input_price(pool))
        self._usage = UsageWriter(keys.quotas)
        self._reservations: ReservationStore | None = None
        if shared:
            self._reservations = keys.quotas.reservations(secrets.token_hex(8), lease_seconds)
        self._lease_seconds = lease_seconds
        self._renewing: asyncio.Task[None] | None = None
        self._cached_keys: dict[str, CachedKey] = {}
        self._reading = asyncio.Lock()
        self._day_number, self._day = -1, ""

    async def authenticate(self, token: str | None, address: str = "") -> Principal:
        if not token:
            raise unauthenticated_error("API key required; send it as Authorization: Bearer pk_…")
        session = parse_session(token)
        if session is None:
            key = await self._key_of_token(token, address)
        else:
            key = await self._key_of_session(session, address)
        rules = key.rules
        return Principal(
            key_id=key.id,
            name=key.name,
            scopes=rules.scopes,
            tiers=rules.tiers,
            workers=rules.workers,
            exclude=rules.exclude,
        )

    async def sign_in(self, token: str, address: str = "") -> str | None:
        return self._sessions.create(await self._key_of_token(token, address))

    async def reserve(
        self, principal: Principal, *, model: str, tokens: int, scope: Scope | None = None
    ) -> Principal:
        principal.require(scope or scope_of(model))
        principal.check_model(model, self._providers.get(model, ""))
        cached = self._cached_keys[principal.key_id]
        budget = cached.budget
        writer = budget.reservation_writer if budget.is_capped else None
        if writer is None and (spent := budget.exhausted_cap()):
            raise out_of_budget(principal.name, spent)
        estimate = cap_amount(self._estimator.estimate(model, tokens), cached.key.rules.per_request)
        await self._take_rate(cached, estimate.tokens)
        if writer is None:
            reservation = budget.reserve(estimate)
        else:
            granted = None
            try:
                granted = await writer.open(model, estimate)
            except BudgetUnavailable as error:
                raise budget_unavailable() from error
            finally:
                if granted is None:  # a refused request uses no tokens
                    cached.rates.correct(-estimate.tokens)
            if granted is None:
                raise out_of_budget(principal.name, budget.exhausted_cap())
            reservation = granted
        reservation.model, reservation.rate_tokens = model, estimate.tokens
        return replace(principal, quota=reservation)

    async def _take_rate(self, cached: CachedKey, tokens: int) -> None:
        """Take a request from the key's rate limits; raises `ApiError` rate_limited."""
        rates = cached.rates
        if isinstance(rates, RateLimiter):
            wait = rates.wait(tokens, self._clock())
            if not wait:
                rates.take(tokens)
        else:
            try:
                wait = await rates.take(tokens)
            except StoreError as error:
                raise unavailable("the rate limits of this key") from error
        if wait:
            raise ApiError(
                "rate_limited",
                f"rate limit of key {cached.key.name!r} reached; try again in {math.ceil(wait)} s",
                retry_after=wait,
            )

    async def settle(self, principal: Principal, *, model: str, cost: RequestCost) -> None:
        """Charge the request and release its reservation. Calls that the reservation has seen are
        charged even if no run includes them."""
        reservation, cached = principal.quota, self._cached_keys[principal.key_id]
        assert isinstance(reservation, Reservation), "reserve before you settle"
        key_id, day, seen = principal.key_id, self._today(), reservation.used
        used = measure_usage(key_id, day, model, cost, reservation.withheld_from_requests, seen)
        charged = charged_amount(used)
        if charged.tokens and not (used.unknown_usage_count or used.unknown_cost_count):
            self._estimator.learn(reservation.model, charged)
        if cost.run is None:
            self._usage.add(used)
        else:
            charge = charge_of(cost.run, day)
            missing = uncharged_amount(seen, charge.amount)
            line = KeyUsage(
                key_id=key_id,
                day=day,
                model=charge.usage.model,
                requests=1,
                unknown_usage_count=int(missing.tokens > 0),
                unknown_cost_count=int(missing.usd > 0),
                assumed_tokens=missing.tokens,
                assumed_usd=missing.usd,
            )
            self._usage.add(line, charge)
        cached.rates.correct(charged.tokens - reservation.rate_tokens)
        cached.budget.settle(reservation, charged)

    @asynccontextmanager
    async def shared_budget_for_run(self, run: Run) -> AsyncIterator[SharedBudget | None]:
        cached = await self._find_key(run.owner, None) if run.owner else None
        if cached is None:
            if run.owner.startswith(KEY_ID_PREFIX):
                raise unauthenticated_error("the API key of this run does not exist any more")
            yield None
            return
        self._check_valid(cached.key)
        budget = cached.budget
        if not budget.is_capped:
            yield None
            return
        charge = charge_of(run, self._today())
        charged = await self._keys.quotas.charged_for(run.id)
        reservation = budget.reserve_used(charge.amount - charged)
        reservation.id, reservation.run_id = secrets.token_hex(16), run.id
        reservation.model = charge.usage.model
        try:
            if budget.reservation_writer is not None:
                await budget.reservation_writer.request_more(reservation)
            yield reservation
        finally:
            budget.settle(reservation, reservation.used)

    def refresh(self, key_id: str) -> None:
        if key_id in self._cached_keys:
            self._cached_keys[key_id].day = ""

    async def flush(self) -> None:
        await self._usage.write()

    async def close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        for cached in self._cached_keys.values():
            for part in (cached.budget.reservation_writer, cached.rates):
                if isinstance(part, ReservationWriter | SharedRates):
                    await part.close()
        await self._usage.close()

    async def _key_of_token(self, token: str, address: str) -> Key:
        parsed = parse_token(token)
        cached = None if parsed is None else await self._find_key(parsed.key_id, address)
        if parsed is None or cached is None or not matches(parsed, cached.key):
            message = "invalid API key; send one that `podium keys create` has made: pk_…"
            raise self._count_failure(message, address)
        return self._check_valid(cached.key)

    async def _key_of_session(self, session: ParsedSession, address: str) -> Key:
        cached = await self._find_key(session.key_id, address)
        if cached is None or not self._sessions.is_valid(session, cached.key):
            raise self._count_failure("session expired; sign in again with your key", address)
        return self._check_valid(cached.key)

    def _count_failure(self, message: str, address: str) -> ApiError:
        now = self._clock()
        wait = self._failures.wait(address, now)
        if wait:
            return too_many_failures(wait)
        self._failures.add(address, now)
        return unauthenticated_error(message)

    def _check_valid(self, key: Key) -> Key:
        if key.revoked_at is not None:
            raise unauthenticated_error(f"API key {key.name!r} was revoked; use another")
        expires = key.expires_at
        if expires and self._clock() >= datetime.fromisoformat(expires).timestamp():
            raise unauthenticated_error(f"API key {key.name!r} has expired; use another")
        return key

    async def _find_key(self, key_id: str, address: str | None) -> CachedKey | None:
        """Find a key, read again if it is old or of another day; None if there is no such
        key. An address limits lookups of unknown keys."""
        cached = self._cached_keys.get(key_id)
        if cached is not None and self._is_fresh(cached):
            return cached
        async with self._reading:
            cached = self._cached_keys.get(key_id)
            if cached is not None and self._is_fresh(cached):
                return cached
            if cached is None and address is not None:
                self._limit_unknown_keys(address)
            try:
                return await self._read(key_id, cached)
            except StoreError as error:
                log.warning("cannot look up API keys: %s", error)
                raise unavailable("API keys") from error

    def _is_fresh(self, cached: CachedKey) -> bool:
        age = self._clock() - cached.read_at
        return 0 <= age < KEY_CACHE_SECONDS and cached.day == self._today()

    def _limit_unknown_keys(self, address: str) -> None:
        now = self._clock()
        wait = self._failures.wait(address, now) or self._unknown_keys.wait(1, now)
        if wait:
            raise too_many_failures(wait)
        self._unknown_keys.take(1)

    async def _read(self, key_id: str, cached: CachedKey | None) -> CachedKey | None:
        """Read a key; changed rules hold from now on."""
        key = await self._keys.key(key_id)
        if key is None:
            return None
        if cached is None:
            cached = CachedKey(key, KeyBudget(key.rules), self._new_rates(key))
            self._cached_keys[key_id] = cached
        elif _rates_of(cached.key) != _rates_of(key):
            if isinstance(cached.rates, SharedRates):
                await cached.rates.close()
            cached.rates = self._new_rates(key)
        budget, day = cached.budget, self._today()
        budget.set_rules(key.rules, key.name)
        if budget.is_capped and self._reservations is not None:
            if budget.reservation_writer is None:
                writer = self._new_reservation_writer(key_id, budget, self._reservations)
                budget.reservation_writer = writer
        elif budget.is_capped:
            budget.set_charges(await self._usage.charges(key_id, day))
        cached.key, cached.read_at, cached.day = key, self._clock(), day
        return cached

    def _new_rates(self, key: Key) -> RateLimiter | SharedRates:
        limits = _rates_of(key)
        if self._reservations is not None and limits != (None, None):
            return SharedRates(self._keys.quotas, key.id, key.rules)
        return RateLimiter(*limits, self._clock())

    def _new_reservation_writer(
        self, key_id: str, budget: KeyBudget, reservations: ReservationStore
    ) -> ReservationWriter:
        if self._renewing is None:
            self._renewing = asyncio.create_task(self._renew_leases(reservations))
        settle_row = self._usage.settle_reservation
        return ReservationWriter(
            reservations, key_id, budget, today=self._today, settle_row=settle_row
        )

    async def _renew_leases(self, reservations: ReservationStore) -> None:
        """Renew the lease of this process, and settle reservations of dead ones."""
        while True:
            await asyncio.sleep(self._lease_seconds / RENEWALS_PER_LEASE)
            try:
                await reservations.renew_lease()
                await reservations.settle_expired()
            except StoreError as error:
                log.warning("cannot renew the reservations of requests: %s", error)

    def _today(self) -> str:
        number = int(self._clock() // DAY_SECONDS)
        if number != self._day_number:
            midnight = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)
            self._day_number, self._day = number, f"{midnight:%Y-%m-%d}"
        return self._day


def _rates_of(key: Key) -> tuple[int | None, int | None]:
    return key.rules.requests_per_minute, key.rules.tokens_per_minute
