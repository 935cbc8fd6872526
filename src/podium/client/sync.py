"""`Podium`: `AsyncPodium` for code without an event loop.

Every method waits for the method of the same name of `AsyncPodium`, which runs on a loop in a
thread of its own. Interrupting the wait (Ctrl-C) stops the run and waits until it is stored as
interrupted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Generator
from concurrent import futures
from functools import update_wrapper, wraps
from queue import SimpleQueue
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack

from podium.client.client import CLOSED, AsyncPodium
from podium.client.run_options import RunOptions
from podium.core.errors import UsageError
from podium.core.events import Event, fan_out
from podium.engine.guardrails.redaction import restore_events

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _like_async(
    model: Callable[Concatenate[AsyncPodium, Arguments], None],
) -> Callable[
    [Callable[..., None]],
    Callable[Concatenate[Podium, Arguments], None],
]:
    """Give `__init__` the signature of the model."""
    return lambda init: wraps(model)(init)


def _make_blocking(
    method: Callable[Concatenate[AsyncPodium, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Podium, Arguments], Result]:
    """Turn a coroutine method of `AsyncPodium` into a method that waits for it."""

    def wait(podium: Podium, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return podium._loop.wait_for(lambda: method(podium._podium, *args, **kwargs))

    update_wrapper(wait, method)
    return wait


class Podium:
    """`AsyncPodium` for code that waits. Takes the same arguments; several threads may share it."""

    @_like_async(AsyncPodium.__init__)
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._podium = AsyncPodium(*args, **kwargs)
        self._loop = _LoopThread()

    ask = _make_blocking(AsyncPodium.ask)
    run = _make_blocking(AsyncPodium.run)
    plan = _make_blocking(AsyncPodium.plan)
    resume = _make_blocking(AsyncPodium.resume)

    def stream(self, question: str, **options: Unpack[RunOptions]) -> Generator[Event]:  # noqa: D102 - below
        self._loop.check_open()
        return self._events(question, options)

    def close(self) -> None:
        """Stop the runs, which stay resumable, and close connections, local models and store."""
        self._loop.close(self._podium.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _events(self, question: str, options: RunOptions) -> Generator[Event]:
        events: SimpleQueue[Event | None] = SimpleQueue()
        options["emit"] = fan_out(restore_events(events.put), options.get("emit"))
        options["stream"] = True
        with _LoopTask(self._loop, lambda: self._podium.ask(question, **options)) as task:
            task.add_done_callback(lambda: events.put(None))
            self._loop.start(task)
            while (event := events.get()) is not None:
                yield event
            task.result()


Podium.stream.__doc__ = AsyncPodium.stream.__doc__


class _LoopThread:
    """An event loop in a thread of its own, to which other threads submit tasks."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopped = asyncio.Event()
        self._closed = False
        self._submitting = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="podium", daemon=True)
        self._thread.start()

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def check_open(self) -> None:
        if self._closed:
            raise UsageError(CLOSED)

    def start(self, task: _LoopTask[Any]) -> None:
        self._check_thread()
        with self._submitting:
            self.check_open()
            task.start()

    def wait_for(self, coroutine: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        with _LoopTask(self, coroutine) as task:
            self.start(task)
            return task.result()

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the last coroutine and end the loop; a second call waits for that end."""
        self._check_thread()
        with self._submitting:
            was_closed, self._closed = self._closed, True
        try:
            if not was_closed:
                with _LoopTask(self, last) as task:
                    task.start()
                    task.result()
        finally:
            if not was_closed:
                self.loop.call_soon_threadsafe(self._stopped.set)
            self._thread.join()

    def _check_thread(self) -> None:
        if self.is_current:
            raise UsageError(
                "this was called on the thread of Podium's event loop, where emit is called too, "
                "and would wait for itself; call it from a thread of your own"
            )

    def _serve(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._stopped.wait())


class _LoopTask(Generic[Result]):
    """A coroutine on the loop's thread for which another thread waits.

    Leaving its `with` block early, for instance by Ctrl-C, stops it and waits until it has
    ended. A future of `run_coroutine_threadsafe` cannot do that: it is done as soon as it is
    cancelled.
    """

    def __init__(
        self, thread: _LoopThread, coroutine: Callable[[], Coroutine[Any, Any, Result]]
    ) -> None:
        self._thread = thread
        self._coroutine = coroutine
        self._started = False
        self._task: asyncio.Task[Result] | None = None
        self._ended: futures.Future[Result] = futures.Future()

    def start(self) -> None:
        self._started = True
        self._thread.loop.call_soon_threadsafe(self._create_task)

    def result(self) -> Result:
        return self._ended.result()

    def add_done_callback(self, call: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: call())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._started or self._ended.done():
            return
        self._thread.loop.call_soon_threadsafe(self._cancel)
        if not self._thread.is_current:  # as when an abandoned stream is garbage collected
            futures.wait([self._ended])

    def _create_task(self) -> None:
        try:
            coroutine = self._coroutine()
        except TypeError as error:  # arguments that do not fit
            self._ended.set_exception(error)
            return
        self._task = self._thread.loop.create_task(coroutine)
        self._task.add_done_callback(self._finish)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:  # interrupted before the loop started it
            self._ended.set_exception(futures.CancelledError())

    def _finish(self, task: asyncio.Task[Result]) -> None:
        if task.cancelled():
            self._ended.set_exception(futures.CancelledError())
        elif error := task.exception():
            self._ended.set_exception(error)
        else:
            self._ended.set_result(task.result())
