"""The same Podium for code without an event loop.

Every method waits for its counterpart of `AsyncPodium`, which runs on a loop in a thread of its
own. Interrupting the wait (Ctrl-C) stops the run, waits until it is kept as interrupted, and
then goes on as usual.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from podium.client.client import CLOSED, AsyncPodium
from podium.client.runtime import RunOptions
from podium.conductors import Conductor, TierRouter
from podium.config import Settings
from podium.core.budget import Budget
from podium.core.errors import UsageError
from podium.core.events import Emit, Event
from podium.core.pool import Pool
from podium.core.request import ResponseOptions, ToolResult
from podium.core.run import Round, Run
from podium.core.worker import Worker
from podium.core.workflow import Workflow
from podium.engine import BreakerPolicy, Hedge, RetryPolicy, Toolbox
from podium.engine.guardrails import Guardrail, Hook
from podium.engine.guardrails.redaction import restoring
from podium.engine.runner import Options
from podium.engine.sinks import telling
from podium.store import RunStore

Result = TypeVar("Result")


class Podium:
    """`AsyncPodium` for code that waits; takes the same arguments, and may be used by several
    threads at once."""

    def __init__(
        self,
        workers: Sequence[Worker] | None = None,
        conductor: Conductor | None = None,
        *,
        pool: Pool | None = None,
        options: Options | None = None,
        retry: RetryPolicy | None = None,
        breaker: BreakerPolicy | None = None,
        hedges: Mapping[str, Hedge] | None = None,
        store: RunStore | Path | str | None = None,
        settings: Settings | None = None,
        toolbox: Toolbox | None = None,
        guardrails: Sequence[Guardrail | Hook] = (),
        mini: TierRouter | None = None,
    ) -> None:
        self._podium = AsyncPodium(
            workers,
            conductor,
            pool=pool,
            options=options,
            retry=retry,
            breaker=breaker,
            hedges=hedges,
            store=store,
            settings=settings,
            toolbox=toolbox,
            guardrails=guardrails,
            mini=mini,
        )
        self._loop = _LoopThread()

    def ask(self, question: str, **wishes: Unpack[RunOptions]) -> Run:
        """Answer the question. How it ended is on the run: `status`, `answer`, `error`."""
        return self._loop.wait_for(lambda: self._podium.ask(question, **wishes))

    def run(self, workflow: Workflow, question: str, **wishes: Unpack[RunOptions]) -> Run:
        """Carry out a workflow that you wrote."""
        return self._loop.wait_for(lambda: self._podium.run(workflow, question, **wishes))

    def plan(self, question: str, **wishes: Unpack[RunOptions]) -> Round:
        """Only plan: the first round's workflow, with nothing of it carried out."""
        return self._loop.wait_for(lambda: self._podium.plan(question, **wishes))

    def resume(
        self,
        run: Run | str,
        *,
        results: Sequence[ToolResult] = (),
        response_options: ResponseOptions | None = None,
        budget: Budget | None = None,
        emit: Emit | None = None,
        stream: bool = False,
    ) -> Run:
        """Go on with a run, given as it is or by its id in the store: one that was cut off, or one
        that waits, with the results of all the tools that it waits for. `response_options` and
        `budget` replace those of the run."""
        return self._loop.wait_for(
            lambda: self._podium.resume(
                run,
                results=results,
                response_options=response_options,
                budget=budget,
                emit=emit,
                stream=stream,
            )
        )

    def stream(self, question: str, **wishes: Unpack[RunOptions]) -> Generator[Event]:
        """Answer the question and watch: every event as it happens, the run's end last.

        Leaving early stops the run.
        """
        self._loop.check_open()
        return self._events(question, wishes)

    def close(self) -> None:
        """Stop the runs that are going on, and close the connections, the local models, the
        event loop, and the store unless it is the caller's."""
        self._loop.close(self._podium.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _events(self, question: str, wishes: RunOptions) -> Generator[Event]:
        events: SimpleQueue[Event | None] = SimpleQueue()
        wishes["emit"], wishes["stream"] = telling(restoring(events.put), wishes.get("emit")), True
        with _Work(self._loop, lambda: self._podium.ask(question, **wishes)) as work:
            work.then(lambda: events.put(None))
            self._loop.begin(work)
            while (event := events.get()) is not None:
                yield event
            work.result()


class _LoopThread:
    """An event loop in a thread of its own, to which other threads give work."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._served = asyncio.Event()
        self._closed = False
        self._giving = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="podium", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        """Whether this is called on the loop's own thread."""
        return threading.current_thread() is self._thread

    def check_open(self) -> None:
        """Refuse what is asked of a loop that has ended."""
        if self._closed:
            raise UsageError(CLOSED)

    def begin(self, work: _Work[Any]) -> None:
        """Begin the work, which `close` then finds on the loop."""
        self._check_thread()
        with self._giving:
            self.check_open()
            work.begin()

    def wait_for(self, coroutine: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """Do this on the loop, and wait for its end."""
        with _Work(self, coroutine) as work:
            self.begin(work)
            return work.result()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do this last, and end the loop. Whoever closes it again waits for that end."""
        self._check_thread()
        with self._giving:
            was_closed, self._closed = self._closed, True
        try:
            if not was_closed:
                with _Work(self, last) as work:
                    work.begin()
                    work.result()
        finally:
            if not was_closed:
                self.loop.call_soon_threadsafe(self._served.set)
            self._thread.join()

    def _check_thread(self) -> None:
        if self.is_current:
            raise UsageError(
                "this was called on the thread of Podium's event loop, where emit is called too, "
                "and would wait for itself; call it from a thread of your own"
            )

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._served.wait())


class _Work(Generic[Result]):
    """Something to be done on the loop's thread, for which another thread waits.

    Leaving its `with` block early, for instance by Ctrl-C, stops it and waits until it has
    ended. A future of `run_coroutine_threadsafe` could not do that: it is done as soon as it is
    cancelled.
    """

    def __init__(
        self, thread: _LoopThread, coroutine: Callable[[], Coroutine[Any, Any, Result]]
    ) -> None:
        self._thread = thread
        self._coroutine = coroutine
        self._begun = False
        self._task: asyncio.Task[Result] | None = None
        self._ended: futures.Future[Result] = futures.Future()

    def begin(self) -> None:
        """Have the loop begin it."""
        self._begun = True
        self._thread.loop.call_soon_threadsafe(self._begin)

    def result(self) -> Result:
        """Wait for the end."""
        return self._ended.result()

    def then(self, call: Callable[[], None]) -> None:
        """Call this when it has ended."""
        self._ended.add_done_callback(lambda _: call())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._begun or self._ended.done():
            return
        self._thread.loop.call_soon_threadsafe(self._cancel)
        if not self._thread.is_current:  # as when a stream that was left is garbage collected
            futures.wait([self._ended])

    def _begin(self) -> None:
        self._task = self._thread.loop.create_task(self._coroutine())
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:  # interrupted before the loop heard of it
            self._ended.set_exception(futures.CancelledError())

    def _end(self, task: asyncio.Task[Result]) -> None:
        if task.cancelled():
            self._ended.set_exception(futures.CancelledError())
        elif error := task.exception():
            self._ended.set_exception(error)
        else:
            self._ended.set_result(task.result())
