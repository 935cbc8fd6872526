"""`podium keys`: who may use the server, for what, and what they have used."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.kept import Result, with_store
from podium.cli.output import complain, say, say_json
from podium.cli.settings import Choice, settings_for
from podium.cli.text import counted, local_time, money, one_line, tokens
from podium.config.problems import nearest
from podium.config.resolve import PROVIDERS
from podium.errors import UsageError
from podium.run import Tier, timestamp
from podium.server.access.keys import ID_PREFIX, make_key
from podium.store import KeyStore, keys_in
from podium.store.keys import NO_CAP, SCOPES, USUAL_SCOPES, Allowance, Key, KeyUsage, Rules, Scope

app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

_PERIODS: Final = (
    ("per_request", "a request"),
    ("per_day", "a day"),
    ("per_month", "a month"),
    ("in_total", "in all"),
)
_SPAN: Final = re.compile(r"(\d{1,5})([hd])")


def _usd(what: str) -> Any:
    return typer.Option(
        metavar="USD", min=0, callback=options.finite, help=f"The most money {what}."
    )


def _count(what: str) -> Any:
    return typer.Option(metavar="N", min=0, help=f"The most tokens {what}.")


Named = Annotated[
    str, typer.Argument(metavar="KEY", help="A key's id, the beginning of it, or its name.")
]


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who or what the key is for.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help=f"What it may be used for: {', '.join(SCOPES)}; may be repeated. Without any, "
            f"all but admin.",
        ),
    ] = None,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="mini|podium|ultra", help="A tier that it may ask for; may be repeated."
        ),
    ] = None,
    worker: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A worker that it may call by its name; may be repeated."
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A worker or provider that must see nothing that is asked with it, in no step "
            "of any run; may be repeated.",
        ),
    ] = None,
    usd_per_request: Annotated[float | None, _usd("one request may cost")] = None,
    usd_per_day: Annotated[float | None, _usd("it may spend in a day (UTC)")] = None,
    usd_per_month: Annotated[float | None, _usd("it may spend in a month (UTC)")] = None,
    usd_in_total: Annotated[float | None, _usd("it may ever spend")] = None,
    tokens_per_request: Annotated[int | None, _count("one request may use")] = None,
    tokens_per_day: Annotated[int | None, _count("it may use in a day (UTC)")] = None,
    tokens_per_month: Annotated[int | None, _count("it may use in a month (UTC)")] = None,
    tokens_in_total: Annotated[int | None, _count("it may ever use")] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The most requests in a minute.")
    ] = None,
    tokens_per_minute: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The most tokens in a minute.")
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="When it ends: 12h, 30d, or a day such as 2027-01-31."),
    ] = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Make a key, and show its token this once: only a digest of it is kept."""
    rules = Rules(
        scopes=frozenset(cast("list[Scope]", scope)) if scope else USUAL_SCOPES,
        tiers=frozenset(cast("list[Tier]", tier)) if tier else None,
        workers=frozenset(worker) if worker else None,
        exclude=_known(frozenset(exclude or ()), config),
        per_request=Allowance(usd=usd_per_request, tokens=tokens_per_request),
        per_day=Allowance(usd=usd_per_day, tokens=tokens_per_day),
        per_month=Allowance(usd=usd_per_month, tokens=tokens_per_month),
        in_total=Allowance(usd=usd_in_total, tokens=tokens_in_total),
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
    )
    made = make_key(name, rules, expires_at=None if expires is None else _moment(expires))

    async def add(keys: KeyStore) -> None:
        if any(key.name == made.key.name and _state(key) == "active" for key in await keys.keys()):
            raise UsageError(
                f"there is a key named {made.key.name!r} already; choose another name, or "
                f"revoke that one first"
            )
        await keys.add(made.key)

    _with_keys(config, add)
    if json:
        say_json({"token": made.token, **_document(made.key)})
        return
    say(made.token)
    complain(f"{made.key.id} for {made.key.name!r}; its token is not shown again, so keep it now")


@app.command("list")
def list_(json: options.JsonList = False, config: options.Config = None) -> None:
    """List the keys, the newest first, with what each may do; revoked ones are among them."""
    found = _with_keys(config, lambda keys: keys.keys(), to_read=True)
    if json:
        say_json([_document(key) for key in found])
        return
    for key in found:
        when = local_time(key.created_at)
        say(one_line(f"{key.id}  {when}  {_state(key):<7}  {key.name}: {_rules(key)}"))
    if not found:
        complain("no keys; make one with: podium keys create NAME")


@app.command()
def revoke(key: Named, config: options.Config = None) -> None:
    """Revoke a key for good. Servers that are running stop taking it within seconds."""

    async def revoked(keys: KeyStore) -> Key:
        found = _meant(key, await keys.keys())
        await keys.revoke(found.id)
        return found

    found = _with_keys(config, revoked)
    say(f"revoked {found.id} ({one_line(found.name)})")


@app.command()
def usage(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]", help="Only this key: its id, or its name.", show_default=False
        ),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="From this day on, such as 2027-01-31 (UTC).")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="DAY", help="Up to this day, itself included (UTC).")
    ] = None,
    json: options.JsonList = False,
    config: options.Config = None,
) -> None:
    """Show what was used with each key, by day and model, with its cost.

    Cost and tokens are what providers said. Requests of which they did not say are counted
    apart, and the sums beside them are then only the least it can have been.
    """
    days = {"since": _day(since), "until": _day(until)}

    async def read(keys: KeyStore) -> tuple[dict[str, str], list[KeyUsage]]:
        known = await keys.keys()
        key_id = None if key is None else _meant(key, known).id
        return {each.id: each.name for each in known}, await keys.usage(key_id=key_id, **days)

    names, rows = _with_keys(config, read, to_read=True)
    if json:
        say_json([{"name": names[row.key_id], **asdict(row)} for row in rows])
        return
    for row in rows:
        say(one_line(f"{row.day}  {row.key_id}  {names[row.key_id]}  {row.model}: {_used(row)}"))
    if not rows:
        complain("nothing was used; what is used with keys is written about a second later")


