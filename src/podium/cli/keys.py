"""`podium keys`: who may use the server, for what, and what they have used."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import typer

from podium.cli import options
from podium.cli.app import NounGroup
from podium.cli.formatting import counted, local_time, money, one_line, tokens
from podium.cli.output import complain, say, say_json
from podium.cli.session import Result, with_store
from podium.cli.settings import Choice, excludable_in, settings_for
from podium.config.problems import suggest
from podium.config.workers import PROVIDERS
from podium.core.errors import UsageError
from podium.core.run import Tier, timestamp
from podium.server.access.tokens import ID_PREFIX, make_key
from podium.store import KeyStore, RunStore, audit_in, keys_in
from podium.store.audit import AuditDetails, local_event
from podium.store.keys import NO_CAP, SCOPES, USUAL_SCOPES, Allowance, Key, KeyUsage, Rules, Scope

State = Literal["active", "revoked", "expired"]

PERIODS: Final = (
    ("per_request", "a request"),
    ("per_day", "a day"),
    ("per_month", "a month"),
    ("in_total", "in all"),
)
"""The rules that cap money and tokens, and what they say."""


def state_of(key: Key) -> State:
    """Whether the key can still be used."""
    if key.revoked_at is not None:
        return "revoked"
    # Both are in UTC and written alike, so the later one is the greater text.
    return "expired" if key.expires_at is not None and key.expires_at <= timestamp() else "active"


def key_document(key: Key) -> dict[str, Any]:
    """A key as JSON; the digest of its token stays where it is."""
    rules = key.rules
    return {
        "id": key.id,
        "name": key.name,
        "state": state_of(key),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "scopes": [scope for scope in SCOPES if scope in rules.scopes],
        "tiers": None if rules.tiers is None else sorted(rules.tiers),
        "workers": None if rules.workers is None else sorted(rules.workers),
        "exclude": sorted(rules.exclude),
        "training": rules.training,
        **{name: asdict(getattr(rules, name)) for name, _ in PERIODS},
        "requests_per_minute": rules.requests_per_minute,
        "tokens_per_minute": rules.tokens_per_minute,
    }


def rules_line(key: Key) -> str:
    """What the key may do, in a line."""
    rules = key.rules
    parts = [" ".join(scope for scope in SCOPES if scope in rules.scopes)]
    if rules.tiers is not None:
        parts.append(f"tiers {' '.join(sorted(rules.tiers))}")
    if rules.workers is not None:
        parts.append(f"workers {' '.join(sorted(rules.workers))}")
    if rules.exclude:
        parts.append(f"without {' '.join(sorted(rules.exclude))}")
    if not rules.training:
        parts.append("not for training")
    for name, words in PERIODS:
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


def usage_line(row: KeyUsage) -> str:
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


def _usd(what: str) -> Any:
    return typer.Option(
        metavar="USD", min=0, callback=options.finite, help=f"The most money {what}."
    )


def _count(what: str) -> Any:
    return typer.Option(metavar="N", min=0, help=f"The most tokens {what}.")


Name = Annotated[str, typer.Argument(metavar="NAME", help="Who or what the key is for.")]
Scopes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SCOPE",
        help=f"What it may be used for: {', '.join(SCOPES)}; may be repeated. Without any, "
        f"all but metrics and admin.",
    ),
]
Tiers = Annotated[
    list[str] | None,
    typer.Option(metavar="mini|podium|ultra", help="A tier that it may ask for; may be repeated."),
]
Workers = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A worker that it may call by its name; may be repeated."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="A worker, provider or mcp:SERVER that must see nothing that is asked with it, in no "
        "step of any run; may be repeated.",
    ),
]
NoTraining = Annotated[
    bool,
    typer.Option(
        "--no-training", help="Nothing that is asked with it becomes training data, nor is graded."
    ),
]
UsdPerRequest = Annotated[float | None, _usd("one request may cost")]
UsdPerDay = Annotated[float | None, _usd("it may spend in a day (UTC)")]
UsdPerMonth = Annotated[float | None, _usd("it may spend in a month (UTC)")]
UsdInTotal = Annotated[float | None, _usd("it may ever spend")]
TokensPerRequest = Annotated[int | None, _count("one request may use")]
TokensPerDay = Annotated[int | None, _count("it may use in a day (UTC)")]
TokensPerMonth = Annotated[int | None, _count("it may use in a month (UTC)")]
TokensInTotal = Annotated[int | None, _count("it may ever use")]
RequestsPerMinute = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The most requests in a minute.")
]
TokensPerMinute = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The most tokens in a minute.")
]
Expires = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="When it ends: 12h, 30d, or a day such as 2027-01-31."),
]


app = typer.Typer(cls=NounGroup, rich_markup_mode=None, add_completion=False)

_SPAN: Final = re.compile(r"(\d{1,5})([hd])")

Named = Annotated[
    str, typer.Argument(metavar="KEY", help="A key's id, the beginning of it, or its name.")
]


@app.command()
def create(
    name: Name,
    scope: Scopes = None,
    tier: Tiers = None,
    worker: Workers = None,
    exclude: Exclude = None,
    no_training: NoTraining = False,
    usd_per_request: UsdPerRequest = None,
    usd_per_day: UsdPerDay = None,
    usd_per_month: UsdPerMonth = None,
    usd_in_total: UsdInTotal = None,
    tokens_per_request: TokensPerRequest = None,
    tokens_per_day: TokensPerDay = None,
    tokens_per_month: TokensPerMonth = None,
    tokens_in_total: TokensInTotal = None,
    requests_per_minute: RequestsPerMinute = None,
    tokens_per_minute: TokensPerMinute = None,
    expires: Expires = None,
    json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Make a key, and show its token this once: only a digest of it is kept."""
    rules = Rules(
        scopes=frozenset(cast("list[Scope]", scope)) if scope else USUAL_SCOPES,
        tiers=frozenset(cast("list[Tier]", tier)) if tier else None,
        workers=frozenset(worker) if worker else None,
        exclude=_known(frozenset(exclude or ()), config),
        training=not no_training,
        per_request=Allowance(usd=usd_per_request, tokens=tokens_per_request),
        per_day=Allowance(usd=usd_per_day, tokens=tokens_per_day),
        per_month=Allowance(usd=usd_per_month, tokens=tokens_per_month),
        in_total=Allowance(usd=usd_in_total, tokens=tokens_in_total),
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
    )
    made = make_key(name, rules, expires_at=None if expires is None else _moment(expires))

    with_store(config, lambda store: _add(made.key, store))
    if json:
        say_json({"token": made.token, **key_document(made.key)})
        return
    say(made.token)
    complain(f"{made.key.id} for {made.key.name!r}; its token is not shown again, so keep it now")


