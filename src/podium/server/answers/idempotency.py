"""A request that its client named: however often it is sent, and to whichever server, there is one
run. Whoever sends it first begins the run; whoever sends it again waits for the run's end, and goes
on with it where it was cut off. Whose run another server has taken over waits for its end, too."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from podium._util.process import this_process
from podium.core.errors import Conflict, NotFound, PodiumError, TakenOver
from podium.core.run import Run, new_run_id, timestamp
from podium.server.api_error import ApiError
from podium.server.dialects.base import Named
from podium.server.logs import LOGGER
from podium.server.records.repository import RunRepository
from podium.store import IdempotentRequest

HEADER: Final = "Idempotency-Key"

FIRST_WAIT: Final = 0.02
LONGEST_WAIT: Final = 1.0
"""Seconds until a run that goes on elsewhere is looked at again; twice as long each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acts:
    """What can be done about a named request: its run `begin`s with that id, it can `go_on`, and
    somebody who sent it again is to `follow` the run with that id."""

    begin: Callable[[str], Awaitable[Run]]
    go_on: Callable[[Run], Awaitable[Run]]
    follow: Callable[[str], None]


async def once(archive: RunRepository, named: Named, owner: str, acts: Acts) -> Run:
    """The run of that request, as it ended."""
    request = IdempotentRequest(
        owner=owner,
        name=named.name,
        digest=named.digest,
        run_id=new_run_id(),
        process=this_process(),
        created_at=timestamp(),
    )
    found = await _given(archive, request)
    if found.run_id == request.run_id:
        return await _begun(archive, found, acts)
    acts.follow(found.run_id)
    wait = FIRST_WAIT
    while True:
        run = await _on_record(archive, found.run_id)
        if run is not None:
            return await ended(archive, run, acts.go_on)
        found = await _given(archive, request)
        mine = found if found.run_id == request.run_id else None
        if mine is None and found.run_id not in archive.beginning:
            mine = await archive.keeper.idempotency.take_over(found, request.process)
        if mine is not None:
            return await _begun(archive, mine, acts)
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)


async def ended(archive: RunRepository, run: Run, go_on: Callable[[Run], Awaitable[Run]]) -> Run:
    """The run as it ended, wherever it is performed; it is gone on with where it was cut off."""
    wait = FIRST_WAIT
    while run.status in ("running", "interrupted"):
        if not await archive.is_claimed(run):
            try:
                return await go_on(run)
            except Conflict:  # somebody else was quicker, or has taken it over meanwhile
                wait = FIRST_WAIT
        await asyncio.sleep(wait)
        wait = min(2 * wait, LONGEST_WAIT)
        run = await archive.keeper.load(run.id)
    return run


async def _given(archive: RunRepository, request: IdempotentRequest) -> IdempotentRequest:
    """The request that has this name; refused where that is another one."""
    found = await archive.keeper.idempotency.register(request)
    if found.digest != request.digest:
        raise ApiError(
            "conflict",
            f"the {HEADER} {request.name[:80]!r} was sent with another body, less than a day ago; "
            f"send another key with this one",
            field=HEADER,
        )
    return found


async def _begun(archive: RunRepository, request: IdempotentRequest, acts: Acts) -> Run:
    """Have the run performed. What was refused before it began has no name."""
    archive.beginning.add(request.run_id)
    try:
        return await acts.begin(request.run_id)
    except TakenOver:
        raise
    except BaseException:
        await _dropped_without_run(archive, request)
        raise
    finally:
        archive.beginning.discard(request.run_id)


async def _dropped_without_run(archive: RunRepository, request: IdempotentRequest) -> None:
    try:
        if await _on_record(archive, request.run_id) is None:
            await archive.keeper.idempotency.remove(request)
    except PodiumError as error:
        LOGGER.warning("the name of a request without a run could not be dropped: %s", error)


async def _on_record(archive: RunRepository, run_id: str) -> Run | None:
    try:
        return await archive.keeper.load(run_id)
    except NotFound:
        return None
