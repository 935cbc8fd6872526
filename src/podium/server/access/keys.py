"""API keys: their tokens, the sessions of browsers, and their management.

    pk_4f9a1c2b77d0_rJ2…                the key's id and 32 random bytes
    ps_4f9a1c2b77d0_1790000000_9f2c…    the key's id, the end of the session, and a signature

A token's digest is a fast keyed hash: 256 random bits cannot be guessed, so a slow hash such as
bcrypt would only cost time. A page must not keep a key where scripts can read it, so a browser
exchanges the key for a session cookie. Sessions are signed and stored nowhere, so that every
process of a server can check them. The signature covers the key's digest: a session ends with its
key. Signing out deletes the cookie; a copy of it works until it ends.

Every change of a key is recorded in the audit log before it is made.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError

from podium.config.problems import suggest
from podium.core.errors import Conflict, UsageError
from podium.core.run import timestamp
from podium.server.api_error import ApiError, invalid
from podium.store.audit import AuditAction, AuditDetails
from podium.store.keys import Allowance, Key, KeyCharges, KeyState, Period, Rules

if TYPE_CHECKING:
    from podium.store.sql.records import KeyStore


TOKEN_PREFIX: Final = "pk_"  # noqa: S105 - the beginning of every token, and no secret
KEY_ID_PREFIX: Final = "key_"
SESSION_PREFIX: Final = "ps_"
MAX_TOKEN: Final = 200
MAX_NAME: Final = 100

SESSION_SECONDS: Final = 12 * 3600
"""The duration of a session: a working day."""

_TOKEN: Final = re.compile(r"pk_([!-^`-~]+)_([!-~]+)")
_SESSION: Final = re.compile(r"ps_([!-^`-~]+)_([0-9]+)_([!-~]+)")

_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_DIGEST_KEY: Final = b"podium key, version 1"


class NewKey(NamedTuple):
    """A new key, and its token, which cannot be shown again."""

    token: str
    key: Key


class ParsedToken(NamedTuple):
    """The key id that a token names, and the token's digest."""

    key_id: str
    digest: str


class ParsedSession(NamedTuple):
    """The key id, end and signature of a session."""

    key_id: str
    ends: int
    signature: str


def make_key(
    name: str,
    rules: Rules,
    *,
    expires_at: str | None = None,
    clock: Callable[[], str] = timestamp,
) -> NewKey:
    if not name.strip() or len(name) > MAX_NAME:
        raise UsageError(
            f"invalid key name {name[: MAX_NAME + 1]!r}; expected 1 to {MAX_NAME} characters"
        )
    number = secrets.token_hex(_ID_BYTES)
    token = f"{TOKEN_PREFIX}{number}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    key = Key(
        id=f"{KEY_ID_PREFIX}{number}",
        name=name.strip(),
        digest=digest_of(token),
        created_at=clock(),
        rules=rules,
        expires_at=expires_at,
    )
    return NewKey(token, key)


def parse_token(token: str) -> ParsedToken | None:
    """Parse a token; None if it has another format. `matches` checks it."""
    found = _TOKEN.fullmatch(token) if len(token) <= MAX_TOKEN else None
    return ParsedToken(f"{KEY_ID_PREFIX}{found[1]}", digest_of(token)) if found else None


def matches(token: ParsedToken, key: Key) -> bool:
    return hmac.compare_digest(token.digest, key.digest)


def digest_of(token: str) -> str:
    return blake2b(token.encode(), digest_size=32, key=_DIGEST_KEY).hexdigest()


