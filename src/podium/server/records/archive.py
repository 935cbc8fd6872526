"""The runs that a visitor may look into: those on record, and those that go on in this process."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Final

from podium.errors import UnreadableRun, UsageError
from podium.run import Run
from podium.server.access import Visitor
from podium.server.records.audit import Audit
from podium.server.records.broadcast import Broadcast, Happening
from podium.server.records.keeper import Keeper
from podium.server.refusal import Refusal
from podium.store import RunFilter

WHOLE_ID: Final = re.compile(r"run_[0-9a-f]{16}")
"""What `new_run_id` makes. A run that cannot be read does not tell its id: so the store
is known to have been asked for that very one, and not for the last, or one that begins so."""


class Archive:
    """Finds runs for visitors, watches them and forgets them."""

    def __init__(self, keeper: Keeper, audit: Audit | None = None) -> None:
        self.keeper = keeper
        self.audit = audit or Audit()
        self.broadcast = Broadcast()
        self.beginning: set[str] = set()
        """The runs that requests with names begin in this process. Until one is on record, which
        takes as long as its question is checked, no other knows of it."""

    async def run(self, run_id: str, visitor: Visitor, field: str | None = None) -> Run:
        """A run that the visitor may see, by its whole id; `field` is where they named it. That
        somebody looks into another's is entered in the audit log."""
        run = await self._allowed(run_id, visitor, field)
        await self.audit.enter_run("run read", visitor, run)
        return run

    async def _allowed(self, run_id: str, visitor: Visitor, field: str | None = None) -> Run:
        try:
            run = await self._found(run_id)
        except UnreadableRun:
            if not WHOLE_ID.fullmatch(run_id) or not await self._is_theirs(run_id, visitor):
                raise _none(run_id, field) from None
            raise
        if run is None or run.id != run_id or not visitor.may_see(run.owner):
            raise _none(run_id, field)
        return run

    async def is_performed(self, run: Run) -> bool:
        """Whether any process is at work on the run, this one or another, or may be."""
        if self.broadcast.goes_on(run.id):
            return True
        if run.status != "running":
            return False
        return self.keeper.is_unsure or await self.keeper.is_performed(run.id)

    async def forget(self, run_id: str, visitor: Visitor) -> None:
        """Forget a run that the visitor may see, and all that it holds, unless it goes on."""
        try:
            run = await self._allowed(run_id, visitor)
        except UnreadableRun:  # its whole id is enough to be rid of it
            await self.audit.enter("run deleted", visitor, run_id)
            await self.keeper.delete(run_id)
            return
        if await self.is_performed(run):
            raise Refusal("conflict", f"{run.id} still goes on; delete it when it has ended")
        await self.audit.enter("run deleted", visitor, run.id, {"owner": run.owner})
        await self.keeper.delete(run.id)

    def watch(self, run_id: str, visitor: Visitor) -> AsyncIterator[Happening]:
        """Everything that has happened and will happen in a run that the visitor may see."""

        async def load() -> Run:
            return await self.run(run_id, visitor)

        async def is_performed() -> bool:
            return await self.keeper.is_performed(run_id)

        return self.broadcast.watch(run_id, load, is_performed)

    async def _found(self, run_id: str) -> Run | None:
        found = await self._on_record(run_id) or self.broadcast.begun(run_id)
        # One that went on when the store was asked, and has ended since, is on record by now.
        return found or await self._on_record(run_id)

    async def _on_record(self, run_id: str) -> Run | None:
        try:
            return await self.keeper.load(run_id)
        except UsageError:  # there is none of that id, or several begin with it
            return None

    async def _is_theirs(self, run_id: str, visitor: Visitor) -> bool:
        """Whether a run that cannot be read is one that the visitor may see: a list takes it for a
        place to go on from only where it is among the runs that are listed."""
        theirs = RunFilter(owner=None if visitor.may("admin") else visitor.key_id)
        try:
            await self.keeper.list(theirs, limit=1, before=run_id)
        except UsageError:
            return False
        return True


def _none(run_id: str, field: str | None) -> Refusal:
    return Refusal(
        "not_found",
        f"there is no {run_id[:80]!r} here: it was deleted, not kept, or is not yours",
        field=field,
    )
