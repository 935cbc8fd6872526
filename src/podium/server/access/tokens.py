"""Tokens: how they are made, and how one is known again from the digest that is kept of it.

    pk_4f9a1c2b77d0_rJ2…      pk, the key's id, and the secret: 32 random bytes

The id in the token finds the key without a search, and tells a person which key has leaked.

The digest is a fast hash. Slow ones (bcrypt, argon2) make guessing dear where people choose the
secret; 256 random bits cannot be guessed at any speed, and every request would pay. The hash is
keyed by a public constant, so that a digest made here is of no use for a token of anybody else's
system, and the other way round. It is compared in constant time.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from podium.core.errors import UsageError
from podium.core.run import timestamp
from podium.store.keys import Key, Rules

TOKEN_PREFIX: Final = "pk_"  # noqa: S105 - the beginning of every token, and no secret
ID_PREFIX: Final = "key_"
LONGEST_TOKEN: Final = 200
LONGEST_NAME: Final = 100

_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
_DIGEST_KEY: Final = b"podium key, version 1"


class NewKey(NamedTuple):
    """A new key, and the token that nobody can be shown again."""

    token: str
    key: Key


class ParsedToken(NamedTuple):
    """What somebody showed at the door: whose key it claims to be, and the token's digest."""

    key_id: str
    digest: str


def make_key(
    name: str,
    rules: Rules,
    *,
    expires_at: str | None = None,
    clock: Callable[[], str] = timestamp,
) -> NewKey:
    """Make a key. It is not in any store yet."""
    if not name.strip() or len(name) > LONGEST_NAME:
        raise UsageError(
            f"the name of a key is a few words for people to know it by, at most {LONGEST_NAME} "
            f"characters, and not {name[: LONGEST_NAME + 1]!r}"
        )
    number = secrets.token_hex(_ID_BYTES)
    token = f"{TOKEN_PREFIX}{number}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    key = Key(
        id=f"{ID_PREFIX}{number}",
        name=name.strip(),
        digest=digest_of(token),
        created_at=clock(),
        rules=rules,
        expires_at=expires_at,
    )
    return NewKey(token, key)


def parse_token(token: str) -> ParsedToken | None:
    """What a token says, or None where it is none of ours; whether it is right is `matches`."""
    if len(token) > LONGEST_TOKEN or not token.isascii():
        return None
    prefix, _, rest = token.partition("_")
    number, separator, secret = rest.partition("_")
    if f"{prefix}_" != TOKEN_PREFIX or not (number and separator and secret):
        return None
    return ParsedToken(f"{ID_PREFIX}{number}", digest_of(token))


def matches(shown: ParsedToken, key: Key) -> bool:
    """Whether that is the token of the key."""
    return hmac.compare_digest(shown.digest, key.digest)


def digest_of(token: str) -> str:
    """What is kept of a token."""
    return blake2b(token.encode(), digest_size=32, key=_DIGEST_KEY).hexdigest()
