"""What one process knows of keys: of each its rules, what it may spend, and how fast it is used.

That is read from the store at most every few seconds; a key that is revoked works that much longer.
Who is let in by a key, and what a request is charged, is the gatekeeper's business.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from podium.core.errors import StoreError
from podium.server.access.quotas import KeyBudget, SharedBudget
from podium.server.access.usage import UsageWriter
from podium.store.keys import Key, KeyStore, Rules
from podium.store.quotas import Rates, ReservationStore

log = logging.getLogger("podium")

SOON: Final = 0.1
"""Seconds until what was guessed wrongly is put right, if nobody takes anything before."""


class SharedRates:
    """The limits of one key. It belongs to one event loop."""

    def __init__(self, keys: KeyStore, key_id: str, rules: Rules) -> None:
        self._keys = keys
        self._key_id = key_id
        self._rules = rules
        self._asking: list[tuple[int, asyncio.Future[float]]] = []
        self._owed = 0
        self._soon: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    async def take(self, tokens: int) -> float:
        """Begin a request of so many tokens, and return 0; or the seconds until it may. Raises
        `StoreError` where nobody can tell."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._asking.append((tokens, answer))
        self._write_now()
        return await answer

    def correct(self, tokens: int) -> None:
        """So many more tokens, or fewer, were used than had been taken."""
        if not tokens or self._rules.tokens_per_minute is None:
            return
        self._owed += tokens
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._write_later)

    async def close(self) -> None:
        """Put right what is not yet."""
        if self._soon is not None:
            self._soon.cancel()
        if self._owed:
            self._write_now()
        if self._writer is not None:
            await asyncio.wait({self._writer})

    def _write_later(self) -> None:
        self._soon = None
        if self._owed:
            self._write_now()

    def _write_now(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._asking or self._owed:
            asking, self._asking = [each for each in self._asking if not each[1].cancelled()], []
            owed, self._owed = self._owed, 0
            tokens = [each for each, _ in asking]
            try:
                waits = await self._keys.take(self._key_id, self._rules, tokens, owed)
            except StoreError as error:
                # What is owed is no money: a limit that is a little off for once harms nobody.
                log.warning("how fast a key is used cannot be looked up: %s", error)
                _fail(asking, error)
            except BaseException as error:  # whoever waits must not wait for ever
                _fail(asking, error)
                raise
            else:
                for (_, answer), wait in zip(asking, waits, strict=True):
                    if not answer.done():
                        answer.set_result(wait)


def _fail(asking: list[tuple[int, asyncio.Future[float]]], error: BaseException) -> None:
    for _, answer in asking:
        if not answer.done():
            answer.set_exception(error)


KEY_SECONDS: Final = 5.0
"""How long what was read of a key is relied on."""

BEATS_A_LEASE: Final = 4
"""So that a lease outlives some that come late or fail."""

DAY_SECONDS: Final = 86_400


@dataclass(slots=True)
class KeyAccount:
    """What this process knows of a key."""

    key: Key
    expires: float
    purse: KeyBudget
    rates: Rates | SharedRates
    till: SharedBudget | None
    read_at: float
    day: str


class Accounts:
    """The accounts of all keys that were seen. `tabs` is where those with a cap meet what other
    processes have of them, each good for a lease. It belongs to one event loop."""

    def __init__(
        self,
        keys: KeyStore,
        book: UsageWriter,
        tabs: ReservationStore | None,
        lease_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self.known: dict[str, KeyAccount] = {}
        self._keys = keys
        self._book = book
        self._tabs = tabs
        self._lease_seconds = lease_seconds
        self._clock = clock
        self._reading = asyncio.Lock()
        self._tending: asyncio.Task[None] | None = None
        self._day_number, self._day = -1, ""

    def __getitem__(self, key_id: str) -> KeyAccount:
        """The account of a key that was let in."""
        return self.known[key_id]

    async def of(self, key_id: str, first: Callable[[], None] | None = None) -> KeyAccount | None:
        """The account of a key, read anew where what is known of it is old or of another day; None
        where there is no such key. `first` is called before one is looked up that was never seen,
        and may refuse that. Raises `StoreError`."""
        account = self.known.get(key_id)
        if account is not None and self._is_fresh(account):
            return account
        async with self._reading:
            account = self.known.get(key_id)
            if account is not None and self._is_fresh(account):
                return account
            if account is None and first is not None:
                first()
            return await self._read(key_id)

    def today(self) -> str:
        """The day, of UTC, that requests are charged on."""
        number = int(self._clock() // DAY_SECONDS)
        if number != self._day_number:
            midnight = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=number)
            self._day_number, self._day = number, f"{midnight:%Y-%m-%d}"
        return self._day

    async def close(self) -> None:
        """Wait for what is being written."""
        if self._tending is not None:
            self._tending.cancel()
            await asyncio.wait({self._tending})
        for account in self.known.values():
            if account.till is not None:
                await account.till.close()
            if isinstance(account.rates, SharedRates):
                await account.rates.close()

    async def _tend(self, tabs: ReservationStore) -> None:
        """Renew the tabs of this process, and settle those that nobody renews."""
        while True:
            await asyncio.sleep(self._lease_seconds / BEATS_A_LEASE)
            try:
                await tabs.renew()
                await tabs.sweep()
            except StoreError as error:
                log.warning("what requests hold of their keys' budgets is not renewed: %s", error)

    async def _read(self, key_id: str) -> KeyAccount | None:
        key = await self._keys.key(key_id)
        if key is None:
            return None
        account = self.known.get(key_id) or self._new_account(key)
        day = self.today()
        if account.purse.is_capped and account.till is None:
            account.purse.stand(await self._book.standing(key_id, day))
        account.key, account.read_at, account.day = key, self._clock(), day
        self.known[key_id] = account
        return account

    def _new_account(self, key: Key) -> KeyAccount:
        rules, now = key.rules, self._clock()
        purse, till = KeyBudget(rules), None
        if self._tabs is not None and purse.is_capped:
            till = purse.till = SharedBudget(
                self._tabs,
                key.id,
                rules,
                purse,
                today=self.today,
                closing=self._book.close_tab,
            )
            if self._tending is None:
                self._tending = asyncio.get_running_loop().create_task(self._tend(self._tabs))
        return KeyAccount(
            key=key,
            expires=_seconds(key.expires_at),
            purse=purse,
            rates=self._rates(key.id, rules),
            till=till,
            read_at=now,
            day="",
        )

    def _rates(self, key_id: str, rules: Rules) -> Rates | SharedRates:
        limits = rules.requests_per_minute, rules.tokens_per_minute
        if self._tabs is not None and limits != (None, None):
            return SharedRates(self._keys, key_id, rules)
        return Rates(*limits, self._clock())

    def _is_fresh(self, account: KeyAccount) -> bool:
        age = self._clock() - account.read_at
        return 0 <= age < KEY_SECONDS and account.day == self.today()


def _seconds(moment: str | None) -> float:
    return math.inf if moment is None else datetime.fromisoformat(moment).timestamp()
