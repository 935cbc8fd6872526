"""Stream the events of runs: live in this process, else from the stored run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

from podium.client.documents import check_document, routed_document, run_document, step_document
from podium.conductors.plan import workflow_document
from podium.core.events import (
    Emit,
    Event,
    GuardrailActed,
    RoundDone,
    RoundPlanned,
    RunDone,
    RunStarted,
    StepDelta,
    StepDone,
    StepProgress,
    StepRetried,
    StepStarted,
)
from podium.core.run import Round, Run, StepRecord

POLL_SECONDS: Final = 1.0
"""The interval for reading a run that another process performs."""

RUN_ABANDONED: Final = "its process ended before it was done; it can be resumed"


class ClientEvent(NamedTuple):
    """An event as a client sees it."""

    name: str
    document: dict[str, Any]

    @property
    def identity(self) -> tuple[object, ...]:
        """Identify an event of a stored run, whose steps are in order of their index."""
        return (self.name, *(self.document.get(key) for key in ("round", "index", "status")))


class ActiveStep(NamedTuple):
    """A running step with its round and run. `step` holds only its worker and prompt."""

    run: Run
    round: Round
    step: StepRecord


class EventBroadcaster:
    """Passes the events of this process's runs on to their watchers."""

    def __init__(self) -> None:
        self.listener: Emit | None = None
        """Receives every event of every run."""
        self._events: dict[str, list[Event]] = {}
        self._watchers: dict[str, list[asyncio.Queue[Event]]] = {}
        self._root_of: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        """Take the next event of any run. Events of nested runs belong to the top run."""
        if self.listener is not None:
            self.listener(event)
        run_id = event.run.id if isinstance(event, RunStarted | RunDone) else event.run_id
        if isinstance(event, RunStarted):
            parent = event.parent
            root = run_id if parent is None else self._root_of.get(parent[0], parent[0])
            self._root_of[run_id] = root
            if parent is None:
                self._events[root] = []
        root = self._root_of.get(run_id, run_id)
        events = self._events.get(root)
        if events is None:
            return
        events.append(event)
        for queue in self._watchers.get(root, ()):
            queue.put_nowait(event)
        if isinstance(event, RunDone):
            del self._root_of[run_id]
            if run_id == root:
                del self._events[root]

    def is_running(self, run_id: str) -> bool:
        return run_id in self._events

    def started_run(self, run_id: str) -> Run | None:
        events = self._events.get(run_id)
        return events[0].run if events and isinstance(events[0], RunStarted) else None

    def active_step(self, run_id: str, round_: int, index: int) -> ActiveStep | None:
        """Return a step that is running in this process, if it is."""
        position = (round_, index)
        run: Run | None = None
        planned: Round | None = None
        step: StepRecord | None = None
        for event in self._events.get(self._root_of.get(run_id, run_id), ()):
            if event.run_id != run_id:
                continue
            match event:
                case RunStarted():
                    run = event.run
                case RoundPlanned(round=known) if known.index == round_:
                    planned = known
                case StepStarted() if (event.round, event.index) == position:
                    step = _started_step(event, planned)
                case StepRetried() if step and (event.round, event.index) == position:
                    step = replace(step, answered_by=event.worker)
                case StepProgress(step=noted) if step and (noted.round, noted.index) == position:
                    step = replace(step, turns=noted.turns)
                case StepDone(step=done) if (done.round, done.index) == position:
                    step = None
        if run is None or planned is None or step is None:
            return None
        return ActiveStep(run, planned, step)

    async def watch(
        self,
        run_id: str,
        load: Callable[[], Awaitable[Run]],
        is_claimed: Callable[[], Awaitable[bool]],
    ) -> AsyncIterator[ClientEvent]:
        """Yield all events of a run, past and future, to its end.

        `load` returns the stored run, `is_claimed` says whether a process performs it; if none
        does, the events end.
        """
        if self.is_running(run_id):
            async for live in self._live(run_id):
                for event in client_events(live):
                    yield event
            return
        sent = set[object]()
        while True:
            is_running = await is_claimed()  # before loading: what it writes at its end is sent too
            run = await load()
            for event in recorded_events(run):
                if event.identity not in sent:
                    sent.add(event.identity)
                    yield event
            if run.status != "running":
                return
            if not is_running:
                yield ClientEvent("run_abandoned", {"run_id": run_id, "error": RUN_ABANDONED})
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _live(self, run_id: str) -> AsyncIterator[Event]:
        queue: asyncio.Queue[Event] = asyncio.Queue()
        for event in self._events[run_id]:
            queue.put_nowait(event)
        watchers = self._watchers.setdefault(run_id, [])
        watchers.append(queue)
        try:
            while True:
                event = await queue.get()
                yield event
                if isinstance(event, RunDone) and event.run_id == run_id:
                    return
        finally:
            watchers.remove(queue)
            if not watchers:
                self._watchers.pop(run_id, None)


