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

from podium.errors import StoreError
from podium.server.access.book import Book
from podium.server.access.purse import Purse
from podium.server.access.rates import SharedRates
from podium.server.access.till import Till
from podium.store.buckets import Rates
from podium.store.keys import Key, KeyStore, Rules
from podium.store.tabs import TabStore

log = logging.getLogger("podium")

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
    purse: Purse
    rates: Rates | SharedRates
    till: Till | None
    read_at: float
    day: str


class Accounts:
    """The accounts of all keys that were seen. `tabs` is where those with a cap meet what other
    processes have of them, each good for a lease. It belongs to one event loop."""

    def __init__(
        self,
        keys: KeyStore,
        book: Book,
        tabs: TabStore | None,
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

    async def _tend(self, tabs: TabStore) -> None:
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
        purse, till = Purse(rules), None
        if self._tabs is not None and purse.is_capped:
            till = purse.till = Till(
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
