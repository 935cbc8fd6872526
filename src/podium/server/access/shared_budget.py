"""The till: where the tabs of one key meet that several processes have, so that a cap holds for
all of them together.

The store has a row for each request in flight, and a process that wants more for one of its tabs
asks the store, which locks the key and looks at all of them (`podium.store.sql_tabs`). A request
asks as it begins. A call asks only where its hold is more than its tab was granted before; asking
for all tabs that want something at the moment is one transaction, and so is writing down what
calls have used since. So what is charged, used and held by all processes never passes a cap
together: as in one process, only the error of guessing a call's input can.

A process renews its tabs. When one is killed, what its calls held comes back with the end of its
lease, and what they had used stays counted until it is charged: by the end of its run, whoever
goes on with that, or where there is none by `sweep`. What the calls in flight at that moment used
nobody can know, and by so much a cap can be passed.

While the store cannot be asked, nothing is granted: a key with a cap is refused rather than let
spend unseen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from podium.core.errors import BudgetUnseen, StoreError
from podium.server.access.key_budget import KeyBudget, Reservation
from podium.store.keys import Charged, Rules
from podium.store.quotas import Drawn, TabRow, TabStore

log = logging.getLogger("podium")

SOON: Final = 0.05
"""Seconds until others are told that a tab takes less; most tabs ask for more by then."""

LOOK_SECONDS: Final = 0.25
"""How often a call that waits for money looks at what other processes have given back."""

AGAIN_SECONDS: Final = 1.0
"""When to try again what could not be written."""

Asker = TypeVar("Asker", TabRow, Reservation)

_Answer = asyncio.Future[Charged | None]


class SharedBudget:
    """The tabs of one key and process, on their way to the store. It belongs to one event loop.

    `closing` has the row of a tab taken from the store, together with what its request is charged.
    """

    def __init__(
        self,
        tabs: TabStore,
        key_id: str,
        rules: Rules,
        purse: KeyBudget,
        *,
        today: Callable[[], str],
        closing: Callable[[str], None],
    ) -> None:
        self._tabs = tabs
        self._key_id = key_id
        self._rules = rules
        self._purse = purse
        self._today = today
        self._closing = closing
        self._being_written: set[str] = set()
        self._to_close_again: set[str] = set()
        self._opening: list[tuple[TabRow, _Answer]] = []
        self._growing: list[tuple[Reservation, _Answer]] = []
        self._looking: list[_Answer] = []
        self._changed: dict[str, Reservation] = {}
        self._soon: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None

    async def open(self, tab_id: str, model: str, estimate: Charged) -> Charged | None:
        """A request begins that will probably use so much: what it may claim of that, or None
        where the caps leave nothing. Raises `BudgetUnseen` where the store cannot be asked."""
        row = TabRow(id=tab_id, key_id=self._key_id, model=model, claimed=estimate, taken=estimate)
        answer = self._answer()
        self._opening.append((row, answer))
        try:
            return await self._asked(answer)
        except asyncio.CancelledError:
            self.close_tab(tab_id)  # it may have been opened all the same
            raise

    async def secure(self, tab: Reservation) -> bool:
        """Have the store grant all that the tab takes; False where the caps have no room for it."""
        answer = self._answer()
        self._growing.append((tab, answer))
        granted = await self._asked(answer)
        if granted is None:
            await asyncio.sleep(SOON)  # what is left is known now; nobody need ask in a hurry
        return granted is not None

    def changed(self, tab: Reservation) -> None:
        """Write down soon that the tab takes less, or that more of it is used."""
        self._changed[tab.id] = tab
        if self._soon is None:
            self._soon = asyncio.get_running_loop().call_later(SOON, self._write_now)

    def close_tab(self, tab_id: str) -> None:
        """The request of that tab is over. Should the tab be written just now, it is closed once
        more after that, for nobody knows which comes first."""
        self._changed.pop(tab_id, None)
        if tab_id in self._being_written:
            self._to_close_again.add(tab_id)
        self._closing(tab_id)

    async def look(self, change: asyncio.Future[None]) -> None:
        """Wait for that change, or for one elsewhere."""
        await asyncio.wait({change}, timeout=LOOK_SECONDS)
        if not change.done():
            answer = self._answer()
            self._looking.append(answer)
            await self._asked(answer)

    async def close(self) -> None:
        """Wait for what is being written; what was not asked for is not any more."""
        if self._soon is not None:
            self._soon.cancel()
        if self._writer is not None:
            await asyncio.wait({self._writer})
        if self._soon is not None:
            self._soon.cancel()  # what could not be written

    def _answer(self) -> _Answer:
        return asyncio.get_running_loop().create_future()

    async def _asked(self, answer: _Answer) -> Charged | None:
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())
        return await answer

    def _write_now(self) -> None:
        self._soon = None
        if self._writer is None or self._writer.done():
            self._writer = asyncio.get_running_loop().create_task(self._write())

    async def _write(self) -> None:
        """Ask for everything that is wanted, until nothing is any more."""
        failed = False
        while self._is_asked or (self._changed and not failed):
            opening, self._opening = _still_wanted(self._opening), []
            growing, self._growing = _still_wanted(self._growing), []
            looking, self._looking = self._looking, []
            changed, self._changed = self._changed, {}
            answers = [answer for _, answer in (*opening, *growing)] + looking
            try:
                drawn = await self._drawn(opening, growing, changed)
            except StoreError as error:
                log.warning("what keys have left cannot be looked up: %s", error)
                self._try_again(changed)
                _fail(answers, BudgetUnseen(f"what this key has left cannot be told: {error}"))
                failed = True
                continue
            except BaseException as error:  # whoever waits must not wait for ever
                _fail(answers, error)
                raise
            finally:
                self._close_again()
            failed = False
            self._purse.stand(drawn.standing, drawn.elsewhere)
            for row, answer in opening:
                _tell(answer, drawn.granted.get(row.id))
            for tab, answer in growing:
                _tell(answer, drawn.granted.get(tab.id))
            for answer in looking:
                _tell(answer, None)

    async def _drawn(
        self,
        opening: Sequence[tuple[TabRow, _Answer]],
        growing: Sequence[tuple[Reservation, _Answer]],
        changed: dict[str, Reservation],
    ) -> Drawn:
        grown = {tab.id: tab for tab, _ in growing}
        self._being_written = {*(row.id for row, _ in opening), *grown, *changed}
        shrunk = [tab for tab in changed.values() if tab.id not in grown]
        rows = [tab.row(self._key_id) for tab in grown.values()]
        less = []
        for tab in shrunk:
            row = tab.row(self._key_id)
            if self._purse.covers(tab.granted, row.needed):  # else it is about to ask for more
                tab.granted = row.needed
                less.append(row)
        drawn = await self._tabs.draw(
            self._key_id,
            self._rules,
            self._today(),
            opened=[row for row, _ in opening],
            grown=rows,
            changed=less,
        )
        for tab_id, granted in drawn.granted.items():
            if tab_id in grown:
                grown[tab_id].granted = granted
        return drawn

    @property
    def _is_asked(self) -> bool:
        return bool(self._opening or self._growing or self._looking)

    def _close_again(self) -> None:
        self._being_written = set()
        closing, self._to_close_again = self._to_close_again, set()
        for tab_id in closing:
            self._closing(tab_id)

    def _try_again(self, changed: dict[str, Reservation]) -> None:
        """Write that later, less what was closed meanwhile: nobody would close it once more."""
        closed = self._to_close_again
        kept = {tab_id: tab for tab_id, tab in changed.items() if tab_id not in closed}
        self._changed = kept | self._changed
        if self._soon is None and self._changed:
            loop = asyncio.get_running_loop()
            self._soon = loop.call_later(AGAIN_SECONDS, self._write_now)


def _still_wanted(asking: list[tuple[Asker, _Answer]]) -> list[tuple[Asker, _Answer]]:
    return [each for each in asking if not each[1].cancelled()]


def _tell(answer: _Answer, granted: Charged | None) -> None:
    if not answer.done():  # whoever asked may be gone
        answer.set_result(granted)


def _fail(answers: Sequence[_Answer], error: BaseException) -> None:
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
