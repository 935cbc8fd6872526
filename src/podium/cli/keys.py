"""`podium keys`: create, list and revoke API keys of the server, and show their usage."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import typer

from podium.cli import options
from podium.cli.app import SubcommandGroup
from podium.cli.options import PoolOptions, check_exclusions, load_settings, names_to_exclude
from podium.cli.output import (
    echo,
    echo_error,
    echo_json,
    format_local_time,
    format_tokens,
    format_usd,
    pluralize,
    to_one_line,
)
from podium.cli.session import Result, run_with_store
from podium.config.workers import PROVIDERS
from podium.core.errors import UsageError
from podium.core.run import Tier
from podium.server.access.keys import KeyInfo, KeyManager, to_document
from podium.store import RunStore
from podium.store.audit import AuditAction, AuditDetails, local_event
from podium.store.keys import DEFAULT_SCOPES, NO_CAP, SCOPES, Allowance, Key, KeyUsage, Rules, Scope

PERIODS: Final = (
    ("per_request", "per request"),
    ("per_day", "per day"),
    ("per_month", "per month"),
    ("in_total", "in total"),
)

_DURATION: Final = re.compile(r"(\d{1,5})([hd])")

KeyName = Annotated[
    str, typer.Argument(metavar="KEY", help="A key's id, a unique prefix of it, or its name.")
]


def _usd(period: str) -> Any:
    return typer.Option(
        metavar="USD", min=0, callback=options.check_finite, help=f"The most it may spend {period}."
    )


def _tokens(period: str) -> Any:
    return typer.Option(metavar="N", min=0, help=f"The most tokens it may use {period}.")


app = typer.Typer(cls=SubcommandGroup, rich_markup_mode=None, add_completion=False)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the key.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help=f"A scope of the key: {', '.join(SCOPES)}; repeatable. Default: all but metrics "
            f"and admin.",
        ),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(metavar="mini|podium|ultra", help="A tier that it may use; repeatable."),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A worker that it may call by name; repeatable."),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A worker, provider or mcp:SERVER that never sees requests of this key; "
            "repeatable.",
        ),
    ] = None,
    no_training: Annotated[
        bool,
        typer.Option(
            "--no-training", help="Do not use its requests as training data, nor grade them."
        ),
    ] = False,
    usd_per_request: Annotated[float | None, _usd("per request")] = None,
    usd_per_day: Annotated[float | None, _usd("per day (UTC)")] = None,
    usd_per_month: Annotated[float | None, _usd("per month (UTC)")] = None,
    usd_in_total: Annotated[float | None, _usd("in total")] = None,
    tokens_per_request: Annotated[int | None, _tokens("per request")] = None,
    tokens_per_day: Annotated[int | None, _tokens("per day (UTC)")] = None,
    tokens_per_month: Annotated[int | None, _tokens("per month (UTC)")] = None,
    tokens_in_total: Annotated[int | None, _tokens("in total")] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The most requests per minute.")
    ] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The most tokens per minute.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="When it expires: 12h, 30d, or a day: 2027-01-31."),
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Create a key and print its token once; the server stores only a digest of it."""
    rules = Rules(
        scopes=frozenset(cast("list[Scope]", scope)) if scope else DEFAULT_SCOPES,
        tiers=frozenset(cast("list[Tier]", tier)) if tier else None,
        workers=frozenset(worker) if worker else None,
        exclude=_check_excluded(frozenset(exclude or ()), config),
        training=not no_training,
        per_request=Allowance(usd=usd_per_request, tokens=tokens_per_request),
        per_day=Allowance(usd=usd_per_day, tokens=tokens_per_day),
        per_month=Allowance(usd=usd_per_month, tokens=tokens_per_month),
        in_total=Allowance(usd=usd_in_total, tokens=tokens_in_total),
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
    )
    expiry = None if expires is None else _parse_expiry(expires)

    async def create_key(manager: KeyManager) -> KeyInfo:
        made = await manager.create(name, rules, expiry)
        (info,) = await manager.describe([made.key])
        return replace(info, token=made.token)

    made = _with_manager(config, create_key)
    if json:
        echo_json(to_document(made))
        return
    echo(made.token or "")
    echo_error(f"created {made.id} ({made.name!r}); the token is not shown again, save it")


@app.command("list")
def list_(json: options.Json = False, config: options.Config = None) -> None:
    """List the keys, newest first, with their rules; revoked ones are included."""
    keys = _with_manager(config, lambda manager: manager.describe_all())
    if json:
        echo_json([to_document(key) for key in keys])
        return
    for key in keys:
        created = format_local_time(key.created_at)
        line = f"{key.id}  {created}  {key.state:<7}  {key.name}: {_rules_line(key)}"
        echo(to_one_line(line))
    if not keys:
        echo_error("no keys; create one with: podium keys create NAME")


@app.command()
def revoke(
    key: KeyName,
    force: Annotated[
        bool, typer.Option("--force", help="Also the last active key with the scope admin.")
    ] = False,
    config: options.Config = None,
) -> None:
    """Revoke a key for good. Running servers reject it within seconds."""

    async def revoke_key(manager: KeyManager) -> Key:
        found = await manager.find(key)
        await manager.revoke(found, force=force)
        return found

    found = _with_manager(config, revoke_key)
    echo(f"revoked {found.id} ({to_one_line(found.name)})")