def _with_keys(
    config: Path | None, work: Callable[[KeyStore], Awaitable[Result]], *, to_read: bool = False
) -> Result:
    return with_store(config, lambda store: work(keys_in(store)), to_read=to_read)


def _known(excluded: frozenset[str], config: Path | None) -> frozenset[str]:
    """A misspelt exclusion would let a worker see what was to be kept from it."""
    if not excluded:
        return excluded
    settings = asyncio.run(settings_for(Choice(config=config), os.environ))
    planner = settings.conductor.worker
    profiles = [*settings.pool, *([planner.profile] if planner is not None else [])]
    known = {name for profile in profiles for name in (profile.name, profile.provider)}
    for name in sorted(excluded - known - set(PROVIDERS)):
        raise UsageError(
            f"--exclude {name!r} is neither a provider nor a worker of {settings.source}; "
            f"{nearest(name, {*known, *PROVIDERS} - {''})}; name the server's configuration with "
            f"--config FILE where it is another"
        )
    return excluded


def _meant(wanted: str, keys: Sequence[Key]) -> Key:
    """The one key that is meant: by its id, by its name, or by the beginning of its id."""
    starts = (wanted, f"{ID_PREFIX}{wanted}")
    named = [key for key in keys if key.name == wanted]
    for found in (
        [key for key in keys if key.id in starts],
        [key for key in named if _state(key) == "active"] or named,
        [key for key in keys if wanted and key.id.startswith(starts)],
    ):
        if len(found) == 1:
            return found[0]
        if found:
            shown = ", ".join(key.id for key in found)
            raise UsageError(f"{wanted!r} means several keys: {shown}; give the whole id of one")
    raise UsageError(f"there is no key {wanted!r}; see which there are with: podium keys list")


def _moment(text: str) -> str:
    """A moment to come, as it is kept."""
    now, span = datetime.now(UTC), _SPAN.fullmatch(text)
    try:
        if span is not None:
            hours = int(span[1]) * (24 if span[2] == "d" else 1)
            moment = now + timedelta(hours=hours)
        else:
            moment = datetime.combine(date.fromisoformat(text), datetime.min.time(), UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--expires {text!r} is no time; give 12h, 30d or 2027-01-31") from error
    if moment <= now:
        raise UsageError(f"--expires {text!r} is over already; give a time to come")
    return moment.isoformat(timespec="milliseconds")


def _day(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise UsageError(f"{text!r} is no day; write it as 2027-01-31") from error


def _state(key: Key) -> str:
    if key.revoked_at is not None:
        return "revoked"
    # Both are in UTC and written alike, so the later one is the greater text.
    return "expired" if key.expires_at is not None and key.expires_at <= timestamp() else "active"


def _document(key: Key) -> dict[str, Any]:
    """A key as JSON; the digest of its token stays where it is."""
    rules = key.rules
    return {
        "id": key.id,
        "name": key.name,
        "state": _state(key),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "scopes": [scope for scope in SCOPES if scope in rules.scopes],
        "tiers": None if rules.tiers is None else sorted(rules.tiers),
        "workers": None if rules.workers is None else sorted(rules.workers),
        "exclude": sorted(rules.exclude),
        **{name: asdict(getattr(rules, name)) for name, _ in _PERIODS},
        "requests_per_minute": rules.requests_per_minute,
        "tokens_per_minute": rules.tokens_per_minute,
    }


def _rules(key: Key) -> str:
    """What the key may do, in a line."""
    rules = key.rules
    parts = [" ".join(scope for scope in SCOPES if scope in rules.scopes)]
    if rules.tiers is not None:
        parts.append(f"tiers {' '.join(sorted(rules.tiers))}")
    if rules.workers is not None:
        parts.append(f"workers {' '.join(sorted(rules.workers))}")
    if rules.exclude:
        parts.append(f"without {' '.join(sorted(rules.exclude))}")
    for name, words in _PERIODS:
        cap: Allowance = getattr(rules, name)
        if cap != NO_CAP:
            caps = [money(cap.usd)] if cap.usd is not None else []
            caps += [tokens(cap.tokens)] if cap.tokens is not None else []
            parts.append(f"{' and '.join(caps)} {words}")
    if rules.requests_per_minute is not None:
        parts.append(f"{counted(rules.requests_per_minute, 'request')} a minute")
    if rules.tokens_per_minute is not None:
        parts.append(f"{tokens(rules.tokens_per_minute)} a minute")
    if key.expires_at is not None:
        parts.append(f"until {local_time(key.expires_at)}")
    return ", ".join(parts)


def _used(row: KeyUsage) -> str:
    """What was used, in a line."""
    used = tokens(row.input_tokens + row.output_tokens)
    conducting = row.orchestration_input_tokens + row.orchestration_output_tokens
    if conducting:
        used += f" ({conducting:,} of them orchestration)"
    if row.unknown_tokens:
        used += f" and those of {counted(row.unknown_tokens, 'request')} unknown"
    cost = money(row.cost_usd)
    if row.unknown_cost:
        cost += f" and the cost of {counted(row.unknown_cost, 'request')} unknown"
    return f"{counted(row.requests, 'request')}, {used}, {cost}"
