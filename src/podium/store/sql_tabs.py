"""The tabs of requests in flight, in the database that keeps the keys.

Whoever wants more of a key's budget first locks the key's row, and then reads in one statement
what was charged and what all tabs take: so no two processes are promised the same money. A charge
locks nothing here. It is one transaction with the end of its tab, so that a reader sees either the
tab or the charge. Time is the database's own: the clocks of replicas need not agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import cache
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Double,
    Row,
    Select,
    bindparam,
    case,
    delete,
    func,
    literal_column,
    select,
    true,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.store.documents import plain
from podium.store.keys import Allowance, Charged, KeyUsage, Rules
from podium.store.sql_charges import record_usage
from podium.store.sql_standing import STANDING, days_of, standing_of
from podium.store.tables import KEYS, LEASES, RUNS, TABS
from podium.store.tabs import Drawn, Elsewhere, TabRow
from podium.store.upsert import replacing

Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]

Number = TypeVar("Number", int, float)

CRUMB: Final = 1e-9
"""What sums of fractions of a dollar may be wrong by."""

SWEPT_AT_ONCE: Final = 200

_NOW: Final = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "extract(epoch from clock_timestamp())::double precision",
}


def database_time(dialect: str) -> ColumnElement[float]:
    """The seconds since 1970, by the clock of the database."""
    return literal_column(_NOW[dialect], Double)


class SqlTabs:
    """The tabs of the process of that name, each good for so many seconds unless renewed."""

    def __init__(
        self,
        transaction: Transaction,
        clock: Callable[[], str],
        *,
        process: str,
        lease_seconds: float,
    ) -> None:
        self._transaction = transaction
        self._clock = clock
        self._process = process
        self._lease_seconds = lease_seconds
        self._has_lease = False

    async def draw(
        self,
        key_id: str,
        rules: Rules,
        day: str,
        *,
        opened: Sequence[TabRow] = (),
        grown: Sequence[TabRow] = (),
        changed: Sequence[TabRow] = (),
    ) -> Drawn:
        """Write tabs of one key, so far as its caps have room beside the tabs of every process."""
        if not self._has_lease:
            await self.renew()
        async with self._transaction() as connection:
            await lock_key(connection, key_id)
            await self._take_over(connection, grown)
            row = await self._seen(connection, key_id, day, [tab.id for tab in (*opened, *grown)])
            room = _Room(rules, row, grown)
            bigger = [tab for tab in map(room.grown, grown) if tab is not None]
            new = [tab for tab in map(room.opened, opened) if tab is not None]
            await self._write(connection, (*bigger, *new, *changed))
        return Drawn(
            standing=room.standing,
            elsewhere=room.elsewhere,
            granted={tab.id: tab.needed for tab in bigger} | {tab.id: tab.claimed for tab in new},
        )

    async def renew(self) -> None:
        """The tabs of this process are good for another lease."""
        async with self._transaction() as connection:
            dialect = connection.dialect.name
            now = (await connection.execute(select(database_time(dialect)))).scalar_one()
            lease = {"process": self._process, "expires_at": now + self._lease_seconds}
            await connection.execute(replacing(dialect, LEASES), [lease])
        self._has_lease = True

    async def sweep(self) -> int:
        """Settle the tabs whose lease has run out."""
        async with self._transaction() as connection:
            expired = ~_is_alive(connection.dialect.name)
            goes_on = select(RUNS.c.id).where(
                RUNS.c.id == TABS.c.run_id, RUNS.c.status == "running"
            )
            some = select(TABS.c.id).where(expired, ~goes_on.exists()).limit(SWEPT_AT_ONCE)
            theirs = some.with_for_update(skip_locked=True)  # another may be at it as well
            gone = await connection.execute(
                delete(TABS).where(TABS.c.id.in_(theirs)).returning(TABS)
            )
            rows = gone.all()
            await connection.execute(delete(LEASES).where(_is_over(connection.dialect.name)))
            ended = await _on_record(connection, [row.run_id for row in rows if row.run_id])
            day = self._clock()[:10]
            used = [_assumed(row, day) for row in rows if row.run_id not in ended]
            await record_usage(connection, (), used)
        return len(rows)

    async def _take_over(self, connection: AsyncConnection, tabs: Iterable[TabRow]) -> None:
        """What a run had used before is counted by its new tab now."""
        for tab in tabs:
            if tab.takes_over:
                others = (TABS.c.run_id == tab.run_id) & (TABS.c.id != tab.id)
                await connection.execute(delete(TABS).where(others))

    async def _seen(
        self, connection: AsyncConnection, key_id: str, day: str, asking: Sequence[str]
    ) -> RowMapping:
        query = _seen(connection.dialect.name)
        values = {**days_of(key_id, day), "process": self._process, "asking": [*asking, ""]}
        found: RowMapping = (await connection.execute(query, values)).mappings().one()
        return found

    async def _write(self, connection: AsyncConnection, tabs: Sequence[TabRow]) -> None:
        if not tabs:
            return
        rows = [
            {
                "id": tab.id,
                "key_id": tab.key_id,
                "model": plain(tab.model),
                "run_id": tab.run_id,
                "process": self._process,
                **_amounts(tab),
            }
            for tab in sorted(tabs, key=lambda tab: tab.id)
        ]
        await connection.execute(replacing(connection.dialect.name, TABS), rows)


async def lock_key(connection: AsyncConnection, key_id: str) -> None:
    """Let nobody else look at what is left of that key's limits until the transaction ends. SQLite
    locks the whole file; Postgres the key's row, and for those alone who do the same."""
    if connection.dialect.name == "sqlite":
        await connection.exec_driver_sql("BEGIN IMMEDIATE")
        return
    row = select(KEYS.c.id).where(KEYS.c.id == key_id)
    await connection.execute(row.with_for_update(key_share=True))


