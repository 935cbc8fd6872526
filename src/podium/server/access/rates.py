"""How fast a key may be used by all processes that share its store: its buckets are there.

A request takes from them as it begins, in one transaction by the database's own clock; what it has
used more or less than was guessed is put right soon after it has ended. A key without a limit
never asks.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from podium.errors import StoreError
from podium.store.keys import KeyStore, Rules

log = logging.getLogger("podium")

SOON: Final = 0.1
"""Seconds until what was guessed wrongly is put right, with all of it that there is by then."""


class SharedRates:
    """The limits of one key. It belongs to one event loop."""

    def __init__(self, keys: KeyStore, key_id: str, rules: Rules) -> None:
        self._keys = keys
        self._key_id = key_id
        self._rules = rules
        self._owed = 0
        self._soon: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    async def take(self, tokens: int) -> float:
        """Begin a request of so many tokens, and return 0; or the seconds until it may. Raises
        `StoreError` where nobody can tell."""
        return await self._keys.take(self._key_id, self._rules, tokens)

    def correct(self, tokens: int) -> None:
        """So many more tokens, or fewer, were used than had been taken."""
        if not tokens or self._rules.tokens_per_minute is None:
            return
        self._owed += tokens
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._write_now)

    async def close(self) -> None:
        """Put right what is not yet."""
        if self._soon is not None:
            self._soon.cancel()
        if self._writer is not None:
            await asyncio.wait({self._writer})
        await self._write()

    def _write_now(self) -> None:
        self._soon = None
        self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        owed, self._owed = self._owed, 0
        if not owed:
            return
        try:
            await self._keys.correct(self._key_id, self._rules, owed)
        except StoreError as error:  # it is not money: a limit that is a little off is not worse
            log.warning("what was used of a key's rate is not put right: %s", error)
