"""Charges, rate limits and reservations of keys, in the database of the runs.

`run_charges` has a row for each run with all that it was charged so far. Two transactions that
charge the same run are serialised: each first ensures that the row exists and then locks it.

A process that wants more of a key's budget locks the key's row and reads charges and reservations
in one statement, so that no two processes are granted the same money. A charge takes no such lock:
it deletes its reservation in the same transaction, so that a reader sees either of them. Time is
the database's own; the clocks of replicas need not agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import date, timedelta
from functools import cache
from typing import Any, Final, get_args

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

from podium._util.rate_limit import RateLimiter
from podium.store.keys import (
    CHARGED_FIELDS,
    ZERO,
    Amount,
    KeyCharges,
    KeyUsage,
    OtherReservations,
    Period,
    ReservationResult,
    ReservationRow,
    Rules,
    RunCharge,
    cap_amount,
    charged_amount,
    max_amount,
    merge_usage,
    remaining_allowance,
)
from podium.store.sql.database import Database, DatabasePart
from podium.store.sql.tables import (
    KEY_USAGE,
    KEYS,
    PROCESS_LEASES,
    RATE_BUCKETS,
    RESERVATIONS,
    RESERVED_AMOUNTS,
    RUN_CHARGES,
    RUNS,
    dialect_insert,
    insert_missing,
    storable_text,
    upsert,
)

ROUNDING_ERROR: Final = 1e-9
"""The most that sums of fractions of a dollar are off by."""

KEPT_DAYS: Final = 2
"""Days for which the charge of a deleted run is remembered: longer than a run can be held."""

PRUNING_WINDOW_DAYS: Final = 7
"""Days of charges that one pruning looks at, so that those of stored runs are not read for ever."""

SETTLED_AT_ONCE: Final = 200

MIN_LEASE_SHARE_LEFT: Final = 0.5
"""The share of a lease that must be left to write reservations under it."""

_NOW: Final = {
    "sqlite": "(julianday('now') - 2440587.5) * 86400.0",
    "postgresql": "extract(epoch from clock_timestamp())::double precision",
}


_USD: Final = KEY_USAGE.c.cost_usd + KEY_USAGE.c.assumed_usd
_TOKENS: Final = KEY_USAGE.c.input_tokens + KEY_USAGE.c.output_tokens + KEY_USAGE.c.assumed_tokens


def _period_sums(
    period: str, when: ColumnElement[bool]
) -> tuple[ColumnElement[Any], ColumnElement[Any]]:
    return (
        func.coalesce(func.sum(case((when, _USD), else_=0.0)), 0.0).label(f"{period}_usd"),
        func.coalesce(func.sum(case((when, _TOKENS), else_=0)), 0).label(f"{period}_tokens"),
    )


_CHARGED: Final = (
    *_period_sums("day", KEY_USAGE.c.day == bindparam("day")),
    *_period_sums("month", KEY_USAGE.c.day.between(bindparam("first"), bindparam("last"))),
    *_period_sums("total", true()),
    func.max(KEY_USAGE.c.used_at).label("used_at"),
)
_CHARGES: Final = select(*_CHARGED).where(KEY_USAGE.c.key_id == bindparam("key_id"))
"""One row, whatever was used."""


def database_time(dialect: str) -> ColumnElement[float]:
    """The seconds since 1970 by the clock of the database."""
    return literal_column(_NOW[dialect], Double)


def _add_usage(dialect: str) -> Executable:
    """Insert rows of usage, or add them to those with the same key."""
    statement = dialect_insert(dialect, KEY_USAGE).values(used_at=database_time(dialect))
    sums = {
        name: KEY_USAGE.c[name] + statement.excluded[name] for name in ("requests", *CHARGED_FIELDS)
    }
    return statement.on_conflict_do_update(
        index_elements=KEY_USAGE.primary_key,
        set_={**sums, "used_at": statement.excluded.used_at},
    )


def _days(day: str) -> dict[str, str]:
    return {"day": day, "first": f"{day[:7]}-01", "last": f"{day[:7]}-31"}


def _amount(row: RowMapping, name: str) -> Amount:
    return Amount(float(row[f"{name}_usd"]), int(row[f"{name}_tokens"]))


def _key_charges(row: RowMapping) -> KeyCharges:
    periods = {period: _amount(row, period) for period in get_args(Period)}
    return KeyCharges(**periods, used_at=row["used_at"])


async def record_usage(
    connection: AsyncConnection,
    charges: Sequence[RunCharge],
    usage: Sequence[KeyUsage] = (),
    settled: Sequence[str] = (),
) -> None:
    """Charge runs what they were not charged yet, add other usage, and delete the reservations of
    these runs and those settled. A run whose owner is no key is not charged."""
    items = (*usage, *await _charge_runs(connection, charges))
    # In one order everywhere, or two writers of two keys could wait for each other.
    rows = [
        asdict(line)
        for line in merge_usage(replace(i, model=storable_text(i.model)) for i in items)
    ]
    if rows:
        await connection.execute(_add_usage(connection.dialect.name), rows)
    if charges or settled:
        run_ids = [charge.run_id for charge in charges]
        done = RESERVATIONS.c.run_id.in_(run_ids) | RESERVATIONS.c.id.in_(settled)
        # Locked in the order in which reservations are written.
        locked = select(RESERVATIONS.c.id).where(done).order_by(RESERVATIONS.c.id)
        ids = (await connection.execute(locked.with_for_update())).scalars().all()
        if ids:
            await connection.execute(delete(RESERVATIONS).where(RESERVATIONS.c.id.in_(ids)))


async def _charge_runs(connection: AsyncConnection, charges: Sequence[RunCharge]) -> list[KeyUsage]:
    """Write the charge of each run; return what each increased by."""
    latest = {charge.run_id: charge for charge in sorted(charges, key=lambda charge: charge.run_id)}
    if not latest:
        return []
    dialect = connection.dialect.name
    owners = [{"run": run_id, "key": charge.usage.key_id} for run_id, charge in latest.items()]
    await connection.execute(_ensure_charges(dialect), owners)
    rows = (
        select(RUN_CHARGES).where(RUN_CHARGES.c.run_id.in_(latest)).order_by(RUN_CHARGES.c.run_id)
    )
    before = (await connection.execute(rows.with_for_update())).mappings().all()
    written, increases = [], []
    for row in before:
        usage = latest[row["run_id"]].usage
        # Less than before is an older sum, and adds nothing.
        increase = {name: max(0, getattr(usage, name) - row[name]) for name in CHARGED_FIELDS}
        if any(increase.values()):
            sums = {name: row[name] + increase[name] for name in CHARGED_FIELDS}
            written.append({**row, **sums, "key_id": usage.key_id, "day": usage.day})
            increases.append(replace(usage, requests=0, **increase))
    if written:
        await connection.execute(upsert(dialect, RUN_CHARGES), written)
    return increases


@cache
def _ensure_charges(dialect: str) -> Executable:
    """Insert an empty charge for a run that has none, if its owner is a key."""
    zeros = [literal(0).label(name) for name in CHARGED_FIELDS]
    row = select(bindparam("run", type_=Text), KEYS.c.id, literal("").label("day"), *zeros).where(
        KEYS.c.id == bindparam("key", type_=Text)
    )
    names = ["run_id", "key_id", "day", *CHARGED_FIELDS]
    statement = dialect_insert(dialect, RUN_CHARGES).from_select(names, row)
    return statement.on_conflict_do_nothing(index_elements=RUN_CHARGES.primary_key)


async def mark_deleted(connection: AsyncConnection, run_ids: Sequence[str], day: str) -> None:
    """Date the charges of deleted runs, which are kept for runs whose end is still on its way."""
    if run_ids:
        deleted = RUN_CHARGES.c.run_id.in_(run_ids)
        await connection.execute(update(RUN_CHARGES).where(deleted).values(day=day))


async def prune_charges(connection: AsyncConnection, today: str) -> None:
    """Delete the charges of runs that were deleted days ago or never stored."""
    last = date.fromisoformat(today) - timedelta(days=KEPT_DAYS)
    days = RUN_CHARGES.c.day.between(f"{last - timedelta(days=PRUNING_WINDOW_DAYS)}", f"{last}")
    stored = select(RUNS.c.id).where(RUNS.c.id == RUN_CHARGES.c.run_id)
    await connection.execute(delete(RUN_CHARGES).where(days, ~stored.exists()))


class QuotaStore(DatabasePart):
    """Stores quotas in SQLite or Postgres."""

    async def record(
        self,
        usage: Sequence[KeyUsage],
        runs: Sequence[RunCharge] = (),
        settled: Sequence[str] = (),
    ) -> None:
        """Add usage, charge runs and delete settled reservations, in one transaction."""
        if usage or runs or settled:
            async with self._transaction() as connection:
                await record_usage(connection, runs, usage, settled)

    async def charges(self, key_id: str, day: str) -> KeyCharges:
        """Return what the key was charged, as of that day."""
        async with self._transaction() as connection:
            found = await connection.execute(_CHARGES, {"key_id": key_id, **_days(day)})
            return _key_charges(found.mappings().one())

    async def all_charges(self, day: str) -> dict[str, KeyCharges]:
        """Return what each key that was used was charged, as of that day."""
        query = select(KEY_USAGE.c.key_id, *_CHARGED).group_by(KEY_USAGE.c.key_id)
        async with self._transaction() as connection:
            rows = (await connection.execute(query, _days(day))).mappings().all()
        return {row["key_id"]: _key_charges(row) for row in rows}

    async def charged_for(self, run_id: str) -> Amount:
        query = select(RUN_CHARGES).where(RUN_CHARGES.c.run_id == storable_text(run_id))
        async with self._transaction() as connection:
            row = (await connection.execute(query)).mappings().one_or_none()
        if row is None:
            return ZERO
        amounts = {name: row[name] for name in CHARGED_FIELDS}
        return charged_amount(KeyUsage(key_id=row["key_id"], day=row["day"], model="", **amounts))

    async def take(
        self, key_id: str, rules: Rules, tokens: Sequence[int], correction: int = 0
    ) -> list[float]:
        """Take requests of so many tokens from the key's shared rate limits; return 0 for each
        that may begin, or the seconds until it may. The correction of earlier requests is taken
        first."""
        async with self._transaction() as connection:
            row = await _lock_bucket(connection, key_id, rules)
            now = max(row.now, row.filled_at)
            left = (row.requests, row.tokens)
            limits = (rules.requests_per_minute, rules.tokens_per_minute)
            rates = RateLimiter(*limits, row.filled_at, left)
            rates.wait(0, now)
            rates.correct(correction)
            waits = []
            for token in tokens:
                wait = rates.wait(token, now)
                if not wait:
                    rates.take(token)
                waits.append(wait)
            requests_left, tokens_left = rates.left
            kept = {
                "key_id": key_id,
                "requests": requests_left or 0.0,
                "tokens": tokens_left or 0.0,
                "filled_at": now,
            }
            await connection.execute(upsert(connection.dialect.name, RATE_BUCKETS), [kept])
        return waits

    def reservations(self, process: str, lease_seconds: float) -> ReservationStore:
        return ReservationStore(self._database, process, lease_seconds)


async def _lock_bucket(connection: AsyncConnection, key_id: str, rules: Rules) -> Row[Any]:
    """Lock and read the key's bucket, full if it is new, and the time."""
    dialect = connection.dialect.name
    if dialect == "sqlite":
        await _lock_file(connection)
    now = database_time(dialect).label("now")
    query = select(now, RATE_BUCKETS).where(RATE_BUCKETS.c.key_id == key_id).with_for_update()
    row: Row[Any] | None = (await connection.execute(query)).one_or_none()
    if row is None:
        full = {
            "key_id": key_id,
            "requests": rules.requests_per_minute or 0.0,
            "tokens": rules.tokens_per_minute or 0.0,
            "filled_at": 0.0,
        }
        await connection.execute(insert_missing(dialect, RATE_BUCKETS), [full])
        row = (await connection.execute(query)).one()
    return row


