"""What a server enters of its own: its start, and what changed since the last one."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from podium.config import ServerSettings, Settings, WorkerSettings
from podium.config.guardrails import GuardrailSettings
from podium.config.schema import StoreSettings
from podium.core.pool import WorkerProfile
from podium.engine import RetryPolicy
from podium.server.access import Principal
from podium.server.records.audit import REPEAT_SECONDS, AuditRecorder, fingerprint, to_json_value
from podium.store.sql.run_store import SqlRunStore

PROFILE = WorkerProfile(name="solo", capabilities=frozenset({"tools", "json", "vision"}))
SETTINGS = Settings(source="podium.toml", workers=(WorkerSettings(profile=PROFILE),))
REDACT = GuardrailSettings(name="redact", kind="redact", stages=("answer",))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlRunStore]:
    store = await SqlRunStore.open(tmp_path / "podium.db")
    yield store
    await store.close()


async def acts(store: SqlRunStore) -> list[str]:
    return [entry.action for entry in reversed(await store.audit.entries())]


async def test_a_start_is_entered_with_what_changed_since_the_last(store: SqlRunStore) -> None:
    audit = AuditRecorder(store.audit)
    await audit.record_start(SETTINGS)
    await audit.record_start(SETTINGS)
    assert await acts(store) == ["server started"] * 2
    changed = replace(SETTINGS, server=ServerSettings(require_keys=True))
    await audit.record_start(changed)
    assert (await acts(store))[2:] == ["settings changed", "server started"]
    await audit.record_start(replace(changed, guardrails=(REDACT,)))
    assert (await acts(store))[4:] == ["settings changed", "guardrails changed", "server started"]
    last = (await store.audit.entries(limit=1))[0]
    details = json.loads(last.details)
    assert details["require_keys"] is True
    assert details["settings"] == fingerprint(replace(changed, guardrails=(REDACT,)))
    assert last.subject == "podium.toml"
    assert last.actor.startswith("user:")


def test_the_fingerprint_is_the_same_in_every_process_and_knows_no_password() -> None:
    names = frozenset({"tools", "json", "vision"})
    assert to_json_value(names) == ["json", "tools", "vision"]  # however a process orders its sets
    secret = replace(SETTINGS, store=StoreSettings(url="postgresql://ada:secret@host/db"))
    assert fingerprint(secret) == fingerprint(SETTINGS)
    assert fingerprint(replace(SETTINGS, mask_names=True)) != fingerprint(SETTINGS)


def test_replicas_with_the_same_settings_have_the_same_fingerprint() -> None:
    here, there = (
        replace(
            SETTINGS,
            retry=RetryPolicy(jitter=Random(seed).random),  # as of another process: not this one
            server=ServerSettings(host=host, port=port),
        )
        for seed, host, port in ((1, "127.0.0.1", 7755), (2, "0.0.0.0", 7756))
    )
    assert fingerprint(here) == fingerprint(there)
    assert fingerprint(replace(here, retry=RetryPolicy(attempts=9))) != fingerprint(there)


async def test_reading_again_is_entered_again_only_after_a_while(store: SqlRunStore) -> None:
    now = 0.0
    audit = AuditRecorder(store.audit, clock=lambda: now)
    ada, eve = Principal(key_id="key_1", name="Ada"), Principal(key_id="key_2", name="Eve")
    for principal in (ada, ada, eve):
        await audit.record_read("run read", principal, "run_1")
    assert len(await acts(store)) == 2
    now = REPEAT_SECONDS + 1
    await audit.record_read("run read", ada, "run_1")
    assert len(await acts(store)) == 3
