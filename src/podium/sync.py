"""The same Podium for code without an event loop.

Every method waits for its counterpart of `AsyncPodium`, which runs on a loop in a thread of its
own. Interrupting the wait (Ctrl-C) stops the run and then goes on as usual.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from podium.api import AsyncPodium, Wishes
from podium.budget import Budget
from podium.conductor import Conductor
from podium.config import Settings
from podium.engine import RetryPolicy
from podium.errors import UsageError
from podium.events import Event
from podium.pool import Pool
from podium.run import Round, Run
from podium.runner import Options
from podium.store import RunStore
from podium.worker import Worker
from podium.workflow import Workflow

Result = TypeVar("Result")


class Podium:
    """`AsyncPodium` for code that waits; takes the same arguments."""

    def __init__(
        self,
        workers: Sequence[Worker] | None = None,
        conductor: Conductor | None = None,
        *,
        pool: Pool | None = None,
        options: Options | None = None,
        retry: RetryPolicy | None = None,
        store: RunStore | Path | str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="podium", daemon=True)
        self._thread.start()
        self._podium = AsyncPodium(
            workers,
            conductor,
            pool=pool,
            options=options,
            retry=retry,
            store=store,
            settings=settings,
        )

    def ask(self, question: str, **wishes: Unpack[Wishes]) -> Run:
        """Answer the question. How it ended is on the run: `status`, `answer`, `error`."""
        return self._wait(self._podium.ask(question, **wishes))

    def run(self, workflow: Workflow, question: str, **wishes: Unpack[Wishes]) -> Run:
        """Carry out a workflow that you wrote."""
        return self._wait(self._podium.run(workflow, question, **wishes))

    def plan(self, question: str, **wishes: Unpack[Wishes]) -> Round:
        """Only plan: the first round's workflow, with nothing of it carried out."""
        return self._wait(self._podium.plan(question, **wishes))

    def resume(self, run: Run | str, *, budget: Budget | None = None) -> Run:
        """Go on with a run that was cut off, given as it is or by its id in the store."""
        return self._wait(self._podium.resume(run, budget=budget))

    def stream(self, question: str, **wishes: Unpack[Wishes]) -> Iterator[Event]:
        """Answer the question and watch: every event as it happens, the run's end last.

        Leaving early stops the run.
        """
        events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        wishes["emit"], wishes["stream"] = events.put, True
        future = asyncio.run_coroutine_threadsafe(self._podium.ask(question, **wishes), self._loop)
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                yield event
            future.result()
        finally:
            future.cancel()

    def close(self) -> None:
        """Close the connections, the store and the event loop."""
        if self._loop.is_closed():
            return
        self._wait(self._podium.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop.is_closed():
            work.close()
            raise UsageError("this Podium is closed; make another one")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