async def _lock_file(connection: AsyncConnection) -> None:
    await connection.exec_driver_sql("BEGIN IMMEDIATE")


class ReservationStore(DatabasePart):
    """The reservations of one process among several; methods raise `StoreError`."""

    def __init__(self, database: Database, process: str, lease_seconds: float) -> None:
        super().__init__(database)
        self._process = process
        self._lease_seconds = lease_seconds

    async def update(
        self,
        key_id: str,
        rules: Rules,
        day: str,
        *,
        new: Sequence[ReservationRow] = (),
        increased: Sequence[ReservationRow] = (),
        decreased: Sequence[ReservationRow] = (),
    ) -> ReservationResult:
        """Write reservations of one key as far as its caps have room.

        A `new` one is granted what it expects, or what is left if that is less and not zero. One
        that is `increased` is granted all that it needs, or nothing more; what it used counts
        either way. One that is `decreased` needs no more than before. Renews the lease of this
        process if necessary.
        """
        async with self._transaction() as connection:
            await self._lock_key(connection, key_id)
            for row in increased:
                if row.is_takeover:  # counts what the run used before, even if it is refused more
                    others = (RESERVATIONS.c.run_id == row.run_id) & (RESERVATIONS.c.id != row.id)
                    await connection.execute(delete(RESERVATIONS).where(others))
            asking = [row.id for row in (*new, *increased)]
            state = await self._read_state(connection, key_id, day, asking)
            if not state["has_lease"]:  # without one, nothing granted now would count
                await self._renew_lease(connection)
                state = await self._read_state(connection, key_id, day, asking)
            quota = _RemainingQuota(rules, state, increased)
            fits = {row.id: quota.grant_more(row) for row in increased}
            larger = [row for row in increased if fits[row.id]]
            refused = [_refuse(row) for row in increased if not fits[row.id] and _must_write(row)]
            begun = [row for row in map(quota.grant_new, new) if row is not None]
            await self._write(connection, (*larger, *refused, *begun, *decreased))
        granted = {row.id: row.needed for row in larger} | {
            row.id: row.withheld_from_requests for row in begun
        }
        return ReservationResult(charges=quota.charges, others=quota.others, granted=granted)

    async def renew_lease(self) -> None:
        """Extend the reservations of this process by a lease."""
        async with self._transaction() as connection:
            await self._renew_lease(connection)

    async def settle_expired(self) -> int:
        """Charge and delete reservations of dead processes; return how many. Those of a stored run
        are charged by the end of that run."""
        async with self._transaction() as connection:
            dialect = connection.dialect.name
            if dialect == "sqlite":
                await _lock_file(connection)
            # Locked, so that none of them renews its lease and writes a reservation meanwhile.
            expired = select(PROCESS_LEASES.c.process).where(
                PROCESS_LEASES.c.expires_at < database_time(dialect)
            )
            expired = expired.with_for_update(skip_locked=True)
            processes = (await connection.execute(expired)).scalars().all()
            lease = select(PROCESS_LEASES.c.process).where(
                PROCESS_LEASES.c.process == RESERVATIONS.c.process
            )
            dead = RESERVATIONS.c.process.in_(processes) | ~lease.exists()
            running = select(RUNS.c.id).where(
                RUNS.c.id == RESERVATIONS.c.run_id, RUNS.c.status == "running"
            )
            some = select(RESERVATIONS.c.id).where(dead, ~running.exists()).limit(SETTLED_AT_ONCE)
            some = some.with_for_update(skip_locked=True)  # a charge of a run may be deleting them
            statement = delete(RESERVATIONS).where(RESERVATIONS.c.id.in_(some))
            rows = (await connection.execute(statement.returning(RESERVATIONS))).all()
            left = select(RESERVATIONS.c.id).where(
                RESERVATIONS.c.process == PROCESS_LEASES.c.process
            )
            ended = PROCESS_LEASES.c.process.in_(processes) & ~left.exists()
            await connection.execute(delete(PROCESS_LEASES).where(ended))
            run_ids = [row.run_id for row in rows if row.run_id]
            stored: set[str] = set()  # charged by the end of the run
            if run_ids:
                query = select(RUNS.c.id).where(RUNS.c.id.in_(run_ids))
                stored = set((await connection.execute(query)).scalars())
            day = self._clock()[:10]
            usage = [_assumed_usage(row, day) for row in rows if row.run_id not in stored]
            await record_usage(connection, (), usage)
        return len(rows)

    async def _lock_key(self, connection: AsyncConnection, key_id: str) -> None:
        """Lock the key's limits until the transaction ends: its row, or on SQLite the file."""
        if connection.dialect.name == "sqlite":
            await _lock_file(connection)
            return
        row = select(KEYS.c.id).where(KEYS.c.id == key_id)
        await connection.execute(row.with_for_update(key_share=True))

    async def _renew_lease(self, connection: AsyncConnection) -> None:
        dialect = connection.dialect.name
        now = (await connection.execute(select(database_time(dialect)))).scalar_one()
        lease = {"process": self._process, "expires_at": now + self._lease_seconds}
        await connection.execute(upsert(dialect, PROCESS_LEASES), [lease])

    async def _read_state(
        self, connection: AsyncConnection, key_id: str, day: str, asking: Sequence[str]
    ) -> RowMapping:
        parameters = {
            "key_id": key_id,
            **_days(day),
            "process": self._process,
            "spare": self._lease_seconds * MIN_LEASE_SHARE_LEFT,
            "asking": [*asking, ""],
        }
        result = await connection.execute(_state_query(connection.dialect.name), parameters)
        state: RowMapping = result.mappings().one()
        return state

    async def _write(self, connection: AsyncConnection, rows: Sequence[ReservationRow]) -> None:
        if not rows:
            return
        values = [
            {
                **{name: getattr(row, name) for name in ("id", "key_id", "run_id", "calls")},
                **{f"{name}_usd": getattr(row, name).usd for name in RESERVED_AMOUNTS},
                **{f"{name}_tokens": getattr(row, name).tokens for name in RESERVED_AMOUNTS},
                "model": storable_text(row.model),
                "process": self._process,
            }
            for row in sorted(rows, key=lambda row: row.id)
        ]
        await connection.execute(upsert(connection.dialect.name, RESERVATIONS), values)


