"""Charging runs to their keys, inside a transaction of whoever writes their end.

`charges` has a row for each run with all that it was charged so far. Two transactions that charge
the same run come one after the other, for each first makes sure of the row and then locks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, replace
from datetime import date, timedelta
from functools import cache
from typing import Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Double,
    Executable,
    Row,
    Select,
    Text,
    bindparam,
    case,
    delete,
    func,
    literal,
    literal_column,
    select,
    true,
    update,
)
from sqlalchemy.engine import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.store.keys import Allowance, Amount, KeyCharges, KeyUsage, Rules
from podium.store.quotas import (
    OtherProcesses,
    ReservationResult,
    ReservationRow,
    RunCharge,
    larger_of,
)
from podium.store.sql.rows import plain
from podium.store.sql.tables import (
    CHARGES,
    KEY_USAGE,
    KEYS,
    LEASES,
    RUNS,
    TABS,
    adding,
    inserting,
    replacing,
)

_USD: Final = KEY_USAGE.c.cost_usd + KEY_USAGE.c.assumed_usd
_TOKENS: Final = KEY_USAGE.c.input_tokens + KEY_USAGE.c.output_tokens + KEY_USAGE.c.assumed_tokens


def _sums(period: str, when: ColumnElement[bool]) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    """Money and tokens over the days that are meant; Postgres sums integers to decimals."""
    return (
        func.coalesce(func.sum(case((when, _USD), else_=0.0)), 0.0).label(f"{period}_usd"),
        func.coalesce(func.sum(case((when, _TOKENS), else_=0)), 0).label(f"{period}_tokens"),
    )


STANDING: Final = select(
    *_sums("day", KEY_USAGE.c.day == bindparam("day")),
    *_sums("month", KEY_USAGE.c.day.between(bindparam("first"), bindparam("last"))),
    func.coalesce(func.sum(_USD), 0.0).label("total_usd"),
    func.coalesce(func.sum(_TOKENS), 0).label("total_tokens"),
).where(KEY_USAGE.c.key_id == bindparam("key_id"))
"""One row, whatever was used."""


def days_of(key_id: str, day: str) -> dict[str, str]:
    """What `STANDING` must know: whose it is, and which day, in which month."""
    month = day[:7]
    return {"key_id": key_id, "day": day, "first": f"{month}-01", "last": f"{month}-31"}


def standing_of(row: RowMapping) -> KeyCharges:
    """What a row of `STANDING` says."""
    return KeyCharges(
        day=Amount(float(row["day_usd"]), int(row["day_tokens"])),
        month=Amount(float(row["month_usd"]), int(row["month_tokens"])),
        total=Amount(float(row["total_usd"]), int(row["total_tokens"])),
    )


AMOUNTS: Final = tuple(
    column.name for column in CHARGES.columns if column.name not in ("run_id", "key_id", "day")
)
"""What is added up of a run."""

_Place = tuple[str, str, str]
"""Key, day and model."""

DAYS_AFTER: Final = 2
"""How long it is known what a run was charged that is kept no more: longer than one is held."""

DAYS_LOOKED_AT: Final = 7
"""So that charges of the many runs that are kept are not looked at again and again."""


async def record_usage(
    connection: AsyncConnection,
    charges: Sequence[RunCharge],
    besides: Sequence[KeyUsage] = (),
    closed: Sequence[str] = (),
) -> None:
    """Charge each run what it has not been charged yet, and add what else was used; the tabs of
    these runs, and those that are closed, are charged by that. A run whose owner is no key is
    nobody's to pay for."""
    lines: dict[_Place, dict[str, Any]] = {}
    for usage in besides:
        _add(lines, usage, {name: getattr(usage, name) for name in ("requests", *AMOUNTS)})
    for used, more in await _charged(connection, charges):
        _add(lines, used, more)
    if lines:
        # In one order everywhere, or two that write of two keys could wait for each other.
        rows = [line for _, line in sorted(lines.items())]
        await connection.execute(adding(connection.dialect.name, KEY_USAGE), rows)
    if charges or closed:
        await _close_tabs(connection, [charge.run_id for charge in charges], closed)


async def _close_tabs(
    connection: AsyncConnection, run_ids: Sequence[str], closed: Sequence[str]
) -> None:
    theirs = TABS.c.run_id.in_(run_ids) | TABS.c.id.in_(closed)
    # In the order in which tabs are written, or who writes some of them could wait for this.
    locked = select(TABS.c.id).where(theirs).order_by(TABS.c.id).with_for_update()
    ids = (await connection.execute(locked)).scalars().all()
    if ids:
        await connection.execute(delete(TABS).where(TABS.c.id.in_(ids)))


async def _charged(
    connection: AsyncConnection, charges: Sequence[RunCharge]
) -> list[tuple[KeyUsage, dict[str, Any]]]:
    """Write down what each run is charged by now, and give what that is more than before."""
    latest = {charge.run_id: charge for charge in sorted(charges, key=lambda each: each.run_id)}
    if not latest:
        return []
    dialect = connection.dialect.name
    whose = [{"run": run_id, "key": charge.used.key_id} for run_id, charge in latest.items()]
    await connection.execute(_opening(dialect), whose)
    rows = select(CHARGES).where(CHARGES.c.run_id.in_(latest)).order_by(CHARGES.c.run_id)
    before = (await connection.execute(rows.with_for_update())).mappings().all()
    found = [(row, latest[row["run_id"]].used) for row in before]
    changed = [(row, used, more) for row, used in found if any((more := _more(used, row)).values())]
    if changed:
        now = [
            {"run_id": row["run_id"], "key_id": used.key_id, "day": used.day}
            | {name: row[name] + more[name] for name in AMOUNTS}
            for row, used, more in changed
        ]
        await connection.execute(replacing(dialect, CHARGES), now)
    return [(used, more) for _, used, more in changed]


