"""How fast a key may be used by all processes that share its store: its buckets are there.

A request takes from them as it begins; those that begin while others are being written take
together, in one transaction. What a request has used more or less than was guessed is put right
soon after it has ended. A key without a limit never asks.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from podium.errors import StoreError
from podium.store.keys import KeyStore, Rules

log = logging.getLogger("podium")

SOON: Final = 0.1
"""Seconds until what was guessed wrongly is put right, if nobody takes anything before."""


class SharedRates:
    """The limits of one key. It belongs to one event loop."""

    def __init__(self, keys: KeyStore, key_id: str, rules: Rules) -> None:
        self._keys = keys
        self._key_id = key_id
        self._rules = rules
        self._asking: list[tuple[int, asyncio.Future[float]]] = []
        self._owed = 0
        self._soon: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    async def take(self, tokens: int) -> float:
        """Begin a request of so many tokens, and return 0; or the seconds until it may. Raises
        `StoreError` where nobody can tell."""
        answer: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._asking.append((tokens, answer))
        self._write_now()
        return await answer

    def correct(self, tokens: int) -> None:
        """So many more tokens, or fewer, were used than had been taken."""
        if not tokens or self._rules.tokens_per_minute is None:
            return
        self._owed += tokens
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._write_later)

    async def close(self) -> None:
        """Put right what is not yet."""
        if self._soon is not None:
            self._soon.cancel()
        if self._owed:
            self._write_now()
        if self._writer is not None:
            await asyncio.wait({self._writer})

    def _write_later(self) -> None:
        self._soon = None
        if self._owed:
            self._write_now()

    def _write_now(self) -> None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        while self._asking or self._owed:
            asking, self._asking = [each for each in self._asking if not each[1].cancelled()], []
            owed, self._owed = self._owed, 0
            tokens = [each for each, _ in asking]
            try:
                waits = await self._keys.take(self._key_id, self._rules, tokens, owed)
            except StoreError as error:
                # What is owed is no money: a limit that is a little off for once harms nobody.
                log.warning("how fast a key is used cannot be looked up: %s", error)
                _fail(asking, error)
            except BaseException as error:  # whoever waits must not wait for ever
                _fail(asking, error)
                raise
            else:
                for (_, answer), wait in zip(asking, waits, strict=True):
                    if not answer.done():
                        answer.set_result(wait)


def _fail(asking: list[tuple[int, asyncio.Future[float]]], error: BaseException) -> None:
    for _, answer in asking:
        if not answer.done():
            answer.set_exception(error)
