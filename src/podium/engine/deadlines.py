"""Time-outs for very many calls with one timer.

`asyncio.timeout` arms and disarms a timer of its own for each call, which costs more than all
else that the engine does for a call. Calls almost never time out, so here they only note their
deadline, and one timer wakes at the earliest of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

AnyTask = asyncio.Task[Any]


class Deadlines:
    """The deadlines of the calls in flight on one event loop. A task makes one call at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._deadlines: dict[AnyTask, float] = {}
        self._expired: set[AnyTask] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> AnyTask:
        """Cancel the current task unless `stop` is called for it within that time."""
        task = asyncio.current_task(self._loop)
        assert task is not None, "a call is always made inside a task"
        deadline = self._loop.time() + seconds
        self._deadlines[task] = deadline
        if self._timer is None or self._timer.when() > deadline:
            self._arm(deadline)
        return task

    def stop(self, task: AnyTask) -> bool:
        """End the watch. True when the task was cancelled by its deadline and by nothing else:
        the cancellation is then taken back, and the caller raises what it likes instead."""
        del self._deadlines[task]
        if task not in self._expired:
            return False
        self._expired.remove(task)
        return task.uncancel() <= 0

    def _arm(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._wake)

    def _wake(self) -> None:
        """Cancel what is overdue, and wake again for the next; with none left, stay asleep."""
        self._timer = None
        now = self._loop.time()
        for task, deadline in self._deadlines.items():
            if deadline <= now and task not in self._expired:
                self._expired.add(task)
                task.cancel()
        waiting = [at for task, at in self._deadlines.items() if task not in self._expired]
        if waiting:
            self._arm(min(waiting))