class Sessions:
    """Creates and checks sessions. Processes of one server share a `secret`; without one, sessions
    end with the process."""

    def __init__(self, secret: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self._secret = (secret or new_secret()).encode()
        self._clock = clock

    def create(self, key: Key) -> str:
        ends = int(self._clock()) + SESSION_SECONDS
        number = key.id.removeprefix(KEY_ID_PREFIX)
        return f"{SESSION_PREFIX}{number}_{ends}_{self._sign(key, ends)}"

    def is_valid(self, session: ParsedSession, key: Key) -> bool:
        """True if the session was created for the key and has not ended."""
        signed = hmac.compare_digest(session.signature, self._sign(key, session.ends))
        return signed and self._clock() < session.ends

    def _sign(self, key: Key, ends: int) -> str:
        signed = f"podium session, version 1\0{key.id}\0{key.digest}\0{ends}"
        return hmac.new(self._secret, signed.encode(), sha256).hexdigest()


def new_secret() -> str:
    return secrets.token_urlsafe(_SECRET_BYTES)


def parse_session(session: str) -> ParsedSession | None:
    """Parse a session; None if it has another format. `Sessions.is_valid` checks it."""
    found = _SESSION.fullmatch(session) if len(session) <= MAX_TOKEN else None
    return ParsedSession(f"{KEY_ID_PREFIX}{found[1]}", int(found[2]), found[3]) if found else None


RULES: Final = tuple(field.name for field in fields(Rules))

CAPS: Final[Mapping[Period, str]] = {"day": "per_day", "month": "per_month", "total": "in_total"}
"""The rule that caps each period."""

RecordAction = Callable[[AuditAction, str, AuditDetails], Awaitable[None]]
"""Records an action on a key, by its id, in the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDraft(Rules):
    """The fields of a key that its creator chooses."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    expires_at: AwareDatetime | None = None

    @property
    def rules(self) -> Rules:
        return Rules(**{name: getattr(self, name) for name in RULES})

    @property
    def expiry(self) -> str | None:
        """When the key expires, as it is stored."""
        return None if self.expires_at is None else timestamp(self.expires_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodUsage:
    """What is used and left of a period's cap. `left` is None where nothing is capped, `resets_at`
    where the period has no end."""

    used: Allowance
    left: Allowance
    resets_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInfo(Rules):
    """A key with its rules, its use and what is left of its caps. Only the response that creates
    the key has its `token`."""

    object: Literal["key"] = "key"
    id: str
    name: str
    state: KeyState
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    usage: dict[Period, PeriodUsage]
    token: str | None = None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def to_document(info: KeyInfo) -> dict[str, Any]:
    document: dict[str, Any] = _adapter(KeyInfo).dump_python(info, mode="json")
    return document


def draft_schema(*, is_change: bool = False) -> dict[str, Any]:
    """Return the JSON schema of a new key, or of a change to one."""
    schema = _adapter(KeyDraft).json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs")
    if is_change:
        schema.pop("required")
        for field in schema["properties"].values():
            field.pop("default", None)
    return schema


def parse_draft(document: Mapping[str, Any], before: Key | None = None) -> KeyDraft:
    """Read a new key, or a change to a key: caps that the document leaves out stay as they are.

    Raises `ApiError` invalid, which names the field.
    """
    merged = dict(document)
    if before is not None:
        rules = _adapter(Rules).dump_python(before.rules, mode="json")
        merged = {**rules, "name": before.name, "expires_at": before.expires_at, **document}
        for name in ("per_request", *CAPS.values()):
            if isinstance(given := merged[name], dict):
                merged[name] = rules[name] | given
            elif given is None:
                merged[name] = {}
    try:
        draft: KeyDraft = _adapter(KeyDraft).validate_json(json.dumps(merged), strict=True)
        is_over = draft.expiry is not None and draft.expiry <= timestamp()
    except ValidationError as error:
        raise _invalid_field(error) from None
    except OverflowError:
        raise invalid("expires_at", "expires_at: expected a time before the year 9999") from None
    if is_over and "expires_at" in document:
        raise invalid("expires_at", f"expires_at: {draft.expiry} is in the past")
    if not draft.name.strip():
        raise invalid("name", f"name: expected 1 to {MAX_NAME} characters")
    return draft


def _invalid_field(error: ValidationError) -> ApiError:
    first = error.errors(include_url=False)[0]
    field = ".".join(map(str, first["loc"]))
    if first["type"] == "unexpected_keyword_argument":
        known = [item.name for item in fields(KeyDraft)]
        last = str(first["loc"][-1])
        hint = suggest(last, known if len(first["loc"]) == 1 else ("usd", "tokens"))
        return invalid(field, f"{field}: unexpected field; {hint}")
    return invalid(field, f"{field}: {first['msg']}")


class KeyManager:
    """Creates, changes, revokes and describes the keys of a store."""

    def __init__(self, store: KeyStore, record: RecordAction) -> None:
        self.store = store
        self._record = record

    async def create(self, name: str, rules: Rules, expires_at: str | None = None) -> NewKey:
        """Create a key; raises `Conflict` if an active key has the name."""
        made = make_key(name, rules, expires_at=expires_at)
        await self._check_name(made.key)
        details = {"name": made.key.name, "rules": _differences(Rules(), rules)}
        await self._record("key created", made.key.id, details)
        await self.store.add(made.key)
        return made

    async def change(self, before: Key, after: Key, *, force: bool = False) -> None:
        if after.name != before.name:
            await self._check_name(after)
        if not _is_admin(after) or after.expires_at not in (None, before.expires_at):
            await self._check_last_admin(before, force=force)
        changed = _differences(before.rules, after.rules)
        details: dict[str, str] = {"name": before.name, "changed": changed}
        if after.name != before.name:
            details["new_name"] = after.name
        if after.expires_at != before.expires_at:
            details["expires_at"] = after.expires_at or "never"
        await self._record("key changed", before.id, details)
        await self.store.change(after)

    async def revoke(self, key: Key, *, force: bool = False) -> None:
        """Revoke a key for good; raises `Conflict` for the last administrator without `force`."""
        await self._check_last_admin(key, force=force)
        await self._record("key revoked", key.id, {"name": key.name})
        await self.store.revoke(key.id)

    async def find(self, wanted: str) -> Key:
        """Find one key by its id, its name, or a unique prefix of its id."""
        keys = await self.store.keys()
        starts = (wanted, f"{KEY_ID_PREFIX}{wanted}")
        named = [key for key in keys if key.name == wanted]
        for found in (
            [key for key in keys if key.id in starts],
            [key for key in named if key.state == "active"] or named,
            [key for key in keys if wanted and key.id.startswith(starts)],
        ):
            if len(found) == 1:
                return found[0]
            if found:
                ids = ", ".join(key.id for key in found)
                raise UsageError(f"{wanted!r} matches several keys: {ids}; give the whole id")
        raise UsageError(f"key not found: {wanted!r}; list the keys with: podium keys list")

    async def describe_all(self) -> list[KeyInfo]:
        return await self.describe(await self.store.keys())

    async def describe(self, keys: Sequence[Key]) -> list[KeyInfo]:
        """Return the keys with their usage and what is left of their caps."""
        now = datetime.now(UTC)
        quotas, day = self.store.quotas, f"{now:%Y-%m-%d}"
        if len(keys) == 1:
            charges = {keys[0].id: await quotas.charges(keys[0].id, day)}
        else:
            charges = await quotas.all_charges(day)
        unused = KeyCharges()
        return [_describe(key, charges.get(key.id, unused), now) for key in keys]

    async def _check_name(self, key: Key) -> None:
        others = [other for other in await self.store.keys() if other.id != key.id]
        if any(other.name == key.name and other.state == "active" for other in others):
            raise Conflict(
                f"there is already a key named {key.name!r}; choose another name, or revoke that "
                f"one"
            )

    async def _check_last_admin(self, key: Key, *, force: bool) -> None:
        if force or not _is_admin(key):
            return
        if not any(other.id != key.id and _is_admin(other) for other in await self.store.keys()):
            raise Conflict(
                f"key {key.name!r} is the last active key with the scope admin; create another "
                f"first, or confirm with ?force=true (on the command line: --force)"
            )


def _is_admin(key: Key) -> bool:
    return key.state == "active" and "admin" in key.rules.scopes


def _differences(before: Rules, after: Rules) -> str:
    old, new = (_adapter(Rules).dump_python(rules, mode="json") for rules in (before, after))
    changed = [f"{name}={json.dumps(new[name])}" for name in RULES if old[name] != new[name]]
    return ", ".join(changed) or "none"


def _describe(key: Key, charges: KeyCharges, now: datetime) -> KeyInfo:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    next_month = (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    resets = {"day": midnight + timedelta(days=1), "month": next_month}
    usage: dict[Period, PeriodUsage] = {}
    for period, rule in CAPS.items():
        used, cap = getattr(charges, period), getattr(key.rules, rule)
        left = Allowance(
            usd=None if cap.usd is None else max(0.0, cap.usd - used.usd),
            tokens=None if cap.tokens is None else max(0, cap.tokens - used.tokens),
        )
        ends = resets.get(period)
        usage[period] = PeriodUsage(
            used=Allowance(usd=used.usd, tokens=used.tokens),
            left=left,
            resets_at=None if ends is None else timestamp(ends),
        )
    used_at = charges.used_at
    return KeyInfo(
        **{name: getattr(key.rules, name) for name in RULES},
        id=key.id,
        name=key.name,
        state=key.state,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
        last_used_at=None if used_at is None else timestamp(datetime.fromtimestamp(used_at, UTC)),
        usage=usage,
    )


def apply_draft(key: Key, draft: KeyDraft) -> Key:
    return replace(key, name=draft.name.strip(), rules=draft.rules, expires_at=draft.expiry)