@app.command("list")
def list_(json: options.JsonList = False, config: options.Config = None) -> None:
    """List the keys, the newest first, with what each may do; revoked ones are among them."""
    found = _with_keys(config, lambda keys: keys.keys(), to_read=True)
    if json:
        say_json([key_document(key) for key in found])
        return
    for key in found:
        when = local_time(key.created_at)
        say(one_line(f"{key.id}  {when}  {state_of(key):<7}  {key.name}: {rules_line(key)}"))
    if not found:
        complain("no keys; make one with: podium keys create NAME")


@app.command()
def revoke(key: Named, config: options.Config = None) -> None:
    """Revoke a key for good. Servers that are running stop taking it within seconds."""

    async def revoked(store: RunStore) -> Key:
        keys = keys_in(store)
        found = _meant(key, await keys.keys())
        details = {"name": found.name}
        await audit_in(store).add(local_event("key revoked", found.id, details))
        await keys.revoke(found.id)
        return found

    found = with_store(config, revoked)
    say(f"revoked {found.id} ({one_line(found.name)})")


@app.command()
def training(
    key: Named,
    switch: Annotated[
        Literal["on", "off"],
        typer.Argument(metavar="on|off", help="Whether its runs may be learned from."),
    ],
    config: options.Config = None,
) -> None:
    """Let what is asked with a key become training data, or keep it out.

    It holds from the next time that data is made or runs are graded, and for runs of the past, too;
    a revoked key can be kept out as well.
    """

    async def switched(store: RunStore) -> Key:
        keys = keys_in(store)
        found = _meant(key, await keys.keys())
        details: AuditDetails = {"name": found.name, "training": switch == "on"}
        await audit_in(store).add(local_event("key training changed", found.id, details))
        await keys.allow_training(found.id, allowed=switch == "on")
        return found

    found = with_store(config, switched)
    told = "may be learned from" if switch == "on" else "not for training"
    say(f"{found.id} ({one_line(found.name)}): {told}")


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
        say(
            one_line(
                f"{row.day}  {row.key_id}  {names[row.key_id]}  {row.model}: {usage_line(row)}"
            )
        )
    if not rows:
        complain("nothing was used; what is used with keys is written about a second later")


async def _add(key: Key, store: RunStore) -> None:
    """Two keys of one name could not be told apart where a name is enough."""
    keys = keys_in(store)
    if any(other.name == key.name and state_of(other) == "active" for other in await keys.keys()):
        raise UsageError(
            f"there is a key named {key.name!r} already; choose another name, or revoke that one "
            f"first"
        )
    details = {"name": key.name, "rules": rules_line(key)}
    await audit_in(store).add(local_event("key created", key.id, details))
    await keys.add(key)


def _with_keys(
    config: Path | None, work: Callable[[KeyStore], Awaitable[Result]], *, to_read: bool = False
) -> Result:
    return with_store(config, lambda store: work(keys_in(store)), to_read=to_read)


def _known(excluded: frozenset[str], config: Path | None) -> frozenset[str]:
    """A misspelt exclusion would let a worker see what was to be kept from it."""
    if not excluded:
        return excluded
    settings = asyncio.run(settings_for(Choice(config=config), os.environ))
    known = excludable_in(settings) | set(PROVIDERS)
    for name in sorted(excluded - known):
        raise UsageError(
            f"--exclude {name!r} is neither a provider, nor a worker of {settings.source}, nor "
            f"mcp: and a server of tools; {suggest(name, known)}; name the server's configuration "
            f"with --config FILE where it is another"
        )
    return excluded


def _meant(wanted: str, keys: Sequence[Key]) -> Key:
    """The one key that is meant: by its id, by its name, or by the beginning of its id."""
    starts = (wanted, f"{ID_PREFIX}{wanted}")
    named = [key for key in keys if key.name == wanted]
    for found in (
        [key for key in keys if key.id in starts],
        [key for key in named if state_of(key) == "active"] or named,
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