@app.command()
def training(
    key: KeyName,
    switch: Annotated[
        Literal["on", "off"],
        typer.Argument(metavar="on|off", help="Whether its runs may become training data."),
    ],
    config: options.Config = None,
) -> None:
    """Allow or forbid that requests of a key become training data.

    It applies to past runs too, from the next time that data is written or runs are graded; a
    revoked key can be changed as well.
    """

    async def set_training(manager: KeyManager) -> Key:
        found = await manager.find(key)
        rules = replace(found.rules, training=switch == "on")
        await manager.change(found, replace(found, rules=rules))
        return found

    found = _with_manager(config, set_training)
    state = "training allowed" if switch == "on" else "not for training"
    echo(f"{found.id} ({to_one_line(found.name)}): {state}")


@app.command()
def usage(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]", help="Only this key: its id, or its name.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="From this day on: 2027-01-31 (UTC).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY", help="Up to and including this day (UTC).")
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Show the usage and cost of each key, by day and model.

    Cost and tokens are as the providers reported them. Requests with unreported usage are counted
    separately; the sums beside them are then a lower bound.
    """
    days = {"since": _parse_day(since), "until": _parse_day(until)}

    async def read_usage(manager: KeyManager) -> tuple[dict[str, str], list[KeyUsage]]:
        key_id = None if key is None else (await manager.find(key)).id
        names = {item.id: item.name for item in await manager.store.keys()}
        return names, await manager.store.usage(key_id=key_id, **days)

    names, rows = _with_manager(config, read_usage)
    if json:
        echo_json([{"name": names[row.key_id], **asdict(row)} for row in rows])
        return
    for row in rows:
        line = f"{row.day}  {row.key_id}  {names[row.key_id]}  {row.model}: {_usage_line(row)}"
        echo(to_one_line(line))
    if not rows:
        echo_error("no usage; a server writes the usage of keys about a second later")


def _rules_line(rules: KeyInfo) -> str:
    parts = [" ".join(scope for scope in SCOPES if scope in rules.scopes)]
    if rules.tiers is not None:
        parts.append(f"tiers {' '.join(sorted(rules.tiers))}")
    if rules.workers is not None:
        parts.append(f"workers {' '.join(sorted(rules.workers))}")
    if rules.exclude:
        parts.append(f"without {' '.join(sorted(rules.exclude))}")
    if not rules.training:
        parts.append("not for training")
    for name, period in PERIODS:
        cap: Allowance = getattr(rules, name)
        if cap != NO_CAP:
            caps = [format_usd(cap.usd)] if cap.usd is not None else []
            caps += [format_tokens(cap.tokens)] if cap.tokens is not None else []
            parts.append(f"{' and '.join(caps)} {period}")
    if rules.requests_per_minute is not None:
        parts.append(f"{pluralize(rules.requests_per_minute, 'request')} per minute")
    if rules.tokens_per_minute is not None:
        parts.append(f"{format_tokens(rules.tokens_per_minute)} per minute")
    if rules.expires_at is not None:
        parts.append(f"until {format_local_time(rules.expires_at)}")
    return ", ".join(parts)


def _usage_line(row: KeyUsage) -> str:
    used = format_tokens(row.input_tokens + row.output_tokens)
    orchestration = row.orchestration_input_tokens + row.orchestration_output_tokens
    if orchestration:
        used += f" ({orchestration:,} of them orchestration)"
    if row.unknown_usage_count:
        used += f", unknown for {pluralize(row.unknown_usage_count, 'request')}"
    cost = format_usd(row.cost_usd)
    if row.unknown_cost_count:
        cost += f", unknown for {pluralize(row.unknown_cost_count, 'request')}"
    return f"{pluralize(row.requests, 'request')}, {used}, {cost}"


def _with_manager(config: Path | None, work: Callable[[KeyManager], Awaitable[Result]]) -> Result:
    """Work with the keys of the configured store; actions are those of this machine's user."""

    async def manage(store: RunStore) -> Result:
        async def record(action: AuditAction, key_id: str, details: AuditDetails) -> None:
            await store.audit.add(local_event(action, key_id, details))

        return await work(KeyManager(store.keys, record))

    return run_with_store(config, manage)


def _check_excluded(excluded: frozenset[str], config: Path | None) -> frozenset[str]:
    if excluded:
        settings = asyncio.run(load_settings(PoolOptions(config=config), os.environ))
        known = names_to_exclude(settings) | set(PROVIDERS)
        advice = "; name the server's configuration with --config FILE if it is another"
        check_exclusions(excluded, known, advice)
    return excluded


def _parse_expiry(text: str) -> str:
    now, duration = datetime.now(UTC), _DURATION.fullmatch(text)
    try:
        if duration is not None:
            hours = int(duration[1]) * (24 if duration[2] == "d" else 1)
            expiry = now + timedelta(hours=hours)
        else:
            expiry = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"--expires {text!r} is not a time; give 12h, 30d or 2027-01-31"
        ) from error
    if expiry <= now:
        raise UsageError(f"--expires {text!r} is in the past; give a future time")
    return expiry.isoformat(timespec="milliseconds")


def _parse_day(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise UsageError(f"{text!r} is not a day; write it as 2027-01-31") from error
