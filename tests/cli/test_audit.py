"""`podium audit`, and the commands that enter something."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.support import SCRIPTED_POOL, Podium
from podium.store.audit import AuditEntry
from podium.store.sql.records import AuditLog


def database(home: Path) -> Path:
    (found,) = home.rglob("podium.db")
    return found


def test_keys_that_are_made_and_revoked_are_on_record_without_their_tokens(podium: Podium) -> None:
    token = podium("keys", "create", "Ada", "--usd-per-day", "5").out.strip()
    assert podium("keys", "revoke", "Ada").code == 0
    ended = podium("audit", "list", "--json")
    revoked, created = ended.json
    assert (created["action"], revoked["action"]) == ("key created", "key revoked")
    assert created["details"]["name"] == "Ada"
    assert created["details"]["rules"] == 'per_day={"usd": 5.0, "tokens": null}'
    assert created["actor"].startswith("user:")
    assert created["subject"] == revoked["subject"]
    assert token not in ended.out
    output = podium("audit", "list").out.splitlines()
    assert len(output) == 2
    assert f"key revoked {revoked['subject']} (name Ada)" in output[0]
    assert (
        podium("audit", "list", "--actor", "nobody").complaint
        == "the audit log has no matching entries"
    )
    assert (
        podium("audit", "list", "--since", "2999-01-01").complaint
        == "the audit log has no matching entries"
    )
    assert len(podium("audit", "list", "-n", "1", "--json").json) == 1


def test_a_run_that_is_deleted_is_on_record(podium: Podium) -> None:
    asked = podium("ask", "--json", "--pool", SCRIPTED_POOL, "Why?")
    run_id = asked.json["run_id"]
    assert podium("runs", "delete", run_id).code == 0
    (entry,) = podium("audit", "list", "--json").json
    assert (entry["action"], entry["subject"]) == ("run deleted", run_id)
    assert "Why?" not in str(entry)


def test_a_log_that_was_tampered_with_is_found_out(podium: Podium, home: Path) -> None:
    for name in ("Ada", "Bob", "Eve"):
        podium("keys", "create", name)
    whole = podium("audit", "verify", "--json").json
    assert (whole["entries"], whole["problem"]) == (3, None)
    assert podium("audit", "verify", "--head", whole["head"]).code == 0
    with sqlite3.connect(database(home)) as connection:
        connection.execute("DROP TRIGGER audit_no_delete")
        connection.execute("DROP TRIGGER audit_no_update")
        connection.execute("DELETE FROM audit WHERE number = 3")
    connection.close()
    assert podium("audit", "verify").code == 0  # the rest is whole; only the noted digest shows it
    cut = podium("audit", "verify", "--head", whole["head"])
    assert cut.code == 1
    assert "entries were cut off at the end or rewritten, or the digest is" in cut.complaint
    assert "tampered" not in cut.complaint  # unknown: it may belong to another log
    with sqlite3.connect(database(home)) as connection:
        connection.execute("UPDATE audit SET actor = 'user:eve' WHERE number = 1")
    connection.close()
    changed = podium("audit", "verify")
    assert changed.code == 1
    assert changed.complaint == "the log was tampered with: entry 1 was changed"


def test_a_noted_digest_may_be_shortened_and_in_capitals(podium: Podium) -> None:
    before = podium("audit", "verify", "--json").json["head"]
    podium("keys", "create", "Ada")
    verified = podium("audit", "verify")
    assert verified.out.startswith("1 entry, none changed")
    head = verified.out.split()[-1]
    podium("keys", "create", "Bob")
    for noted in (head, head[:8], head[:20].upper(), f" {head}\n", before):
        assert podium("audit", "verify", "--head", noted).code == 0, noted
    other = head[:8] + ("0" if head[8] != "0" else "1")
    unknown = podium("audit", "verify", "--head", other)
    assert unknown.code == 1
    assert unknown.complaint.startswith(f"no entry has the digest {other}: ")


@pytest.mark.parametrize("noted", ["", "5f2c9a1", "5f2c9a1…", "x" * 64, "0" * 65])
def test_an_invalid_digest_is_refused(podium: Podium, noted: str) -> None:
    ended = podium("audit", "verify", "--head", noted)
    assert ended.code == 2
    assert "is not a digest; give the 64 digits" in ended.complaint


def test_a_beginning_that_two_digests_have_is_refused(
    podium: Podium, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("Ada", "Bob"):
        podium("keys", "create", name)
    entries = AuditLog.entries

    async def alike(log: AuditLog, **narrowing: Any) -> list[AuditEntry]:
        found = await entries(log, **narrowing)
        return [replace(entry, digest=f"5f2c9a1b{entry.digest[8:]}") for entry in found]

    monkeypatch.setattr(AuditLog, "entries", alike)
    ended = podium("audit", "verify", "--head", "5f2c9a1b")
    assert ended.code == 2
    assert "the digests of 2 entries start with 5f2c9a1b; give more digits" in ended.complaint


def test_an_invalid_time_is_refused(podium: Podium) -> None:
    ended = podium("audit", "list", "--since", "yesterday")
    assert ended.code == 2
    assert "is not a time" in ended.complaint
