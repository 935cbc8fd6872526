"""The clients of several servers: every question is asked until it is answered, or refused for
want of money, at whichever server is there."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.chaos.client import Response, post
from benchmarks.chaos.replica import Replica

LONGEST_ANSWER_SECONDS: Final = 60.0
"""A question that has no answer by then is stuck."""

BETWEEN_TRIES_SECONDS: Final = 0.1
THINKING_SECONDS: Final = 0.05
POOR_SECONDS: Final = 0.5
"""Between two questions of a client, and where its key has no money left."""

OUT_OF_BUDGET: Final = 402


@dataclass(frozen=True, slots=True)
class Purse:
    """A key to the servers: its id, its token, and the cap on what may be spent with it."""

    name: str
    key_id: str
    token: str
    cap_usd: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A question that was answered, refused for want of money (`answer` is None), or neither."""

    mark: str
    purse: Purse
    answer: str | None
    is_refused: bool
    seconds: float
    tries: int
    error: str = ""

    @property
    def is_stuck(self) -> bool:
        """Whether it has not come to an end."""
        return self.answer is None and not self.is_refused


@dataclass(slots=True)
class Load:
    """Questions of some clients, asked one after another by each."""

    replicas: Sequence[Replica]
    seed: int
    ended: list[Ended] = field(default_factory=list)
    is_over: bool = False

    async def keep_asking(self, client: int, purse: Purse) -> None:
        """Ask with that key until it is over."""
        chance = random.Random(f"{self.seed}:{client}")  # noqa: S311 -- repeatable
        number = 0
        while not self.is_over:
            ended = await self._ask(f"chaos-{purse.name}-{client:02d}-{number:05d}", purse, chance)
            self.ended.append(ended)
            number += 1
            await asyncio.sleep(POOR_SECONDS if ended.is_refused else THINKING_SECONDS)

    async def _ask(self, mark: str, purse: Purse, chance: random.Random) -> Ended:
        """Ask until there is an end, at another server whenever there is no answer from one."""
        document = {
            "model": "podium-ultra",
            "messages": [{"role": "user", "content": f"{mark}: what holds?"}],
            "stream": chance.random() < 0.5,
        }
        headers = {"authorization": f"Bearer {purse.token}", "idempotency-key": mark}
        began = time.monotonic()
        tries, error = 0, ""
        while (left := began + LONGEST_ANSWER_SECONDS - time.monotonic()) > 0:
            tries += 1
            try:
                port = chance.choice(self.replicas).port
                response = await post(port, document, headers, left)
            except (OSError, EOFError, TimeoutError) as broken:
                error = f"{type(broken).__name__}: {broken}"
            else:
                error = response.error
                seconds = time.monotonic() - began
                if response.is_answer:
                    return Ended(mark, purse, response.text, False, seconds, tries)
                if _is_poor(response):
                    return Ended(mark, purse, None, True, seconds, tries, error)
            await asyncio.sleep(BETWEEN_TRIES_SECONDS)
        return Ended(mark, purse, None, False, time.monotonic() - began, tries, error)


def _is_poor(response: Response) -> bool:
    return response.status == OUT_OF_BUDGET or "budget" in response.error