async def note_gone(connection: AsyncConnection, run_ids: Sequence[str], day: str) -> None:
    """These runs were deleted on that day. What they were charged is known a while longer, for an
    end of theirs may still be on its way."""
    if run_ids:
        gone = update(CHARGES).where(CHARGES.c.run_id.in_(run_ids)).values(day=day)
        await connection.execute(gone)


async def prune_charges(connection: AsyncConnection, today: str) -> None:
    """Forget what was charged to runs that are gone for some days, or were never kept."""
    last = date.fromisoformat(today) - timedelta(days=DAYS_AFTER)
    some_days = CHARGES.c.day.between(f"{last - timedelta(days=DAYS_LOOKED_AT)}", f"{last}")
    kept = select(RUNS.c.id).where(RUNS.c.id == CHARGES.c.run_id)
    await connection.execute(delete(CHARGES).where(some_days, ~kept.exists()))


def _more(used: KeyUsage, before: RowMapping) -> dict[str, Any]:
    """What was used beyond what was charged; less than before is an older sum, and adds nothing."""
    return {name: max(0, getattr(used, name) - before[name]) for name in AMOUNTS}


def _add(lines: dict[_Place, dict[str, Any]], used: KeyUsage, more: Mapping[str, Any]) -> None:
    """Add that to the line of the same key, day and model."""
    place = (used.key_id, used.day, plain(used.model))
    line = lines.get(place)
    if line is None:
        line = lines[place] = asdict(KeyUsage(key_id=place[0], day=place[1], model=place[2]))
    for name, amount in more.items():
        line[name] += amount


@cache
def _opening(dialect: str) -> Executable:
    """Make the row of a run that was charged nothing yet, if its owner is a key."""
    nothing = [literal(0).label(name) for name in AMOUNTS]
    row = select(bindparam("run", type_=Text), KEYS.c.id, literal("").label("day"), *nothing).where(
        KEYS.c.id == bindparam("key", type_=Text)
    )
    insert = inserting(dialect, CHARGES).from_select(["run_id", "key_id", "day", *AMOUNTS], row)
    return insert.on_conflict_do_nothing(index_elements=CHARGES.primary_key)


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


class SqlReservationStore:
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
        opened: Sequence[ReservationRow] = (),
        grown: Sequence[ReservationRow] = (),
        changed: Sequence[ReservationRow] = (),
    ) -> ReservationResult:
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
        return ReservationResult(
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

    async def _take_over(self, connection: AsyncConnection, tabs: Iterable[ReservationRow]) -> None:
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

    async def _write(self, connection: AsyncConnection, tabs: Sequence[ReservationRow]) -> None:
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


def _is_news(tab: ReservationRow) -> bool:
    """Whether a tab must be written even if it is refused more: others cannot know yet what it
    counts. A call that waits for money asks often, and most times nothing has changed."""
    return tab.takes_over or _had(tab) != tab.granted


def _without_growing(tab: ReservationRow) -> ReservationRow:
    """A tab that was refused more: what it used counts all the same, and what it was granted."""
    had = _had(tab)
    return replace(
        tab,
        needed=had,
        taken=larger_of(tab.claimed, had),
        calls=tab.calls if had != tab.used else 0,
    )


def _had(tab: ReservationRow) -> Amount:
    """What a tab takes that asks for more: what it was granted, or has used where that is more."""
    return larger_of(tab.granted, tab.used)


def _amounts(tab: ReservationRow) -> dict[str, Any]:
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

    def __init__(self, rules: Rules, row: RowMapping, asking: Iterable[ReservationRow]) -> None:
        self.standing = standing_of(row)
        self.elsewhere = OtherProcesses(
            Amount(float(row["other_claimed_usd"]), int(row["other_claimed_tokens"])),
            Amount(float(row["other_taken_usd"]), int(row["other_taken_tokens"])),
            int(row["other_calls"]),
        )
        charged = (self.standing.day, self.standing.month, self.standing.total)
        caps = (rules.per_day, rules.per_month, rules.in_total)
        self._caps = tuple(zip(caps, charged, strict=True))
        self._claimed = Amount(float(row["claimed_usd"]), int(row["claimed_tokens"]))
        self._taken = Amount(float(row["taken_usd"]), int(row["taken_tokens"]))
        for tab in asking:
            self._claimed += tab.claimed
            self._taken += _had(tab)

    def grown(self, tab: ReservationRow) -> bool:
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

    def opened(self, tab: ReservationRow) -> ReservationRow | None:
        """The tab with what it claims, or what is left; None where nothing is."""
        left = Allowance()
        for cap, charged in self._caps:
            left = Allowance(
                usd=_least(left.usd, cap.usd, charged.usd + self._claimed.usd),
                tokens=_least(left.tokens, cap.tokens, charged.tokens + self._claimed.tokens),
            )
        if left.usd == 0 or left.tokens == 0:
            return None
        claim = Amount(
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