def _started_step(event: StepStarted, planned: Round | None) -> StepRecord | None:
    if planned is None or planned.workflow is None:
        return None
    wanted = planned.workflow.steps[event.index]
    return StepRecord(
        event.round,
        event.index,
        wanted.worker,
        wanted.subtask,
        wanted.access,
        "cancelled",
        reply="",
        error=None,
        started_ms=0.0,
        finished_ms=0.0,
        prompt=event.prompt,
        answered_by=event.worker,
    )


def client_events(event: Event) -> Iterator[ClientEvent]:
    """Yield an event as clients see it; some events are internal."""
    run = {"run_id": event.run_id}
    match event:
        case RunStarted(run=started, parent=parent):
            nested = {"parent": {"run_id": parent[0], "step": parent[1]}} if parent else {}
            yield ClientEvent("run_started", {**run, "question": started.question, **nested})
        case RoundPlanned(round=round_):
            yield _planned_event(event.run_id, round_)
        case StepStarted(round=number, index=index, worker=worker):
            position = {"round": number, "index": index, "worker": worker}
            yield ClientEvent("step_started", {**run, **position})
        case StepRetried(round=number, index=index, worker=worker, error=error):
            position = {"round": number, "index": index, "worker": worker}
            yield ClientEvent("step_retried", {**run, **position, "error": error})
        case StepDelta(round=number, index=index, text=text, thinking=thinking):
            position = {"round": number, "index": index}
            yield ClientEvent("step_delta", {**run, **position, "text": text, "thinking": thinking})
        case GuardrailActed(check=check):
            yield ClientEvent("guardrail_acted", {**run, **check_document(check)})
        case StepDone(step=step):
            yield ClientEvent("step_done", {**run, **step_document(step)})
        case RoundDone(round=round_):
            yield ClientEvent("round_done", {**run, "round": round_.index})
        case RunDone(run=ended):
            yield ClientEvent("run_done", run_document(ended))
        case _:
            return


def recorded_events(run: Run) -> Iterator[ClientEvent]:
    """Yield the events of a stored run; a running one has no end yet."""
    yield from client_events(RunStarted(run))
    for round_ in run.rounds:
        if round_.workflow is not None or round_.accepts_answer:
            yield _planned_event(run.id, round_)
        for step in round_.steps:
            yield from client_events(StepDone(run.id, step))
    if run.status != "running":
        yield from client_events(RunDone(run))


def _planned_event(run_id: str, round_: Round) -> ClientEvent:
    workflow = workflow_document(round_.workflow) if round_.workflow is not None else None
    return ClientEvent(
        "round_planned",
        {
            "run_id": run_id,
            "round": round_.index,
            "accepts_answer": round_.accepts_answer,
            "role": round_.role,
            "workflow": workflow,
            "warnings": list(round_.warnings),
            "routed": routed_document(round_),
            "cancelled": [step_document(step) for step in round_.cancelled],
        },
    )