def _assumed_usage(row: Row[Any], day: str) -> KeyUsage:
    """The usage of a request that was never settled: what it was last known to have used."""
    return KeyUsage(
        key_id=row.key_id,
        day=day,
        model=row.model,
        requests=1,
        unknown_usage_count=1,
        unknown_cost_count=1,
        assumed_tokens=row.used_tokens,
        assumed_usd=row.used_usd,
    )


def _held(row: ReservationRow) -> Amount:
    """Return the larger of a reservation's grant and its use: what it holds before it grows."""
    return max_amount(row.granted, row.used)


def _must_write(row: ReservationRow) -> bool:
    """True if a refused reservation must still be written. A waiting call asks often, and mostly
    nothing has changed."""
    return row.is_takeover or _held(row) != row.granted


def _refuse(row: ReservationRow) -> ReservationRow:
    held = _held(row)
    calls = row.calls if held != row.used else 0
    return replace(
        row,
        needed=held,
        withheld_from_calls=max_amount(row.withheld_from_requests, held),
        calls=calls,
    )


class _RemainingQuota:
    """The rest of a key's caps, while reservations are granted one after another."""

    def __init__(self, rules: Rules, state: RowMapping, asking: Iterable[ReservationRow]) -> None:
        self.charges = _key_charges(state)
        self.others = OtherReservations(
            _amount(state, "other_withheld_from_requests"),
            _amount(state, "other_withheld_from_calls"),
            int(state["other_calls"]),
        )
        charged = (self.charges.day, self.charges.month, self.charges.total)
        caps = (rules.per_day, rules.per_month, rules.in_total)
        self._caps = tuple(zip(caps, charged, strict=True))
        self._withheld_from_requests = _amount(state, "withheld_from_requests")
        self._withheld_from_calls = _amount(state, "withheld_from_calls")
        for row in asking:
            self._withheld_from_requests += row.withheld_from_requests
            self._withheld_from_calls += _held(row)

    def grant_more(self, row: ReservationRow) -> bool:
        """Grant all that the reservation needs, if there is room."""
        held = self._withheld_from_calls - _held(row) + row.needed
        if row.needed != row.used and not all(
            (cap.usd is None or charged.usd + held.usd <= cap.usd + ROUNDING_ERROR)
            and (cap.tokens is None or charged.tokens + held.tokens <= cap.tokens)
            for cap, charged in self._caps
        ):
            return False
        self._withheld_from_calls = held
        return True

    def grant_new(self, row: ReservationRow) -> ReservationRow | None:
        """Grant what the reservation expects, or what is left; None if nothing is."""
        left = remaining_allowance(self._caps, self._withheld_from_requests)
        if left.usd == 0 or left.tokens == 0:
            return None
        granted = cap_amount(row.withheld_from_requests, left)
        self._withheld_from_requests += granted
        self._withheld_from_calls += granted
        return replace(row, withheld_from_requests=granted, withheld_from_calls=granted)


