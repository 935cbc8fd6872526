"""One sitting at the command line: settings read, weights fetched, store open, runs performed.

    with Session(choice, keep=True) as session:
        run = session.perform(lambda podium, wishes: podium.ask("Why?", **wishes), Lines())

It owns the event loop, so that Ctrl-C is handled in one place: the run that it cuts off comes
back as it stands, with the status `interrupted`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar

from podium.cli.models import fetch_weights
from podium.cli.output import complain
from podium.cli.settings import Choice, configuration_file, settings_for
from podium.client.assembly import default_options
from podium.client.client import AsyncPodium
from podium.client.runtime import RunOptions
from podium.config import Settings
from podium.config.resolve import EVOLVED_PREFIX
from podium.config.schema import ConfigFile
from podium.config.sources import read
from podium.core.errors import StoreError
from podium.core.events import Event, RunDone
from podium.core.run import Run
from podium.engine.guardrails.redaction import restore_events
from podium.store import NullStore, RunStore, open_store

Result = TypeVar("Result")


def with_store(
    config: Path | None,
    work: Callable[[RunStore], Awaitable[Result]],
    pool: Path | None = None,
    *,
    to_read: bool = False,
) -> Result:
    """Do the work with the store; a pool file's tables take the place of the configuration's."""
    tables = ConfigFile()
    for file in (configuration_file(os.environ, config), pool):
        if file is not None:
            tables = tables.overlay(read(file))

    async def opened() -> Result:
        store = await open_store(
            tables.store.url or tables.store.path,
            to_read=to_read,
            lease_seconds=tables.store.lease_seconds,
        )
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(opened())


Work = Callable[[AsyncPodium, RunOptions], Awaitable[Run]]
"""Performs a run as wished for: it must be watched by `wishes["emit"]`, and stream."""

Check = Callable[[Settings], None]
"""Raises where settings do not do for what was asked."""

NO_KEY: Final = (
    "no vendor's key is set: a very small model answers, often wrongly; podium doctor helps"
)
OFFLINE: Final = "offline, a very small model answers, often wrongly"


class Show(AbstractContextManager[Any], Protocol):
    """Tells a person what happens in a run."""

    def tell(self, event: Event) -> None:
        """Take the next event."""
        ...


class Session:
    """What the commands that need workers share. Without `keep`, runs are not stored; with
    `quiet`, nobody is told that the pool is a small one. `check` may refuse the settings, before
    anything is fetched for them."""

    settings: Settings
    store: RunStore
    podium: AsyncPodium

    def __init__(
        self, choice: Choice, *, keep: bool, quiet: bool = False, check: Check | None = None
    ) -> None:
        self._choice = choice
        self._check = check
        self._keep = keep
        self._quiet = quiet
        self._loop = asyncio.Runner()

    def __enter__(self) -> Self:
        try:
            self.wait_for(self._open())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.wait_for(self._close())
        finally:
            self._loop.close()

    def wait_for(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do something on the session's event loop."""
        return self._loop.run(work)

    def perform(self, work: Work, show: Show, wishes: RunOptions | None = None) -> Run:
        """Perform a run and show it meanwhile."""
        stage = _Stage(show)
        watched = RunOptions() if wishes is None else wishes.copy()
        watched["emit"], watched["stream"] = restore_events(stage.tell), True
        try:
            with show:
                return self.wait_for(stage.perform(work(self.podium, watched)))
        except KeyboardInterrupt:
            if stage.run is None:
                raise
            return stage.run

    def resume(self, run: Run) -> str | None:
        """The command that goes on with a run; None where runs are not stored."""
        if isinstance(self.store, NullStore):
            return None
        choice = self._choice
        again: dict[str, object] = {"--pool": choice.pool, "--config": choice.config}
        if choice.conductor and choice.conductor.startswith(
            EVOLVED_PREFIX
        ):  # a run has no directory
            again["--conductor"] = choice.conductor
        given = [f" {option} {shlex.quote(str(value))}" for option, value in again.items() if value]
        return f"podium runs resume {run.id}{''.join(given)}"

    async def _open(self) -> None:
        self.settings = await settings_for(self._choice, os.environ)
        if self._check is not None:
            self._check(self.settings)
        for warning in self.settings.warnings:
            complain(warning)
        offline = self._choice.offline
        is_small = self.settings.is_embedded and not self._quiet
        if is_small and not offline:  # before the download, which a key would save
            complain(NO_KEY)
        await fetch_weights(self.settings, offline=offline)
        if is_small and offline:  # after it, for without the weights nobody answers
            complain(OFFLINE)
        self.store = await self._opened_store()
        # The settings are cleared of what is excluded; the run must know of it to be resumed so.
        options = replace(default_options(self.settings), exclude=self._choice.exclude)
        self.podium = AsyncPodium(settings=self.settings, store=self.store, options=options)

    async def _opened_store(self) -> RunStore:
        """The store, or none where it cannot be used: an answer is worth more than its record."""
        if not self._keep:
            return NullStore()
        try:
            kept = self.settings.store
            return await open_store(kept.url or kept.path, lease_seconds=kept.lease_seconds)
        except StoreError as error:
            complain(f"this run will not be stored: {error}")
            return NullStore()

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:  # where one cannot be closed, the other still is
            stack.push_async_callback(self.store.close)
            stack.push_async_callback(self.podium.close)


class _Stage:
    """One run being performed. `run` is how it ended, once it has."""

    def __init__(self, show: Show) -> None:
        self.run: Run | None = None
        self._show = show
        self._fault: Exception | None = None
        self._task: asyncio.Task[Any] | None = None

    async def perform(self, work: Awaitable[Run]) -> Run:
        """Wait for the run, and for whatever went wrong in showing it."""
        self._task = asyncio.current_task()
        try:
            run = await work
        except asyncio.CancelledError:
            if self._fault is None:
                raise
            raise self._fault from None
        if self._fault is not None:
            raise self._fault
        return run

    def tell(self, event: Event) -> None:
        """Show the event. Where that fails (a closed pipe, say) the run is stopped and kept,
        as the engine must not meet errors of its onlookers."""
        if isinstance(event, RunDone) and event.run.depth == 0:
            self.run = event.run
        if self._fault is not None:
            return
        try:
            self._show.tell(event)
        except Exception as error:  # noqa: BLE001 - raised again once the run is kept
            self._fault = error
            if self._task is not None and self.run is None:
                self._task.cancel()
