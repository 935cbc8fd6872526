"""The gatekeeper: lets visitors in by their keys, and holds each key to its limits.

What is known of a key, and of what was spent with it, is in `accounts`, so that a request costs
microseconds here. Where other processes serve the same keys from the same store, what a key with a
cap has left is asked of the store (`till`), and so is whether one with a rate may go on.
"""

from __future__ import annotations

import ipaddress
import logging
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from podium.core.budget import Account, Budget
from podium.core.errors import BudgetUnavailable, StoreError
from podium.core.pool import Pool
from podium.core.run import Run
from podium.core.usage import Usage
from podium.server.access.accounts import Accounts, KeyAccount, SharedRates
from podium.server.access.policy import Principal, RequestQuota, scope_of
from podium.server.access.quotas import CostEstimator, Exhausted, Reservation, SharedBudget, dearest
from podium.server.access.sessions import ParsedSession, Sessions, parse_session
from podium.server.access.tokens import ID_PREFIX, matches, parse_token
from podium.server.access.usage import UsageWriter, missing, used_of
from podium.server.api_error import RETRY_SECONDS, ApiError, budget_unavailable
from podium.store.base import LEASE_SECONDS
from podium.store.keys import ZERO, Allowance, Amount, Key, KeyStore, Scope
from podium.store.quotas import Bucket, Rates, RunCharge, charge_of


def out_of_budget(principal: Principal, exhausted: Exhausted | None) -> ApiError:
    """The refusal that says which cap it is; none, where something came back meanwhile."""
    if exhausted is None:
        whole = f"a cap of the key {principal.name!r}"
    else:
        shown = f"${exhausted.cap:g}" if exhausted.what == "usd" else f"{exhausted.cap:,} tokens"
        when = {"day": "today", "month": "this month", "total": "it has in all"}[exhausted.period]
        whole = f"the {shown} that the key {principal.name!r} may spend {when}"
    if exhausted is None or exhausted.held:
        return ApiError(
            "rate_limited",
            f"requests in flight hold what is left of {whole}; try again when they are done",
            retry_after=RETRY_SECONDS,
        )
    return ApiError("out_of_budget", f"{whole} is spent; {_ADVICE[exhausted.period]}")


_ADVICE: Final = {
    "day": "it begins anew at midnight UTC",
    "month": "it begins anew on the first, UTC",
    "total": "ask for another key",
}


def too_many(wait: float) -> ApiError:
    """Too many wrong keys were shown."""
    return ApiError(
        "rate_limited",
        f"too many keys that this server does not know were tried; try again in "
        f"{math.ceil(wait)} s",
        retry_after=wait,
    )


def unauthenticated(message: str) -> ApiError:
    """Whoever asks has no key that is good."""
    return ApiError("unauthenticated", message)


def too_fast(principal: Principal, wait: float) -> ApiError:
    """The key is used faster than its rules allow."""
    return ApiError(
        "rate_limited",
        f"rate limit of key {principal.name!r} reached; try again in {math.ceil(wait)} s",
        retry_after=wait,
    )


def unseen(what: str) -> ApiError:
    """The store cannot be asked."""
    message = f"{what} cannot be looked up now; try again"
    return ApiError("overloaded", message, retry_after=RETRY_SECONDS)


WRONG_A_MINUTE: Final = 100
"""Wrong keys that one address may show."""

MOST_ADDRESSES: Final = 10_000
"""Addresses that are remembered; the one that was quiet for longest is forgotten first."""


class FailedAuthLimiter:
    """Counts the wrong keys of each address."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """How many seconds must pass until that address may show a key again; 0 is now."""
        bucket = self._buckets.get(network_of(address))
        return 0.0 if bucket is None else bucket.wait(1, now)

    def add(self, address: str, now: float) -> None:
        """A wrong key was shown."""
        network = network_of(address)
        bucket = self._buckets.pop(network, None) or Bucket(WRONG_A_MINUTE, now)
        bucket.wait(1, now)
        bucket.take(1)
        self._buckets[network] = bucket
        if len(self._buckets) > MOST_ADDRESSES:
            self._buckets.popitem(last=False)


def network_of(address: str) -> str:
    """What counts as one address: of version 6, which hands them out by the billion, the network
    that one customer has."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.IPv6Network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


log = logging.getLogger("podium")

STRANGERS_A_MINUTE: Final = 600
"""How many keys that were never seen are looked up, wherever they are shown, so that guessing keeps
no store busy."""


