"""Tokens of API keys, and sessions of browsers.

    pk_4f9a1c2b77d0_rJ2…                the key's id and 32 random bytes
    ps_4f9a1c2b77d0_1790000000_9f2c…    the key's id, the end of the session, and a signature

A token's digest is a fast keyed hash, compared in constant time: 256 random bits cannot be guessed,
so a slow hash such as bcrypt would only cost time. The public hash key keeps digests useless for
other systems.

A page must not keep a key where scripts can read it, so a browser exchanges the key once for a
session cookie. Sessions are signed and stored nowhere, so that every process of a server can check
them. The signature covers the key's digest, and the key is looked up with each request: a session
ends with its key. The signing secret is not in the store. Signing out deletes the cookie; a copy of
it works until it ends.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Callable
from hashlib import blake2b, sha256
from typing import Final, NamedTuple

from podium.core.errors import UsageError
from podium.core.run import timestamp
from podium.store.keys import Key, Rules

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
    """Create a key. It is not stored yet."""
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
    """True if it is the token of the key."""
    return hmac.compare_digest(token.digest, key.digest)


def digest_of(token: str) -> str:
    """Return the digest that is stored of a token."""
    return blake2b(token.encode(), digest_size=32, key=_DIGEST_KEY).hexdigest()


class Sessions:
    """Creates and checks sessions. Processes of one server share a `secret`; without one, sessions
    end with the process."""

    def __init__(self, secret: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self._secret = (secret or new_secret()).encode()
        self._clock = clock

    def create(self, key: Key) -> str:
        """Create a session for the key."""
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
    """Create a secret to sign sessions with."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def parse_session(session: str) -> ParsedSession | None:
    """Parse a session; None if it has another format. `Sessions.is_valid` checks it."""
    found = _SESSION.fullmatch(session) if len(session) <= MAX_TOKEN else None
    return ParsedSession(f"{KEY_ID_PREFIX}{found[1]}", int(found[2]), found[3]) if found else None
