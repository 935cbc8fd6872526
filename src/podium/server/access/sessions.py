"""Sessions: what a browser holds in the place of a key, for some hours.

    ps_4f9a1c2b77d0_1790000000_9f2c…    ps, the key's number, when it ends, and a signature

A page must not keep a key where its scripts can read it, so the key is exchanged once for a
session, which travels in a cookie. A session is signed and held nowhere: every process of a server
knows a good one by itself, and nothing grows with the number of visitors. The signature covers the
key's digest, and the key is looked up with each request, so a session ends with its key, however
that ends. The secret to sign with is not in the store, so whoever reads the store can make none.

Signing out makes the browser forget the session. A copy of it would work until it ends by itself.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final, NamedTuple

from podium.server.access.keys import ID_PREFIX, LONGEST_TOKEN
from podium.store.keys import Key

SESSION_PREFIX: Final = "ps_"
SESSION_SECONDS: Final = 12 * 3600
"""How long somebody stays signed in: a working day."""

_SECRET_BYTES: Final = 32


class Claim(NamedTuple):
    """What a session claims: whose it is, and until when."""

    key_id: str
    ends: int
    signature: str


class Sessions:
    """Makes sessions and knows them again. Processes that answer at one address share a `secret`;
    without one, a new one is made, and nobody stays signed in beyond this process."""

    def __init__(self, secret: str = "", *, clock: Callable[[], float] = time.time) -> None:
        self._secret = (secret or new_secret()).encode()
        self._clock = clock

    def begin(self, key: Key) -> str:
        """A session for whoever has shown that key."""
        ends = int(self._clock()) + SESSION_SECONDS
        number = key.id.removeprefix(ID_PREFIX)
        return f"{SESSION_PREFIX}{number}_{ends}_{self._signature(key, ends)}"

    def is_good(self, claim: Claim, key: Key) -> bool:
        """Whether the session is one that was begun here for that key, and still lasts."""
        signed = hmac.compare_digest(claim.signature, self._signature(key, claim.ends))
        return signed and self._clock() < claim.ends

    def _signature(self, key: Key, ends: int) -> str:
        signed = f"podium session, version 1\0{key.id}\0{key.digest}\0{ends}"
        return hmac.new(self._secret, signed.encode(), sha256).hexdigest()


def new_secret() -> str:
    """Something to sign with that nobody can guess."""
    return secrets.token_urlsafe(_SECRET_BYTES)


def read_session(shown: str) -> Claim | None:
    """What a session claims, or None where it is none; whether it is true is `Sessions.is_good`."""
    if not shown.startswith(SESSION_PREFIX) or len(shown) > LONGEST_TOKEN or not shown.isascii():
        return None
    number, _, rest = shown.removeprefix(SESSION_PREFIX).partition("_")
    ends, _, signature = rest.partition("_")
    if not number or not ends.isdigit() or not signature:
        return None
    return Claim(f"{ID_PREFIX}{number}", int(ends), signature)