class KeyQuota(RequestQuota):
    """The quota of one request with a key."""

    __slots__ = ("estimate", "is_settled", "key_account", "model", "reservation")

    def __init__(
        self, key_account: KeyAccount, model: str, estimate: Amount, reservation: Reservation
    ) -> None:
        self.key_account = key_account
        self.model = model
        self.estimate = estimate
        self.reservation = reservation
        self.is_settled = False

    @property
    def account(self) -> Account | None:
        """The request's reservation, if the key has a cap."""
        return self.reservation if self.key_account.purse.is_capped else None

    def narrow(self, budget: Budget) -> Budget:
        """Lower the budget to the key's cap per request and to what other requests leave."""
        own = ZERO if self.is_settled else self.reservation.claim
        left = self.key_account.purse.left(own)
        return budget.narrowed(_caps(self.key_account.key.rules.per_request)).narrowed(_caps(left))

    def attach_run(self, run: Run) -> None:
        """Have other processes charge the reservation as this run."""
        till = self.key_account.till
        if till is not None:
            self.reservation.run_id = run.id
            till.changed(self.reservation)


class KeyAuthenticator:
    """Asks for keys, or for sessions that were begun with one. It belongs to one event loop; close
    it to have everything written.

    `pool` tells whose provider a worker is, for keys that exclude one. Where the store is `shared`
    with other processes, caps and rates hold for all of them together: what one that was killed had
    held for its calls comes back after `lease_seconds`. They must know the same `sessions`.
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
        self._guesses = FailedAuthLimiter()
        self._strangers = Bucket(STRANGERS_A_MINUTE, clock())
        self._experience = CostEstimator(dearest(pool))
        self._book = UsageWriter(keys)
        self._tabs = keys.reservations(secrets.token_hex(8), lease_seconds) if shared else None
        self._accounts = Accounts(keys, self._book, self._tabs, lease_seconds, clock)

    async def authenticate(self, token: str | None, address: str = "") -> Principal:
        """Who that is, at that address; raises `ApiError` unauthenticated, and rate_limited after
        too many wrong keys."""
        if not token:
            raise unauthenticated("no key was given; send one as Authorization: Bearer pk_…")
        claim = parse_session(token)
        if claim is None:
            key = await self._shown_by(token, address)
        else:
            key = await self._signed_in(claim, address)
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
        """A session for whoever has that key. One session cannot be had for another, or it would
        never end."""
        return self._sessions.begin(await self._shown_by(token, address))

    async def reserve(
        self, principal: Principal, *, model: str, tokens: int, scope: Scope | None = None
    ) -> Principal:
        """A request of about so many tokens begins; raises `ApiError` forbidden, out_of_budget or
        rate_limited. Every request that has begun must be settled, however it ends."""
        principal.require(scope or scope_of(model))
        principal.check_model(model, self._providers.get(model, ""))
        account = self._accounts[principal.key_id]
        exhausted = account.purse.exhausted() if account.till is None else None
        if exhausted is not None:
            raise out_of_budget(principal, exhausted)
        estimate = self._estimated(account.key.rules.per_request, model, tokens)
        wait = await self._wait(account.rates, estimate.tokens)
        if wait:
            raise too_fast(principal, wait)
        if account.till is None:
            tab = account.purse.open_tab(estimate)
        else:
            tab = await self._shared_tab(principal, account, account.till, model, estimate)
        return replace(principal, quota=KeyQuota(account, model, estimate, tab))

    async def _wait(self, rates: Rates | SharedRates, tokens: int) -> float:
        """The seconds until a request of so many tokens may begin; 0 where it has."""
        if isinstance(rates, Rates):
            wait = rates.wait(tokens, self._clock())
            if not wait:
                rates.begin(tokens)
            return wait
        try:
            return await rates.take(tokens)
        except StoreError as error:
            raise unseen("how fast this key is used") from error

    async def _shared_tab(
        self,
        principal: Principal,
        account: KeyAccount,
        till: SharedBudget,
        model: str,
        estimate: Amount,
    ) -> Reservation:
        """A tab that every process knows of."""
        tab_id = secrets.token_hex(16)
        try:
            claim = await till.open(tab_id, model, estimate)
        except BudgetUnavailable as error:
            raise budget_unavailable() from error
        if claim is None:
            raise out_of_budget(principal, account.purse.exhausted())
        tab = account.purse.open_tab(claim)
        tab.id, tab.model = tab_id, model
        return tab

    async def settle(
        self,
        principal: Principal,
        *,
        model: str,
        usage: Usage,
        orchestration: Usage,
        cost_usd: float | None,
        run: Run | None = None,
    ) -> None:
        """The request is over, and this is what it used. What is unknown is charged as it was
        claimed; of a run, as its budget counted it. Calls that its tab has seen are charged even
        if nobody tells of them: who asked may be gone before there is a run that has them."""
        quota = principal.quota
        assert isinstance(quota, KeyQuota), "settled without a reservation"
        account, tab, quota.is_settled = quota.key_account, quota.reservation, True
        seen = tab.used
        used = used_of(usage, orchestration, cost_usd, tab.claim, seen)
        charged = used.charged
        account.purse.settle(tab, charged)
        account.rates.correct(charged.tokens - quota.estimate.tokens)
        if charged.tokens and used.is_known:
            self._experience.learn(quota.model, charged)
        if run is None:
            self._book.enter(principal.key_id, self._accounts.today(), model, used)
        else:
            self._enter_run(principal.key_id, charge_of(run, self._accounts.today()), seen)
        if account.till is not None:
            account.till.close_tab(tab.id)

    def _enter_run(self, key_id: str, charge: RunCharge, seen: Amount) -> None:
        """Enter a run, and what else its calls were seen to use. The run is charged all that it
        used since it began, by whoever writes its end: what is beyond even that is no part of it,
        and is nobody else's to charge."""
        self._book.enter_run(charge)
        beyond = missing(seen, charge.charged)
        if beyond != ZERO:
            self._book.enter_missing(key_id, charge.used.day, charge.used.model, beyond)

    @asynccontextmanager
    async def account_for_run(self, run: Run) -> AsyncIterator[Account | None]:
        """A tab of its own for a run that goes on without a request, where the key has a cap.
        Raises `ApiError` unauthenticated where the key that owns the run is good no longer."""
        account = await self._account(run.owner, None) if run.owner else None
        if account is None:
            if run.owner.startswith(ID_PREFIX):
                raise unauthenticated("the key that this run was asked with is not known here")
            yield None
            return
        self._in_force(account)
        if not account.purse.is_capped:
            yield None
            return
        charged = await self._keys.charged_for(run.id)
        charge = charge_of(run, self._accounts.today())
        tab = account.purse.take_up(charge.charged - charged)
        tab.id, tab.model, tab.run_id = secrets.token_hex(16), charge.used.model, run.id
        try:
            if account.till is not None:
                await account.till.secure(tab)
            yield tab
        finally:
            account.purse.settle(tab, tab.used)
            if account.till is not None:
                account.till.close_tab(tab.id)

    async def close(self) -> None:
        """Write what is not written yet."""
        await self._accounts.close()
        await self._book.close()

    async def _shown_by(self, token: str, address: str) -> Key:
        """The key of that token."""
        shown = parse_token(token)
        account = None if shown is None else await self._account(shown.key_id, address)
        if shown is None or account is None or not matches(shown, account.key):
            raise self._wrong("this key is not one of this server's; check what is sent", address)
        return self._in_force(account)

    async def _signed_in(self, claim: ParsedSession, address: str) -> Key:
        """The key that a session was begun with."""
        account = await self._account(claim.key_id, address)
        if account is None or not self._sessions.is_good(claim, account.key):
            raise self._wrong("you are signed in no longer; sign in again with your key", address)
        return self._in_force(account)

    def _wrong(self, message: str, address: str) -> ApiError:
        """A wrong key was shown: that is said, unless too many were."""
        now = self._clock()
        wait = self._guesses.wait(address, now)
        if wait:
            return too_many(wait)
        self._guesses.add(address, now)
        return unauthenticated(message)

    def _in_force(self, account: KeyAccount) -> Key:
        """The key of the account, if it is neither revoked nor expired."""
        key = account.key
        if key.revoked_at is not None:
            raise unauthenticated(f"the key {key.name!r} was revoked; ask for another")
        if self._clock() >= account.expires:
            raise unauthenticated(f"the key {key.name!r} has expired; ask for another")
        return key

    def _estimated(self, most: Allowance, model: str, tokens: int) -> Amount:
        """What the request will probably come to, and never more than one request may."""
        estimate = self._experience.estimate(model, tokens)
        return Amount(
            estimate.usd if most.usd is None else min(estimate.usd, most.usd),
            estimate.tokens if most.tokens is None else min(estimate.tokens, most.tokens),
        )

    async def _account(self, key_id: str, address: str | None) -> KeyAccount | None:
        """The account of a key. With no address nobody shows the key: then strangers who guess at
        keys are in no way."""
        first = None if address is None else partial(self._slow_down_strangers, address)
        try:
            return await self._accounts.of(key_id, first)
        except StoreError as error:
            log.warning("keys cannot be looked up: %s", error)
            raise unseen("keys") from error

    def _slow_down_strangers(self, address: str) -> None:
        now = self._clock()
        wait = self._guesses.wait(address, now) or self._strangers.wait(1, now)
        if wait:
            raise too_many(wait)
        self._strangers.take(1)


def _caps(allowance: Allowance) -> dict[str, float | None]:
    return {"usd": allowance.usd, "tokens": allowance.tokens}
