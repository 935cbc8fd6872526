"""What happens in runs that go on, written down as it does. Made by `sql`, whose transactions it
uses.

A run in a store that others share is written when it begins, when it is planned and when a step of
it has ended, and whoever performs it waits for the first of these. What comes of several runs at
once is therefore written in one transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sqlalchemy import Table
from sqlalchemy.ext.asyncio import AsyncConnection

from podium.core.run import Round, Run, StepRecord
from podium.store.sql.claims import SqlClaims
from podium.store.sql.keys import Transaction
from podium.store.sql.rows import Row, round_row, step_row, worker_rows
from podium.store.sql.tables import ROUNDS, STEPS, WORKERS, noting, replacing

MOST: Final = 64
"""How many are served together, so that what they want is no large thing to do."""

Want = TypeVar("Want")

_Waiting = tuple[Want, asyncio.Future[None]]


class Gathering(Generic[Want]):
    """Gathers what is wanted. `alone` does one thing, `together` several or none of them: where it
    raises, each is done alone, so that no one's fault is another's. It belongs to one event loop.
    """

    def __init__(
        self,
        *,
        alone: Callable[[Want], Awaitable[None]],
        together: Callable[[Sequence[Want]], Awaitable[None]],
    ) -> None:
        self._alone = alone
        self._together = together
        self._waiting: list[_Waiting[Want]] = []
        self._at_work: asyncio.Task[None] | None = None

    async def add(self, want: Want) -> None:
        """Have that done, and wait until it is. Who is cancelled meanwhile need not know whether
        it was."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((want, done))
        if self._at_work is None or self._at_work.done():
            self._at_work = loop.create_task(self._work())
        await done

    async def close(self) -> None:
        """Wait for what is being done."""
        if self._at_work is not None:
            await asyncio.wait({self._at_work})

    async def _work(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            some = [each for each in some if not each[1].cancelled()]
            try:
                await self._serve(some)
            finally:  # whoever waits must not wait for ever
                for _, done in some:
                    done.cancel()

    async def _serve(self, some: Sequence[_Waiting[Want]]) -> None:
        if len(some) > 1 and await self._is_done_together([want for want, _ in some]):
            for _, done in some:
                _tell(done, None)
        else:
            await asyncio.gather(*(self._serve_alone(*each) for each in some))

    async def _is_done_together(self, wants: Sequence[Want]) -> bool:
        try:
            await self._together(wants)
        except Exception:  # noqa: BLE001 - whose fault it is shows when each is done alone
            return False
        return True

    async def _serve_alone(self, want: Want, done: asyncio.Future[None]) -> None:
        try:
            await self._alone(want)
        except Exception as error:  # noqa: BLE001 - it is for whoever wanted this
            _tell(done, error)
        else:
            _tell(done, None)


def _tell(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():  # whoever waited is gone
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


@dataclass(frozen=True, slots=True)
class News:
    """What is new of a run: it begins, with all that it has; a round was planned; or a step has
    ended."""

    run_id: str
    what: Run | Round | StepRecord

    @property
    def rounds(self) -> Sequence[Round]:
        """The rounds that it brings."""
        if isinstance(self.what, Run):
            return self.what.rounds
        return (self.what,) if isinstance(self.what, Round) else ()

    @property
    def steps(self) -> Sequence[StepRecord]:
        """The steps that it brings. Those of a round that was planned are written as they end."""
        if isinstance(self.what, Run):
            return self.what.steps
        return (self.what,) if isinstance(self.what, StepRecord) else ()

    @property
    def is_progress(self) -> bool:
        """Whether something was done that need not be done again."""
        return isinstance(self.what, StepRecord) and self.what.status == "done"


class SqlProgress:
    """Writes what is new of runs, those of several together. Close it before the database."""

    def __init__(self, transaction: Transaction, claims: SqlClaims) -> None:
        self._transaction = transaction
        self._claims = claims
        self._gathering = Gathering[News](alone=self._write_one, together=self._write_several)
        self.close = self._gathering.close

    async def write(self, news: News) -> None:
        """Write that down. The plan of a step's round must have been written before."""
        if isinstance(news.what, Run) and self._claims.knows(news.run_id):
            await self._write_one(news)  # it goes on already, and its row is there to be replaced
        else:
            await self._gathering.add(news)

    async def _write_one(self, news: News) -> None:
        async with self._transaction() as connection:
            if isinstance(news.what, Run):
                await self._claims.enter(connection, news.what)
            else:
                await self._claims.touch(connection, news.run_id, progress=news.is_progress)
            await write_contents(connection, [news])

    async def _write_several(self, several: Sequence[News]) -> None:
        begun = [news.what for news in several if isinstance(news.what, Run)]
        going_on = {news.run_id for news in several if not isinstance(news.what, Run)}
        progress = {news.run_id for news in several if news.is_progress}
        async with self._transaction() as connection:
            await self._claims.touch_all(connection, going_on, progress)
            await self._claims.enter_all(connection, begun)
            await write_contents(connection, several)
        self._claims.have_entered(begun)


async def write_contents(connection: AsyncConnection, several: Sequence[News]) -> None:
    """Write the rounds and steps that these bring."""
    rounds = [round_row(news.run_id, round_) for news in several for round_ in news.rounds]
    steps = [step_row(news.run_id, step) for news in several for step in news.steps]
    workers = [row for news in several for row in worker_rows(news.run_id, news.steps)]
    await _put(connection, ROUNDS, rounds)
    await _put(connection, STEPS, steps)
    if workers:
        await connection.execute(noting(connection.dialect.name, WORKERS), workers)


async def _put(connection: AsyncConnection, table: Table, rows: Sequence[Row]) -> None:
    if rows:
        await connection.execute(replacing(connection.dialect.name, table), rows)
