"""The audit log: who did what to the server, when and from where.

It records administrative actions with ids, key names and fingerprints, never secrets or prompts.
Entries are append-only. Each holds a digest of itself and of the entry before, so that a changed,
removed or inserted entry is detected; truncation at the end is detected only against a digest that
was noted elsewhere.
"""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Literal

AuditAction = Literal[
    "key created",
    "key revoked",
    "key changed",
    "worker disabled",
    "worker enabled",
    "run read",
    "run deleted",
    "run exported",
    "feedback given",
    "feedback withdrawn",
    "training data written",
    "runs listed",
    "run recovered",
    "signed in",
    "server started",
    "settings changed",
    "guardrails changed",
]

AuditDetails = Mapping[str, str | int | bool]

GENESIS_DIGEST: Final = "0" * 64
"""The digest before the first entry."""

USER_PREFIX: Final = "user:"
"""Prefix of an actor who is a user of the server's machine."""

_DIGESTED: Final = ("number", "at", "action", "actor", "actor_name", "subject", "origin", "details")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """An action to record.

    `actor` is a key's id or a user of this machine, `actor_name` a readable name, `subject` the
    object of the action and `origin` the address or host that it came from.
    """

    action: AuditAction
    actor: str
    actor_name: str = ""
    subject: str = ""
    origin: str = ""
    details: AuditDetails = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A recorded event. `digest` covers the entry and the digest before it."""

    number: int
    at: str
    action: str
    actor: str
    actor_name: str
    subject: str
    origin: str
    details: str
    digest: str


@dataclass(frozen=True, slots=True)
class AuditVerification:
    """The number of valid entries, the last digest, and the first problem found, if any."""

    entries: int
    head: str
    problem: str | None = None


def chain_entry(event: AuditEvent, number: int, at: str, before: str) -> AuditEntry:
    """Build the entry that follows the one with the digest `before`."""
    entry = AuditEntry(
        number=number,
        at=at,
        action=event.action,
        actor=event.actor,
        actor_name=event.actor_name,
        subject=event.subject,
        origin=event.origin,
        details=json.dumps(dict(event.details), sort_keys=True),
        digest="",
    )
    return replace(entry, digest=digest_of(entry, before))


def digest_of(entry: AuditEntry, before: str) -> str:
    """Compute the digest of an entry that follows one with the digest `before`."""
    content = json.dumps([before, *(getattr(entry, name) for name in _DIGESTED)])
    return sha256(content.encode()).hexdigest()


def verify_entries(
    entries: Iterable[AuditEntry], expected_head: str | None = None
) -> AuditVerification:
    """Check entries in order, from the first; one of them must have the `expected_head` digest."""
    count, head = 0, GENESIS_DIGEST
    is_found = expected_head in (None, head)
    for entry in entries:
        if entry.number != count + 1:
            missing = f"entry {count + 1} is missing, found {entry.number} in its place"
            return AuditVerification(count, head, missing)
        if entry.digest != digest_of(entry, head):
            return AuditVerification(count, head, f"entry {entry.number} was changed")
        count, head = entry.number, entry.digest
        is_found = is_found or head == expected_head
    if is_found:
        return AuditVerification(count, head)
    return AuditVerification(
        count,
        head,
        f"no entry has the digest {expected_head}: entries were cut off at the end or rewritten, "
        f"or the digest is from another log",
    )


def local_event(
    action: AuditAction, subject: str = "", details: AuditDetails | None = None
) -> AuditEvent:
    """Build the event of an action by the user who runs this program."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = "unknown"
    return AuditEvent(
        action=action,
        actor=f"{USER_PREFIX}{user}",
        subject=subject,
        origin=socket.gethostname(),
        details=details or {},
    )
