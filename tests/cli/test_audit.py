"""`podium audit`, and the commands that enter something."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from cli.support import SCRIPTED_POOL, Podium


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
    with sqlite3.connect(database(home)) as connection:
        connection.execute("UPDATE audit SET actor = 'user:eve' WHERE number = 1")
    connection.close()
    changed = podium("audit", "verify")
    assert changed.code == 1
    assert changed.complaint == "the audit log is not intact: entry 1 was changed"


def test_a_noted_digest_may_be_that_of_any_entry(podium: Podium) -> None:
    noted = [podium("audit", "verify", "--json").json["head"]]
    for name in ("Ada", "Bob"):
        podium("keys", "create", name)
        noted.append(podium("audit", "verify").out.split()[-1])
    for head in noted:
        assert podium("audit", "verify", "--head", head).code == 0, head


def test_an_invalid_time_is_refused(podium: Podium) -> None:
    ended = podium("audit", "list", "--since", "yesterday")
    assert ended.code == 2
    assert "is not a time" in ended.complaint
