"""`podium audit`: list and verify the audit log of administrative actions."""

from __future__ import annotations

import json as json_
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from podium.cli import options
from podium.cli.app import SubcommandGroup
from podium.cli.output import ExitCode, echo, echo_error, echo_json, format_local_time, to_one_line
from podium.cli.session import Result, run_with_store
from podium.core.errors import UsageError
from podium.core.run import timestamp
from podium.store.audit import AuditEntry

if TYPE_CHECKING:
    from podium.store.sql.records import AuditLog

app = typer.Typer(cls=SubcommandGroup, rich_markup_mode=None, add_completion=False)


@app.command("list")
def list_(
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only entries from this day or time on: 2027-01-31."),
    ] = None,
    actor: Annotated[
        str | None,
        typer.Option(metavar="ACTOR", help="Only actions of this key (id or name) or user."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, help="The most entries to list.")
    ] = 100,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """List administrative actions, newest first: actor, time, action, subject and address."""
    start = None if since is None else _parse_time(since)
    entries = _with_log(config, lambda log: log.entries(since=start, actor=actor, limit=limit))
    if json:
        echo_json([{**asdict(item), "details": json_.loads(item.details)} for item in entries])
        return
    for entry in entries:
        echo(to_one_line(_line(entry)))
    if not entries:
        echo_error("the audit log has no matching entries")


@app.command()
def verify(
    head: Annotated[
        str | None,
        typer.Option(
            metavar="DIGEST",
            help="The last digest that you noted: shows whether entries were cut off.",
        ),
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Check that no entry was changed, removed or inserted, and print the last digest.

    Each entry holds a digest of itself and of the one before. Note the last digest elsewhere, and
    pass it as --head later: nothing else can show that entries were cut off at the end.
    """
    expected_head = head and head.strip().lower()
    if expected_head and not re.fullmatch("[0-9a-f]{64}", expected_head):
        raise UsageError("--head takes a whole digest, 64 hexadecimal digits")
    checked = _with_log(config, lambda log: log.verify(expected_head))
    if json:
        echo_json(asdict(checked))
    elif checked.problem is None:
        entries = "1 entry" if checked.entries == 1 else f"{checked.entries} entries"
        echo(f"{entries}, none changed; the last has the digest {checked.head}")
    if checked.problem is not None:
        echo_error(f"the audit log is not intact: {checked.problem}")
        raise typer.Exit(ExitCode.FAILED)


def _line(entry: AuditEntry) -> str:
    details = ", ".join(f"{name} {value}" for name, value in json_.loads(entry.details).items())
    actor = f"{entry.actor} ({entry.actor_name})" if entry.actor_name else entry.actor
    origin = f" from {entry.origin}" if entry.origin else ""
    subject = f" {entry.subject}" if entry.subject else ""
    suffix = f" ({details})" if details else ""
    time = format_local_time(entry.at)
    return f"{entry.number}  {time}  {actor}{origin}: {entry.action}{subject}{suffix}"


def _with_log(config: Path | None, work: Callable[[AuditLog], Awaitable[Result]]) -> Result:
    return run_with_store(config, lambda store: work(store.audit))


def _parse_time(text: str) -> str:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"--since {text!r} is not a time; write 2027-01-31, or 2027-01-31T12:00"
        ) from error
    return timestamp(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
