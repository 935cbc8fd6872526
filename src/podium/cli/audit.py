"""`podium audit`: administrative acts on record, and whether the record is whole."""

from __future__ import annotations

import json as json_
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.formatting import local_time, one_line, shortened
from podium.cli.output import Exit, complain, say, say_json
from podium.cli.session import Result, with_store
from podium.core.errors import UsageError
from podium.core.run import timestamp
from podium.store import AuditLog, audit_in
from podium.store.audit import GENESIS_DIGEST, AuditEntry

app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

FEWEST_DIGITS: Final = 8
"""How much of a digest must be given to tell it from all others."""

_NOTED: Final = re.compile(rf"[0-9a-f]{{{FEWEST_DIGITS},{len(GENESIS_DIGEST)}}}")


@app.command("list")
def list_(
    since: Annotated[
        str | None,
        typer.Option(metavar="MOMENT", help="From this day or moment on, such as 2027-01-31."),
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option(metavar="ACTOR", help="Only of a key, by its id or name, or of a user."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="At most so many, the newest.")
    ] = 100,
    json: options.JsonList = False,
    config: options.Config = None,
) -> None:
    """List administrative acts, the newest first: who did what, when, to what and from where."""
    moment = None if since is None else _moment(since)
    found = _with_log(config, lambda log: log.entries(since=moment, actor=actor, limit=limit))
    if json:
        say_json([{**asdict(entry), "details": json_.loads(entry.details)} for entry in found])
        return
    for entry in found:
        say(one_line(_line(entry)))
    if not found:
        complain("nothing is on record")


@app.command()
def verify(
    head: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST",
            help="The last digest that was noted elsewhere, or its first 8 digits or more: shows "
            "whether entries were cut off.",
        ),
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Check that no entry was changed, taken out or put in, and say the digest of the last one.

    Each entry holds a digest of itself and of the one before. Note the last digest elsewhere, and
    give it as --head later: that entries were cut off at the end, nothing else can show.
    """
    noted = None if head is None else _digits(head)
    checked = _with_log(config, lambda log: log.verify())
    problem = None if checked.problem is None else f"the log was tampered with: {checked.problem}"
    if problem is None and noted is not None:
        problem = _with_log(config, lambda log: _not_found(log, noted))
    if json:
        say_json({"entries": checked.entries, "head": checked.head, "problem": problem})
    elif problem is None:
        entries = "1 entry" if checked.entries == 1 else f"{checked.entries} entries"
        say(f"{entries}, none changed; the last has the digest {checked.head}")
    if problem is not None:
        complain(problem)
        raise typer.Exit(Exit.FAILED)


def _digits(head: str) -> str:
    """A digest as it was noted, or the beginning of one, as digests are written."""
    digits = head.strip().lower()
    if not _NOTED.fullmatch(digits):
        raise UsageError(
            f"--head {shortened(head, 80)!r} is no digest; give the "
            f"{len(GENESIS_DIGEST)} digits, of 0-9 and a-f, that podium audit "
            f"verify printed, or the first {FEWEST_DIGITS} or more"
        )
    return digits


async def _not_found(log: AuditLog, noted: str) -> str | None:
    """What is wrong with the digest that was noted; nothing where just one entry has it, or the
    log had no entry yet."""
    found = int(GENESIS_DIGEST.startswith(noted))
    before: int | None = None
    while entries := await log.entries(before=before, limit=1_000):
        found += sum(entry.digest.startswith(noted) for entry in entries)
        before = entries[-1].number
    if found > 1:
        raise UsageError(f"the digests of {found} entries begin with {noted}; give more digits")
    return (
        None
        if found
        else (
            f"no entry has the digest {noted}: entries were cut off at the end or written anew, or "
            f"the digest is another log's"
        )
    )


def _line(entry: AuditEntry) -> str:
    details = json_.loads(entry.details)
    told = ", ".join(f"{name} {value}" for name, value in details.items())
    by = f"{entry.actor} ({entry.actor_name})" if entry.actor_name else entry.actor
    origin = f" from {entry.origin}" if entry.origin else ""
    subject = f" {entry.subject}" if entry.subject else ""
    detail = f" ({told})" if told else ""
    when = local_time(entry.at)
    return f"{entry.number}  {when}  {by}{origin}: {entry.action}{subject}{detail}"


def _with_log(config: Path | None, work: Callable[[AuditLog], Awaitable[Result]]) -> Result:
    return with_store(config, lambda store: work(audit_in(store)), to_read=True)


def _moment(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"--since {text!r} is no moment; write a day as 2027-01-31, or 2027-01-31T12:00"
        ) from error
    return timestamp(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
