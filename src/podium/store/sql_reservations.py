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

from podium.store.keys import Allowance, Charged, KeyUsage, Rules
from podium.store.quotas import Drawn, Elsewhere, TabRow, most
from podium.store.rows import plain
from podium.store.sql_quotas import STANDING, days_of, record_usage, standing_of
from podium.store.tables import KEYS, LEASES, RUNS, TABS, replacing

Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]

Number = TypeVar("Number", int, float)

CRUMB: Final = 1e-9
"""What sums of fractions of a dollar may be wrong by."""

SWEPT_AT_ONCE: Final = 200

SPARE_SHARE: Final = 0.5
"""How much of a lease must be left for tabs to be written under it: it must not run out before
they are, and a process that renews in time always has more."""

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
        async with self._transaction() as connection:
            await lock_key(connection, key_id)
            await self._take_over(connection, grown)
            asking = [tab.id for tab in (*opened, *grown)]
            row = await self._seen(connection, key_id, day, asking)
            if not row["has_lease"]:  # the first time, or after a pause: else what it is granted
                await self._renew(connection)  # now would count for nobody
                row = await self._seen(connection, key_id, day, asking)
            room = _Room(rules, row, grown)
            fits = {tab.id: room.grown(tab) for tab in grown}
            bigger = [tab for tab in grown if fits[tab.id]]
            refused = [_without_growing(tab) for tab in grown if not fits[tab.id] and _is_news(tab)]
            new = [tab for tab in map(room.opened, opened) if tab is not None]
            await self._write(connection, (*bigger, *refused, *new, *changed))
        return Drawn(
            standing=room.standing,
            elsewhere=room.elsewhere,
            granted={tab.id: tab.needed for tab in bigger} | {tab.id: tab.claimed for tab in new},
        )

    async def renew(self) -> None:
        """The tabs of this process are good for another lease."""
        async with self._transaction() as connection:
            await self._renew(connection)

    async def _renew(self, connection: AsyncConnection) -> None:
        dialect = connection.dialect.name
        now = (await connection.execute(select(database_time(dialect)))).scalar_one()
        lease = {"process": self._process, "expires_at": now + self._lease_seconds}
        await connection.execute(replacing(dialect, LEASES), [lease])

    async def sweep(self) -> int:
        """Settle the tabs whose lease has run out."""
        async with self._transaction() as connection:
            processes = await _lost(connection)
            goes_on = select(RUNS.c.id).where(
                RUNS.c.id == TABS.c.run_id, RUNS.c.status == "running"
            )
            lease = select(LEASES.c.process).where(LEASES.c.process == TABS.c.process)
            theirs = TABS.c.process.in_(processes) | ~lease.exists()
            some = select(TABS.c.id).where(theirs, ~goes_on.exists()).limit(SWEPT_AT_ONCE)
            some = some.with_for_update(skip_locked=True)  # who charges a run closes its tabs, too
            gone = await connection.execute(delete(TABS).where(TABS.c.id.in_(some)).returning(TABS))
            rows = gone.all()
            left = select(TABS.c.id).where(TABS.c.process == LEASES.c.process)
            over = LEASES.c.process.in_(processes) & ~left.exists()
            await connection.execute(delete(LEASES).where(over))
            ended = await _on_record(connection, [row.run_id for row in rows if row.run_id])
            day = self._clock()[:10]
            used = [_assumed(row, day) for row in rows if row.run_id not in ended]
            await record_usage(connection, (), used)
        return len(rows)

    async def _take_over(self, connection: AsyncConnection, tabs: Iterable[TabRow]) -> None:
        """What a run had used before is counted by its new tab now, which is written even if it
        is refused more."""
        for tab in tabs:
            if tab.takes_over:
                others = (TABS.c.run_id == tab.run_id) & (TABS.c.id != tab.id)
                await connection.execute(delete(TABS).where(others))

    async def _seen(
        self, connection: AsyncConnection, key_id: str, day: str, asking: Sequence[str]
    ) -> RowMapping:
        query = _seen(connection.dialect.name)
        values = {
            **days_of(key_id, day),
            "process": self._process,
            "spare": self._lease_seconds * SPARE_SHARE,
            "asking": [*asking, ""],
        }
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
        await _lock_file(connection)
        return
    row = select(KEYS.c.id).where(KEYS.c.id == key_id)
    await connection.execute(row.with_for_update(key_share=True))


async def _lock_file(connection: AsyncConnection) -> None:
    await connection.exec_driver_sql("BEGIN IMMEDIATE")


async def _lost(connection: AsyncConnection) -> Sequence[str]:
    """The processes whose leases have run out. None of them can renew its own until the transaction
    ends: else one that comes back just now would lose a tab that it writes. Those that another
    transaction is at are not among them."""
    dialect = connection.dialect.name
    if dialect == "sqlite":
        await _lock_file(connection)
    over = select(LEASES.c.process).where(LEASES.c.expires_at < database_time(dialect))
    return (await connection.execute(over.with_for_update(skip_locked=True))).scalars().all()


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


def _is_news(tab: TabRow) -> bool:
    """Whether a tab must be written even if it is refused more: others cannot know yet what it
    counts. A call that waits for money asks often, and most times nothing has changed."""
    return tab.takes_over or _had(tab) != tab.granted


def _without_growing(tab: TabRow) -> TabRow:
    """A tab that was refused more: what it used counts all the same, and what it was granted."""
    had = _had(tab)
    return replace(
        tab,
        needed=had,
        taken=most(tab.claimed, had),
        calls=tab.calls if had != tab.used else 0,
    )


def _had(tab: TabRow) -> Charged:
    """What a tab takes that asks for more: what it was granted, or has used where that is more."""
    return most(tab.granted, tab.used)


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
            self._taken += _had(tab)

    def grown(self, tab: TabRow) -> bool:
        """Whether there is room for all that the tab needs. What was used already has been."""
        taken = self._taken - _had(tab) + tab.needed
        if tab.needed != tab.used and not all(
            (cap.usd is None or charged.usd + taken.usd <= cap.usd + CRUMB)
            and (cap.tokens is None or charged.tokens + taken.tokens <= cap.tokens)
            for cap, charged in self._caps
        ):
            return False
        self._taken = taken
        return True

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
    and those of the others. And whether this process has a lease to write tabs under."""
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
    lease = select(LEASES.c.process).where(
        LEASES.c.process == bindparam("process"),
        LEASES.c.expires_at >= database_time(dialect) + bindparam("spare", type_=Double),
    )
    return select(*standing.columns, *tabs.columns, lease.exists().label("has_lease")).select_from(
        both
    )
