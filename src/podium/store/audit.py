"""The audit log, as data: who did what to the server, when and from where.

It is about administrative acts, never about what anybody asked: ids, names of keys and fingerprints
stand in it, no secrets and no words of questions. Entries are only ever added. Each holds a digest
of itself and of the one before, so that an entry that was changed, taken out or put in shows; that
entries were cut off at the end shows only to who noted the last digest elsewhere.
"""

from __future__ import annotations

import getpass
import json
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Literal, Protocol

AuditAction = Literal[
    "key created",
    "key revoked",
    "key training changed",
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
    "schema migrated",
]

AuditDetails = Mapping[str, str | int | bool]
"""What else is worth knowing of an action, by name."""

GENESIS_DIGEST: Final = "0" * 64
"""What the first entry has in place of the digest of the one before."""


USER: Final = "user:"
"""What stands before the name of a user of a machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEvent:
    """An action, before it is entered. `who` is a key's id or a user of this machine, `name` what
    people call them; `subject` is what it was done to, `origin` where it came from."""

    action: AuditAction
    actor: str
    actor_name: str = ""
    subject: str = ""
    origin: str = ""
    details: AuditDetails = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A deed on record. `digest` is of all of it and of the entry before."""

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
    """How many entries were checked, the digest of the last one, and the first thing that is wrong
    with them, None where nothing is."""

    entries: int
    head: str
    problem: str | None = None


class AuditLog(Protocol):
    """Keeps entries."""

    async def add(self, deed: AuditEvent) -> AuditEntry:
        """Enter what is done; raises `StoreError` where that cannot be."""
        ...

    async def entries(
        self,
        *,
        since: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        before: int | None = None,
        limit: int = 100,
    ) -> list[AuditEntry]:
        """Entries from a moment on, of somebody by id or name, the newest first. A user is found
        with and without `user:`."""
        ...

    async def verify(self) -> AuditVerification:
        """Check every entry against the one before it."""
        ...


def entered(deed: AuditEvent, number: int, at: str, before: str) -> AuditEntry:
    """The deed as the entry that follows the one with the digest `before`."""
    entry = AuditEntry(
        number=number,
        at=at,
        action=deed.action,
        actor=deed.actor,
        actor_name=deed.actor_name,
        subject=deed.subject,
        origin=deed.origin,
        details=json.dumps(dict(deed.details), sort_keys=True),
        digest="",
    )
    return replace(entry, digest=digest_of(entry, before))


def digest_of(entry: AuditEntry, before: str) -> str:
    """The digest that an entry has after one with that digest."""
    told = json.dumps([before, *(getattr(entry, name) for name in _DIGESTED)])
    return sha256(told.encode()).hexdigest()


def verified(entries: Iterable[AuditEntry]) -> AuditVerification:
    """Check entries in their order, from the first."""
    count, head = 0, GENESIS_DIGEST
    for entry in entries:
        if entry.number != count + 1:
            missing = f"entry {count + 1} is missing, and {entry.number} stands in its place"
            return AuditVerification(count, head, missing)
        if entry.digest != digest_of(entry, head):
            return AuditVerification(count, head, f"entry {entry.number} is not what was entered")
        count, head = entry.number, entry.digest
    return AuditVerification(count, head)


def local_event(
    action: AuditAction, subject: str = "", details: AuditDetails | None = None
) -> AuditEvent:
    """What is done by whoever runs this program, on this machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no name for its user
        user = "unknown"
    return AuditEvent(
        action=action,
        actor=f"{USER}{user}",
        subject=subject,
        origin=socket.gethostname(),
        details=details or {},
    )


_DIGESTED: Final = ("number", "at", "action", "actor", "actor_name", "subject", "origin", "details")