@cache
def _state_query(dialect: str) -> Select[Any]:
    """Select the key's charges, the reservations that do not ask (of all processes, and of the
    others), and whether this process has enough of a lease. A dead process's reservation counts
    what it used."""
    lease_of_row = select(PROCESS_LEASES.c.process).where(
        PROCESS_LEASES.c.process == RESERVATIONS.c.process,
        PROCESS_LEASES.c.expires_at >= database_time(dialect),
    )
    alive = lease_of_row.exists()
    others = RESERVATIONS.c.process != bindparam("process")
    sums = []
    for name in (
        "withheld_from_requests_usd",
        "withheld_from_requests_tokens",
        "withheld_from_calls_usd",
        "withheld_from_calls_tokens",
    ):
        used = RESERVATIONS.c[f"used_{name.rpartition('_')[2]}"]
        counted = case((alive, RESERVATIONS.c[name]), else_=used)
        sums.append(func.coalesce(func.sum(counted), 0).label(name))
        of_others = case((others, counted), else_=0)
        sums.append(func.coalesce(func.sum(of_others), 0).label(f"other_{name}"))
    calls = case((alive & others, RESERVATIONS.c.calls), else_=0)
    sums.append(func.coalesce(func.sum(calls), 0).label("other_calls"))
    not_asking = RESERVATIONS.c.id.not_in(bindparam("asking", expanding=True))
    rows = RESERVATIONS.c.key_id == bindparam("key_id")
    reservations = select(*sums).where(rows, not_asking).subquery()
    charges = _CHARGES.subquery()
    own_lease = select(PROCESS_LEASES.c.process).where(
        PROCESS_LEASES.c.process == bindparam("process"),
        PROCESS_LEASES.c.expires_at >= database_time(dialect) + bindparam("spare", type_=Double),
    )
    has_lease = own_lease.exists().label("has_lease")
    return select(*charges.columns, *reservations.columns, has_lease).select_from(
        charges.join(reservations, true())  # one row each
    )