async def _on_record(connection: AsyncConnection, run_ids: Sequence[str]) -> set[str]:
    """Those of the runs that the store has: their ends charge them."""
    if not run_ids:
        return set()
    found = await connection.execute(select(RUNS.c.id).where(RUNS.c.id.in_(run_ids)))
    return set(found.scalars())


def _assumed(row: Row[Any], day: str) -> KeyUsage:
    """What a request used that nobody came to settle: one of which no more is known."""
    return KeyUsage(
        key_id=row.key_id,
        day=day,
        model=row.model,
        requests=1,
        unknown_tokens=1,
        unknown_cost=1,
        assumed_tokens=row.used_tokens,
        assumed_usd=row.used_usd,
    )


def _amounts(tab: TabRow) -> dict[str, Any]:
    return {
        "used_usd": tab.used.usd,
        "used_tokens": tab.used.tokens,
        "claimed_usd": tab.claimed.usd,
        "claimed_tokens": tab.claimed.tokens,
        "taken_usd": tab.taken.usd,
        "taken_tokens": tab.taken.tokens,
        "calls": tab.calls,
    }


def _is_alive(dialect: str) -> ColumnElement[bool]:
    """Whether the process of a tab has renewed its lease in time."""
    lease = select(LEASES.c.process).where(
        LEASES.c.process == TABS.c.process, LEASES.c.expires_at >= database_time(dialect)
    )
    return lease.exists()


def _is_over(dialect: str) -> ColumnElement[bool]:
    """Whether a lease has run out, and there are no tabs left to settle."""
    tabs = select(TABS.c.id).where(TABS.c.process == LEASES.c.process)
    return (LEASES.c.expires_at < database_time(dialect)) & ~tabs.exists()


class _Room:
    """What the caps of a key leave, while tabs that ask are granted one after the other."""

    def __init__(self, rules: Rules, row: RowMapping, asking: Iterable[TabRow]) -> None:
        self.standing = standing_of(row)
        self.elsewhere = Elsewhere(
            Charged(float(row["other_claimed_usd"]), int(row["other_claimed_tokens"])),
            Charged(float(row["other_taken_usd"]), int(row["other_taken_tokens"])),
            int(row["other_calls"]),
        )
        charged = (self.standing.day, self.standing.month, self.standing.total)
        caps = (rules.per_day, rules.per_month, rules.in_total)
        self._caps = tuple(zip(caps, charged, strict=True))
        self._claimed = Charged(float(row["claimed_usd"]), int(row["claimed_tokens"]))
        self._taken = Charged(float(row["taken_usd"]), int(row["taken_tokens"]))
        for tab in asking:
            self._claimed += tab.claimed
            self._taken += tab.granted

    def grown(self, tab: TabRow) -> TabRow | None:
        """The tab, if there is room for all that it needs. What was used already has been."""
        taken = self._taken - tab.granted + tab.needed
        if tab.needed != tab.used and not all(
            (cap.usd is None or charged.usd + taken.usd <= cap.usd + CRUMB)
            and (cap.tokens is None or charged.tokens + taken.tokens <= cap.tokens)
            for cap, charged in self._caps
        ):
            return None
        self._taken = taken
        return tab

    def opened(self, tab: TabRow) -> TabRow | None:
        """The tab with what it claims, or what is left; None where nothing is."""
        left = Allowance()
        for cap, charged in self._caps:
            left = Allowance(
                usd=_least(left.usd, cap.usd, charged.usd + self._claimed.usd),
                tokens=_least(left.tokens, cap.tokens, charged.tokens + self._claimed.tokens),
            )
        if left.usd == 0 or left.tokens == 0:
            return None
        claim = Charged(
            tab.claimed.usd if left.usd is None else min(tab.claimed.usd, left.usd),
            tab.claimed.tokens if left.tokens is None else min(tab.claimed.tokens, left.tokens),
        )
        self._claimed += claim
        self._taken += claim
        return replace(tab, claimed=claim, taken=claim)


def _least(left: Number | None, cap: Number | None, gone: Number) -> Number | None:
    """What is left, where another cap may leave less."""
    if cap is None:
        return left
    rest = max(cap - cap, cap - gone)
    return rest if left is None else min(left, rest)


@cache
def _seen(dialect: str) -> Select[Any]:
    """What was charged, and what the tabs that do not ask claim and take: those of all processes,
    and those of the others."""
    alive = _is_alive(dialect)
    others = TABS.c.process != bindparam("process")
    sums = []
    for name in ("claimed_usd", "claimed_tokens", "taken_usd", "taken_tokens"):
        used = TABS.c[f"used_{name.partition('_')[2]}"]
        counted = case((alive, TABS.c[name]), else_=used)
        sums.append(func.coalesce(func.sum(counted), 0).label(name))
        sums.append(
            func.coalesce(func.sum(case((others, counted), else_=0)), 0).label(f"other_{name}")
        )
    calls = case((alive & others, TABS.c.calls), else_=0)
    sums.append(func.coalesce(func.sum(calls), 0).label("other_calls"))
    asking = TABS.c.id.not_in(bindparam("asking", expanding=True))
    tabs = select(*sums).where(TABS.c.key_id == bindparam("key_id"), asking).subquery()
    standing = STANDING.subquery()
    both = standing.join(tabs, true())  # a row each
    return select(*standing.columns, *tabs.columns).select_from(both)
