"""What the tests of the door share: keys in memory, a clock by hand, and a way to be let in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from podium.core.errors import NotFound, StoreError
from podium.core.pool import Pool, WorkerProfile
from podium.core.request import NO_USAGE, Usage
from podium.server.access import KeyAuthenticator, Principal, RequestCost
from podium.server.access.keys import make_key
from podium.server.access.policy import UNLIMITED
from podium.store.keys import Amount, Key, KeyCharges, KeyUsage, Rules, RunCharge
from podium.store.sql.quotas import QuotaStore, ReservationStore
from podium.store.sql.records import KeyStore

POOL = Pool(
    (
        WorkerProfile(name="gpt", provider="openai"),
        WorkerProfile(name="claude", provider="anthropic"),
    )
)

NOON = 1_767_355_200.0
"""2026-01-02 12:00 UTC."""


NO_RULES = Rules()


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


class MemoryKeys(KeyStore, QuotaStore):
    """A key store in memory. Broken, it raises what a database would."""

    def __init__(self) -> None:
        self.rows: dict[str, Key] = {}
        self.used: list[KeyUsage] = []
        self.runs: dict[str, RunCharge] = {}
        self.looked_up = 0
        self.broken = False

    @property
    def quotas(self) -> QuotaStore:
        return self

    async def add(self, key: Key) -> None:
        self.rows[key.id] = key

    async def key(self, key_id: str) -> Key | None:
        self._check()
        self.looked_up += 1
        return self.rows.get(key_id)

    async def keys(self) -> list[Key]:
        return list(self.rows.values())

    async def revoke(self, key_id: str) -> None:
        if key_id not in self.rows:
            raise NotFound(key_id)
        self.rows[key_id] = replace(self.rows[key_id], revoked_at="2026-01-02T00:00:00+00:00")

    async def change(self, key: Key) -> None:
        self.rows[key.id] = key

    async def take(
        self, key_id: str, rules: Rules, tokens: Sequence[int], correction: int = 0
    ) -> list[float]:
        raise AssertionError("keys in memory are one process's")

    def reservations(self, process: str, lease_seconds: float) -> ReservationStore:
        raise AssertionError("keys in memory are one process's")

    async def record(
        self,
        usage: Sequence[KeyUsage],
        runs: Sequence[RunCharge] = (),
        settled: Sequence[str] = (),
    ) -> None:
        self._check()
        self.used.extend(usage)
        for charge in runs:
            if charge.amount != await self.charged_for(charge.run_id):
                assert charge.run_id not in self.runs, "a store in memory charges a run once"
                self.runs[charge.run_id] = charge
                self.used.append(charge.usage)

    async def charged_for(self, run_id: str) -> Amount:
        return self.runs[run_id].amount if run_id in self.runs else Amount()

    async def charges(self, key_id: str, day: str) -> KeyCharges:
        self._check()

        def charged(days: str) -> Amount:
            rows = [row for row in self.used if row.key_id == key_id and row.day.startswith(days)]
            return sum((charge(row) for row in rows), Amount())

        return KeyCharges(day=charged(day), month=charged(day[:7]), total=charged(""))

    async def usage(
        self, *, key_id: str | None = None, since: str | None = None, until: str | None = None
    ) -> list[KeyUsage]:
        return self.used

    def _check(self) -> None:
        if self.broken:
            raise StoreError("the disk is full; free some space")


def charge(row: KeyUsage) -> Amount:
    return Amount(
        row.cost_usd + row.assumed_usd,
        row.input_tokens + row.output_tokens + row.assumed_tokens,
    )


class Server:
    """A gatekeeper, its keys and its clock."""

    def __init__(self, pool: Pool = POOL) -> None:
        self.keys = MemoryKeys()
        self.clock = Clock()
        self.access = KeyAuthenticator(self.keys, pool, clock=self.clock)

    async def token(self, rules: Rules = NO_RULES, expires_at: str | None = None) -> str:
        """The token of a new key."""
        made = make_key("Ada", rules, expires_at=expires_at)
        await self.keys.add(made.key)
        return made.token

    async def principal(self, rules: Rules = NO_RULES) -> Principal:
        """A client with a new key of those rules."""
        return await self.access.authenticate(await self.token(rules))

    async def settle(
        self,
        principal: Principal,
        tokens: int | None = 0,
        usd: float | None = 0.0,
        model: str = "podium",
    ) -> None:
        """Settle a request that used so much; one without a reservation gets one first."""
        if principal.quota is UNLIMITED:
            principal = await self.access.reserve(principal, model=model, tokens=0)
        usage = Usage(tokens, 0, 0, 0, 0)
        await self.access.settle(principal, model=model, cost=RequestCost(usage, NO_USAGE, usd))
