"""The audit log on both databases: concurrent writers, and tampering is detected."""

from __future__ import annotations

import asyncio
from dataclasses import fields, replace

import pytest
from sqlalchemy import text

from podium.core.errors import ConfigError, StoreError
from podium.store import RunStore
from podium.store.audit import (
    GENESIS_DIGEST,
    AuditEntry,
    AuditEvent,
    chain_entry,
    local_event,
    verify_entries,
)
from podium.store.sql.run_store import SqlRunStore

MADE = AuditEvent(
    action="key created", actor="user:ada", subject="key_1", origin="desk", details={"days": 3}
)


async def test_entries_are_kept_in_order_and_found_by_moment_and_by_who(store: SqlRunStore) -> None:
    log = store.audit
    first = await log.add(MADE)
    await log.add(replace(MADE, action="key revoked", actor="key_9", actor_name="bob\ud800"))
    assert (first.number, first.subject, first.details) == (1, "key_1", '{"days": 3}')
    assert [entry.action for entry in await log.entries()] == ["key revoked", "key created"]
    assert [entry.number for entry in await log.entries(actor="user:ada")] == [1]
    assert [entry.number for entry in await log.entries(actor="ada")] == [1]
    assert await log.entries(actor="user:user:ada") == []
    assert [entry.number for entry in await log.entries(actor="bob\ud800")] == [2]
    assert [entry.number for entry in await log.entries(action="key revoked")] == [2]
    assert [entry.number for entry in await log.entries(before=2)] == [1]
    assert await log.entries(since="2999-01-01") == []
    assert (await log.verify()).problem is None
    assert (await log.verify()).entries == 2


async def test_concurrent_entries_make_one_chain(where: str) -> None:
    stores = [await SqlRunStore.open(where) for _ in range(3)]
    try:
        adding = [
            store.audit.add(replace(MADE, subject=f"key_{number}"))
            for number in range(5)
            for store in stores
        ]
        await asyncio.gather(*adding)
        checked = await stores[0].audit.verify()
        assert (checked.entries, checked.problem) == (15, None)
    finally:
        for store in stores:
            await store.close()


@pytest.mark.parametrize("change", ["UPDATE audit SET who = 'eve'", "DELETE FROM audit"])
async def test_the_database_refuses_to_change_or_delete_entries(
    store: SqlRunStore, change: str
) -> None:
    await store.audit.add(MADE)
    with pytest.raises(StoreError):
        async with store._transaction() as connection:
            await connection.execute(text(change))
    assert (await store.audit.verify()).entries == 1


async def test_a_tampered_entry_is_detected(store: SqlRunStore) -> None:
    log = store.audit
    for number in range(3):
        await log.add(replace(MADE, subject=f"key_{number}"))
    async with store._transaction() as connection:
        if connection.dialect.name == "sqlite":
            await connection.execute(text("DROP TRIGGER audit_no_update"))
        else:
            await connection.execute(text("DROP TRIGGER audit_append_only ON audit"))
        await connection.execute(text("UPDATE audit SET subject = 'x' WHERE number = 2"))
    assert (await log.verify()).problem == "entry 2 was changed"


def chain(*subjects: str) -> list[AuditEntry]:
    entries: list[AuditEntry] = []
    for number, subject in enumerate(subjects, start=1):
        before = entries[-1].digest if entries else GENESIS_DIGEST
        act = replace(MADE, subject=subject)
        entries.append(chain_entry(act, number, "2026-01-02T03:04:05.678+00:00", before))
    return entries


@pytest.mark.parametrize(
    "name", [item.name for item in fields(AuditEntry) if item.name != "digest"]
)
def test_a_change_of_any_field_shows(name: str) -> None:
    entries = chain("a", "b", "c")
    changed = 7 if name == "number" else "forged"
    entries[1] = replace(entries[1], **{name: changed})  # type: ignore[arg-type]
    assert verify_entries(entries).problem is not None
    assert verify_entries(entries).entries == 1


def test_an_entry_taken_out_or_swapped_or_put_in_shows() -> None:
    a, b, c = chain("a", "b", "c")
    assert verify_entries([a, b, c]).problem is None
    assert verify_entries([a, c]).problem == "entry 2 is missing, found 3 in its place"
    assert verify_entries([b, c]).problem == "entry 1 is missing, found 2 in its place"
    forged = replace(chain_entry(MADE, 2, b.at, "f" * 64))
    assert verify_entries([a, forged, c]).problem == "entry 2 was changed"
    rewritten = chain_entry(replace(MADE, subject="x"), 2, b.at, a.digest)
    assert verify_entries([a, rewritten, c]).problem == "entry 3 was changed"


def test_entries_cut_off_at_the_end_show_by_the_last_digest_alone() -> None:
    whole, cut = verify_entries(chain("a", "b", "c")), verify_entries(chain("a", "b"))
    assert cut.problem is None
    assert cut.head != whole.head


def test_the_audit_actor_of_a_command_is_the_system_user() -> None:
    act = local_event("run deleted", "run_1")
    assert act.actor.startswith("user:")
    assert act.origin


def test_without_a_database_there_is_no_place_for_it() -> None:
    with pytest.raises(ConfigError, match="no database for an audit log"):
        _ = RunStore().audit
